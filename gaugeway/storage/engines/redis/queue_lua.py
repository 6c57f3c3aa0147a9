"""The Lua of the Redis queue: each script is one step that happens whole, on keys of one hash tag.

A room is three keys: a stream (who waits, in what order, who is held since when and for which time), a hash from id to
stream entry (so that an id waits once, and goes by its id), and a sorted set of ids by age. Entries are
`id, at, body` and, of dead letters, `attempts, reason`. The keys of a room stand together.

Nothing may be written before what the engine refuses when its memory is full (adding), or a step would happen half.
"""

from __future__ import annotations

from gaugeway.storage.engines.redis.connection import Script
from gaugeway.storage.engines.scripts import script

_COMMON = script("redis/scripts/queue_common.lua")


def _with_common(name: str) -> Script:
    return Script(_COMMON + script(f"redis/scripts/queue_{name}.lua"))


PUT = _with_common("put")
LEASE = _with_common("lease")
ACK = _with_common("ack")
DISCARD = _with_common("discard")
SET_ASIDE = _with_common("set_aside")
REJECT = _with_common("reject")
DEPTH = _with_common("depth")
PRUNE = _with_common("prune")
READ = Script(script("redis/scripts/queue_read.lua"))
