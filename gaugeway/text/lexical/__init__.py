"""Lexical analysis without a model: sentences, words, numbers, dates, names and negations, in any script."""
