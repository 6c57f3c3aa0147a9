"""Moved to `gaugeway.exchange`."""

from gaugeway.extensions.moved import moved

__getattr__ = moved("gateway.exchange", "gaugeway.exchange")
