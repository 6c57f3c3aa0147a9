"""Estimates, intervals and e-processes: pure numpy, each formula with its source."""
