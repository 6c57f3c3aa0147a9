"""Processes of one machine: children, the sum of their metrics, locks and priority."""
