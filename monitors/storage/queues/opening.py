"""From a URL in the configuration to a queue; only the adapter it names is imported."""

from __future__ import annotations

from monitors.runtime.plugins import adapter
from monitors.storage.queues import BUILT_IN, Queue


def from_url(url: str, lease_s: float, max_attempts: int, max_bytes: int | None = None) -> Queue:
    """Return the queue that `url` names: `sqlite:////absolute/path`, `sqlite:///relative/path`, `postgresql://…/database`
    or `redis://host:6379/0`, with `rediss`, `valkey` and `valkeys` alike.

    It takes no more than about `max_bytes`, if given. Nothing is opened yet. Raises ValueError for a URL of another
    kind.
    """
    queue: Queue = adapter(url, BUILT_IN, "queue").from_url(url, lease_s, max_attempts, max_bytes)
    return queue
