"""Limits shared through Redis or Valkey, single or a cluster: one script a second for each process."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence

from gaugeway.storage.documents import Documents
from gaugeway.storage.engines.failures import EngineError
from gaugeway.storage.engines.redis.connection import Address, Argument, Engine, Script, read_url
from gaugeway.storage.keys.names import stored_name
from gaugeway.storage.limits import SEEN_S, Draw, SharedLevels

_KEPT_MS = 60_000

# KEYS: the processes, then a bucket each. ARGV: this process, how long one counts (ms), how long a full bucket is kept
# (ms), then for each bucket its rate a minute, what it holds, what was drawn, and the level to begin with.
# A bucket expires when it has been full for a while: an unknown bucket counts as full.
_EXCHANGE = Script("""
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local reply = {redis.call('ZCARD', KEYS[1])}
for number = 2, #KEYS do
    local place = 4 + (number - 2) * 4
    local rate, burst = ARGV[place] / 60000, tonumber(ARGV[place + 1])
    local used, level = tonumber(ARGV[place + 2]), tonumber(ARGV[place + 3])
    local known = redis.call('HMGET', KEYS[number], 'level', 'at')
    local at = now
    if known[1] then
        at = math.max(now, tonumber(known[2]))
        level = known[1] + (at - known[2]) * rate
    end
    level = math.min(level, burst) - used
    redis.call('HSET', KEYS[number], 'level', string.format('%.17g', level), 'at', string.format('%.0f', at))
    local full_in = math.min((burst - level) / rate, 1e12)
    redis.call('PEXPIRE', KEYS[number], string.format('%.0f', full_in + ARGV[3]))
    reply[number] = string.format('%.17g', level)
end
return reply
""")

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
