"""What is read in texts: words, sentences, numbers, languages, whether an answer declines."""
