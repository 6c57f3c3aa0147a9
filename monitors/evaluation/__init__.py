"""From a sample to its stored scores."""
