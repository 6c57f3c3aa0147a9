"""Limits shared through Redis or Valkey, single or a cluster: one script a second for each process."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence

from gaugeway.storage.documents import SEEN_S, Documents, Draw, SharedLevels
from gaugeway.storage.engines.failures import EngineError
from gaugeway.storage.engines.redis.connection import Address, Argument, Engine, Script, read_url
from gaugeway.storage.engines.scripts import script
from gaugeway.storage.keys import stored_name

_KEPT_MS = 60_000

_EXCHANGE = Script(script("redis/scripts/limits_exchange.lua"))
_LEAVE = Script("return redis.call('ZREM', KEYS[1], ARGV[1])")


class RedisDocuments(Documents):
    """Levels of limits: hashes of one hash tag, so that a step is on one node of a cluster. Raises `EngineError`."""

    def __init__(self, address: Address) -> None:
        self._engine = Engine(address)
        self._process = secrets.token_hex(8)
        self._prefix = f"{{{address.prefix}:limits}}"

    @classmethod
    def from_url(cls, url: str) -> RedisDocuments:
        """Return the place in the engine that `url` names. Raises ValueError."""
        return cls(read_url(url))

    async def exchange(self, draws: Sequence[Draw]) -> SharedLevels:
        keys = [self._processes, *(f"{self._prefix}:{draw.kind}:{stored_name(draw.subject)}" for draw in draws)]
        arguments: list[Argument] = [self._process, round(SEEN_S * 1000), _KEPT_MS]
        for draw in draws:
            arguments += [draw.per_min, draw.burst, draw.used, draw.level]
        processes, *levels = await self._engine.run(_EXCHANGE, keys, arguments)
        return SharedLevels(processes=processes, levels=[float(level) for level in levels])

    async def aclose(self) -> None:
        with contextlib.suppress(EngineError):  # who does not say goodbye is forgotten all the same
            await self._engine.run(_LEAVE, [self._processes], [self._process])
        await self._engine.aclose()

    @property
    def _processes(self) -> str:
        return f"{self._prefix}:processes"
