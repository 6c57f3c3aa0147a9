"""The conversations of a selection, found in its latest exchanges, and the exchanges of one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from dashboards.web.incident.explore_search import Cursor, Found, search
from gaugeway.records import Evaluation, Sample
from gaugeway.storage.stores import Point, Query, Store
from monitors.analysis.human_labels import Passings

MAX_POINTS = 400
"""Evaluations of a page of conversations."""
MAX_EXCHANGES = 50
"""Exchanges of a conversation that are shown, the latest."""
AT_ONCE = 100
BUDGET_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """A conversation: its `key` for an address, "" where only the `session` is known; `last_at` in Unix seconds.

    `opening` is the first question that was read, `turns` the number of the latest turn, `worst` the worst score.
    """

    key: str
    session: str
    app: str
    opening: str
    turns: int
    exchanges: int
    last_at: float
    worst: Point | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Threads:
    """A page of conversations, those with the latest exchanges first, of `exchanges` exchanges that were read.

    `single` exchanges have no session, and nothing continued them.
    """

    rows: Sequence[Thread] = ()
    found: Found = field(default_factory=Found)
    exchanges: int = 0
    single: int = 0


async def threads(store: Store, query: Query, after: Cursor | None, passing: Passings) -> Threads:
    """Read a page of conversations: those of the next `MAX_POINTS` evaluations of a query, newest first."""
    found = await search(store, query, after=after, wanted=MAX_POINTS, budget_s=BUDGET_S, clock=time.monotonic)
    points: dict[str, list[Point]] = {}
    for point in found.points:
        points.setdefault(point.sample_id, []).append(point)
    ids = list(points)
    samples: dict[str, Sample] = {}
    for start in range(0, len(ids), AT_ONCE):
        samples |= await store.samples(ids[start : start + AT_ONCE])
    by_key: dict[tuple[str, str], list[Sample]] = {}
    for sample in samples.values():
        if not sample.transcript and (key := sample.conversation or sample.session):
            by_key.setdefault((sample.app, key), []).append(sample)
    rows = [
        _thread(some, [point for sample in some for point in points[sample.id]], passing) for some in by_key.values()
    ]
    kept = [thread for thread in rows if thread.session or thread.turns > 1 or thread.exchanges > 1]
    kept.sort(key=lambda thread: -thread.last_at)
    listed = sum(thread.exchanges for thread in kept)
    return Threads(rows=kept, found=found, exchanges=len(samples), single=len(samples) - listed)


def _thread(some: Sequence[Sample], points: Sequence[Point], passing: Passings) -> Thread:
    first, last = (pick(some, key=lambda sample: sample.started_at) for pick in (min, max))
    scored = [point for point in points if point.value is not None]
    return Thread(
        key=last.conversation or "",
        session=last.session or "",
        app=last.app,
        opening=first.question or "",
        turns=max([1, *(sample.turn or 0 for sample in some)]),
        exchanges=len(some),
        last_at=last.started_at,
        worst=min(scored, key=lambda point: _goodness(point, passing), default=None),
    )


def _goodness(point: Point, passing: Passings) -> tuple[bool, float]:
    """Failing scores first, the farthest from the metric's best value before others."""
    rule, value = passing(point.metric), point.value or 0.0
    return rule.passes(value), 1.0 - value if rule.flipped else value


async def exchanges_of(store: Store, key: str, app: str) -> list[tuple[Sample, Sequence[Evaluation]]]:
    """The latest `MAX_EXCHANGES` exchanges of a conversation with their evaluations, the oldest first.

    Without an `app` those of the app with the latest exchange: a conversation is one app's.
    """
    stored = [sample for sample in await store.conversation(key, MAX_EXCHANGES + 1) if not sample.transcript]
    if not stored:
        return []
    whose = app or stored[-1].app
    ids = [sample.id for sample in stored if sample.app == whose][-MAX_EXCHANGES:]
    return [
        exchange for exchange in await asyncio.gather(*(store.sample(name) for name in ids)) if exchange is not None
    ]
