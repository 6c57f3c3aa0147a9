"""Moved to `gaugeway.exchange`."""

from gaugeway.extensions import moved

__getattr__ = moved("gateway.exchange", "gaugeway.exchange")
