"""Metrics that compare with a reference."""
