"""Imports from other evaluation tools: their data and graders become a data set and metrics of `gaugeway evaluate`."""
