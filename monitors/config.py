"""Moved to `gaugeway.settings.shared`."""

from gaugeway.extensions.moved import moved

__getattr__ = moved("monitors.config", "gaugeway.settings.shared")
