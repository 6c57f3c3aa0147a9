"""Moved to `gaugeway.prompts`."""

from gaugeway.extensions import moved

__getattr__ = moved("gateway.contexts", "gaugeway.prompts")
