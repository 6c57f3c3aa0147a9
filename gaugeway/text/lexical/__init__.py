"""Lexical analysis without a model: sentences and words, in any script."""
