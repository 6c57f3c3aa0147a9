"""From a URL in the configuration to a queue; only the adapter it names is imported."""

from __future__ import annotations

from monitors.importer import load
from monitors.queues import BUILT_IN, Queue


def from_url(url: str, lease_s: float, max_attempts: int) -> Queue:
    """Return the queue that `url` names: `sqlite:////absolute/path`, `sqlite:///relative/path` or `memory://`.

    Nothing is opened yet. Raises ValueError for a URL of another kind.
    """
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in BUILT_IN:
        known = ", ".join(f"{name}://" for name in sorted(BUILT_IN))
        raise ValueError(f"no queue for URLs that start with {scheme if separator else ''!r}; known: {known}")
    queue: Queue = load(scheme, BUILT_IN).from_url(url, lease_s, max_attempts)
    return queue
