"""Computes the signals: what every captured exchange shows without a judge."""
