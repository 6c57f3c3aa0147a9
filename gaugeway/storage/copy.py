"""Copying a store or a queue from one engine to another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from hashlib import blake2b

import msgspec

from gaugeway.records import Evaluation, Sample
from gaugeway.storage.engines.failures import RefusedError
from gaugeway.storage.queues import Queue
from gaugeway.storage.stores import EngineStore

PAGE = 200
_AT_ONCE = 8
_PREFIX = "move/"


class Moved(msgspec.Struct, kw_only=True):
    """Progress of a copy. `refused` rows were read, but the target engine never takes them."""

    samples: int = 0
    evaluations: int = 0
    supplements: int = 0
    states: int = 0
    unreadable: int = 0
    refused: int = 0
    sample_after: str = ""
    supplement_after: str = ""


class IncompleteError(Exception):
    """The target does not have what was written to it."""


async def move_store(
    source: EngineStore, target: EngineStore, *, origin: str, progress: Callable[[Moved], None] = lambda _: None
) -> Moved:
    """Copy everything into `target`, which keeps what it has; the source stays as it is.

    Every page is looked for in the target before the next one is begun (IncompleteError if it is not there), and how
    far the move is, is saved there under `origin`: begun again it goes on. One that is done begins from the start.
    """
    key = _PREFIX + blake2b(origin.encode(), digest_size=8).hexdigest()
    moved = msgspec.json.decode((await target.load()).get(key, b"{}"), type=Moved)
    for step in (_move_supplements, _move_samples):
        while await step(source, target, moved):
            await target.save({key: msgspec.json.encode(moved)})
            progress(moved)
    await _move_states(source, target, moved)
    await target.save({key: b"{}"})
    return moved


async def _move_samples(source: EngineStore, target: EngineStore, moved: Moved) -> bool:
    ids = await source.ids(moved.sample_after, PAGE)
    found = [stored for stored in [await source.sample(sample_id) for sample_id in ids] if stored is not None]
    gate = asyncio.Semaphore(_AT_ONCE)

    async def add(sample: Sample, evaluations: Sequence[Evaluation]) -> str | None:
        async with gate:
            try:
                await target.add(sample, evaluations)
            except RefusedError:  # the other samples are still moved
                return sample.id
        return None

    refused = set(await asyncio.gather(*(add(*stored) for stored in found)))
    expected = {sample.id: len(evaluations) for sample, evaluations in found if sample.id not in refused}
    there = await target.holds(list(expected))
    if missing := [name for name, count in expected.items() if there.get(name, -1) < count]:
        raise IncompleteError(
            f"{len(missing)} of {len(expected)} samples are missing in the target after the copy, first {missing[0]}"
        )
    moved.samples += len(expected)
    moved.evaluations += sum(expected.values())
    moved.refused += len(found) - len(expected)
    moved.unreadable += len(ids) - len(found)
    moved.sample_after = ids[-1] if ids else moved.sample_after
    return bool(ids)


async def _move_supplements(source: EngineStore, target: EngineStore, moved: Moved) -> bool:
    page = await source.said(moved.supplement_after, PAGE)
    readable = [supplement for _, supplement in page if supplement is not None]
    await target.supplement(readable)
    moved.supplements += len(readable)
    moved.unreadable += len(page) - len(readable)
    moved.supplement_after = page[-1][0] if page else moved.supplement_after
    return bool(page)


async def _move_states(source: EngineStore, target: EngineStore, moved: Moved) -> None:
    there = await target.load()
    new = {
        name: value
        for name, value in (await source.load()).items()
        if name not in there and not name.startswith(_PREFIX)
    }
    await target.save(new)
    moved.states = len(new)


async def move_queue(source: Queue, target: Queue, *, progress: Callable[[Moved], None] = lambda _: None) -> Moved:
    """Take everything that waits out of `source` and put it into `target`; dead letters stay where they are.

    A sample leaves the source only when the target has it, so this may be broken off, and run beside workers.
    """
    moved = Moved()
    while leases := await source.lease(PAGE):
        samples = [lease.sample for lease in leases]
        await target.put(samples)
        await source.ack([sample.id for sample in samples])
        moved.samples += len(samples)
        progress(moved)
    while supplements := await source.take(PAGE):
        await target.supply(supplements)
        await source.ack_supplies([supplement.id for supplement in supplements])
        moved.supplements += len(supplements)
        progress(moved)
    return moved
