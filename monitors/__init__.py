"""The evaluation plane: scores sampled exchanges, watches the scores, raises alerts. `evaluate` scores data sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from monitors.offline import evaluate as evaluate

__all__ = ["evaluate"]


def __getattr__(name: str) -> Any:
    """Find the public names when they are asked for: the gateway imports this package, and needs none of it."""
    if name in __all__:
        from monitors import offline  # noqa: PLC0415 - the reason is above

        return getattr(offline, name)
    raise AttributeError(f"module 'monitors' has no attribute {name!r}")
