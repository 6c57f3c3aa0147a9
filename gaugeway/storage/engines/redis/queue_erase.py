"""Deleting what is about one person from a queue in Redis: from every stream, whoever holds what is in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from gaugeway.storage.engines.redis.connection import Engine
from gaugeway.storage.engines.redis.queue_lua import DISCARD, READ
from gaugeway.storage.erase import Subject, Trail

_BATCH = 200
Room = tuple[str, str, str]


async def forget(
    engine: Engine,
    *,
    waiting: Sequence[Room],
    dead: Sequence[Room],
    supplies: Sequence[Room],
    subject: Subject,
    dry_run: bool = False,
) -> Mapping[str, int]:
    """Delete samples, leased ones and dead letters too, and the supplements about them or with the text themselves.

    Of every shard first what waits, then the dead letters, as what is set aside meanwhile is found there; supplements
    last, which may be in another shard than the sample they are about. What a worker holds at this moment it may still
    bring to the store.
    """
    trail = Trail(subject)
    return {
        "queued samples": sum([await _forget(engine, room, trail.sample, dry_run=dry_run) for room in waiting]),
        "dead letters": sum([await _forget(engine, room, trail.sample, dry_run=dry_run) for room in dead]),
        "queued supplements": sum(
            [await _forget(engine, room, trail.supplement, dry_run=dry_run) for room in supplies]
        ),
    }


async def _forget(engine: Engine, room: Room, is_meant: Callable[[str, str], bool], *, dry_run: bool) -> int:
    total, after = 0, "-"
    while True:
        rows = await engine.run(READ, room[:1], (after, _BATCH))
        # bytes that are no text are searched as well as they can be
        meant = [
            entry
            for entry, name, body in rows
            if is_meant(name.decode(errors="replace"), body.decode(errors="replace"))
        ]
        if meant and not dry_run:
            await engine.run(DISCARD, room, meant)
        total += len(meant)
        if len(rows) < _BATCH:
            return total
        after = f"({rows[-1][0].decode()}"
        await asyncio.sleep(0)
