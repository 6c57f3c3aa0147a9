"""Metrics that need a reference."""
