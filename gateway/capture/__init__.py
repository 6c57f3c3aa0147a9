"""From a recorded exchange to a sample: question, passages, response, prompt version."""
