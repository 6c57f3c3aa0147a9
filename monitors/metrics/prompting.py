"""Deprecated import path of `monitors.metrics.Datum` and `monitors.metrics.Template`."""

from __future__ import annotations

import warnings

from monitors.metrics.judged.prompts import Datum, Template

__all__ = ["Datum", "Template"]

warnings.warn("import Datum and Template from monitors.metrics", DeprecationWarning, stacklevel=2)
