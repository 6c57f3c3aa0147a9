"""Reads a prompt by its form: records that repeat one shape, and the block they stand in."""
