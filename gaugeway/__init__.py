"""Measure the quality of RAG answers: `from gaugeway import evaluate`. Each name is loaded when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gaugeway.api_types import AsyncClient as AsyncClient
    from gaugeway.api_types import Client as Client
    from gaugeway.client import ApiError as ApiError
    from gaugeway.records import Context as Context
    from gaugeway.records import Failed as Failed
    from gaugeway.records import Sample as Sample
    from gaugeway.records import Score as Score
    from gaugeway.records import Skipped as Skipped
    from gaugeway.settings.shared import Embeddings as Embeddings
    from gaugeway.settings.shared import Judge as Judge
    from monitors.metrics import Metric as Metric
    from monitors.offline import Run as Run
    from monitors.offline import compare as compare
    from monitors.offline import evaluate as evaluate
    from monitors.offline import evaluate_async as evaluate_async

_PUBLIC = {
    "ApiError": "gaugeway.client",
    "AsyncClient": "gaugeway.client",
    "Client": "gaugeway.client",
    "Context": "gaugeway.records",
    "Embeddings": "gaugeway.settings.shared",
    "Failed": "gaugeway.records",
    "Judge": "gaugeway.settings.shared",
    "Metric": "monitors.metrics",
    "Run": "monitors.offline",
    "Sample": "gaugeway.records",
    "Score": "gaugeway.records",
    "Skipped": "gaugeway.records",
    "compare": "monitors.offline",
    "evaluate": "monitors.offline",
    "evaluate_async": "monitors.offline",
}
"""Name -> the module that has it."""
__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    """Load a public name."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'gaugeway' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
