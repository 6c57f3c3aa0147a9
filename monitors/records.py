"""Moved to `gaugeway.records`."""

from gaugeway.extensions.moved import moved

__getattr__ = moved("monitors.records", "gaugeway.records")
