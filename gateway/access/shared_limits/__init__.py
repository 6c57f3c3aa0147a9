"""Shared limits: the port through which gateways share the usage of their limits, and the names of its adapters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gateway.access.token_bucket import Draw, Heard

BUILT_IN = {
    "redis": "gateway.access.shared_limits.redis:RedisSharing",
    "rediss": "gateway.access.shared_limits.redis:RedisSharing",
    "valkey": "gateway.access.shared_limits.redis:RedisSharing",
    "valkeys": "gateway.access.shared_limits.redis:RedisSharing",
    "postgresql": "gateway.access.shared_limits.postgres:PostgresSharing",
    "postgres": "gateway.access.shared_limits.postgres:PostgresSharing",
}
"""URL scheme -> adapter. Each is made by `from_url(url)`, which raises ValueError."""

SEEN_S = 10.0
"""A process that has not synced for this long no longer counts; each syncs at least three times as often."""


class Sharing(Protocol):
    """Where processes report what they drew from the buckets, and read what is left."""

    async def exchange(self, draws: Sequence[Draw]) -> Heard:
        """Take all of `draws` out of their buckets, all or nothing, and say what is left in each.

        A bucket that is not known begins at the draw's level. Time is the place's own, so that the processes' clocks
        need not agree. Raises EngineError; whether anything was taken is then not known.
        """

    async def aclose(self) -> None:
        """Leave the processes that share, and close the connections."""
