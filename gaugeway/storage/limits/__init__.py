"""Shared limits: the port through which gateways share the usage of their limits, and the names of its adapters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gaugeway.storage.limits.levels import Draw, SharedLevels

BUILT_IN = {
    "redis": "gaugeway.storage.engines.redis.limits:RedisSharing",
    "rediss": "gaugeway.storage.engines.redis.limits:RedisSharing",
    "valkey": "gaugeway.storage.engines.redis.limits:RedisSharing",
    "valkeys": "gaugeway.storage.engines.redis.limits:RedisSharing",
    "postgresql": "gaugeway.storage.engines.postgres.limits:PostgresSharing",
    "postgres": "gaugeway.storage.engines.postgres.limits:PostgresSharing",
}
"""URL scheme -> adapter. Each is made by `from_url(url)`, which raises ValueError."""

SEEN_S = 10.0
"""A process that has not synced for this long no longer counts; each syncs at least three times as often."""


class Sharing(Protocol):
    """Where processes report what they drew from the buckets, and read what is left."""

    async def exchange(self, draws: Sequence[Draw]) -> SharedLevels:
        """Take all of `draws` from their buckets, all or nothing, and return what is left in each.

        An unknown bucket starts at the draw's level. The engine's clock is used, so that the processes' clocks need not
        agree. Raises EngineError; it is then unknown whether anything was taken.
        """

    async def aclose(self) -> None:
        """Leave the processes that share, and close the connections."""
