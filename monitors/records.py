"""Moved to `gaugeway.records`."""

from gaugeway.extensions import moved

__getattr__ = moved("monitors.records", "gaugeway.records")
