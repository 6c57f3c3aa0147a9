"""Texts taken apart without a model: sentences, words, numbers, dates, names, negations, in any script."""
