"""Moved to `gaugeway.prompts`."""

from gaugeway.extensions.moved import moved

__getattr__ = moved("gateway.contexts", "gaugeway.prompts")
