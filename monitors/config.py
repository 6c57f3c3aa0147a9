"""Moved to `gaugeway.settings.shared`."""

from gaugeway.extensions import moved

__getattr__ = moved("monitors.config", "gaugeway.settings.shared")
