"""Conversations with what their exchanges show: how many turns, the latest, the worst score."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from gaugeway.records import Sample, grouped
from gaugeway.storage.stores import Point, Query, Store
from monitors.analysis.human_labels import Passings

MAX_POINTS = 1_000
"""Evaluations that a list of conversations is read from, the newest."""
MAX_EXCHANGES = 50
"""Exchanges of a conversation that are given, the latest."""
AT_ONCE = 100


class Thread(Struct, frozen=True, kw_only=True):
    """A conversation: `key` is its id, "" where only the `session` is known; `last_at` in Unix seconds.

    `opening` is the first question that was read, `turns` the number of the latest turn, `worst` the worst score.
    `unanswered` says why its last exchange has no answer; "" if it has one.
    """

    key: str
    session: str
    app: str
    opening: str
    turns: int
    exchanges: int
    last_at: float
    unanswered: str = ""
    worst: Point | None = None


class ConversationTurn(Struct, frozen=True, kw_only=True):
    """An exchange of a conversation: the texts as stored, and its place in it (null while that is not known)."""

    exchange_id: str
    started_at: float
    app: str
    model: str
    turn: int | None
    hop: int | None
    question: str
    response: str


async def read_threads(store: Store, query: Query, passing: Passings) -> list[Thread]:
    """Return the conversations of the newest evaluations of a query, the latest first."""
    points = grouped((point.sample_id, point) for point in await store.series(query))
    ids, samples = list(points), list[Sample]()
    for start in range(0, len(ids), AT_ONCE):
        samples += (await store.samples(ids[start : start + AT_ONCE])).values()
    by_key = grouped(
        ((sample.app, key), sample)
        for sample in samples
        if not sample.transcript and (key := sample.conversation or sample.session)
    )
    threads = [thread_of(some, [p for sample in some for p in points[sample.id]], passing) for some in by_key.values()]
    kept = [thread for thread in threads if thread.session or thread.turns > 1 or thread.exchanges > 1]
    return sorted(kept, key=lambda thread: -thread.last_at)


def thread_of(some: Sequence[Sample], points: Iterable[Point], passing: Passings) -> Thread:
    """Return the conversation of some exchanges, with their evaluations."""

    def goodness(point: Point) -> tuple[bool, float]:
        """Failing scores first, the farthest from the metric's best value before others."""
        rule, value = passing(point.metric), point.value or 0.0
        return rule.passes(value), 1.0 - value if rule.flipped else value

    first, last = (pick(some, key=lambda sample: sample.started_at) for pick in (min, max))
    return Thread(
        key=last.conversation or "",
        session=last.session or "",
        app=last.app,
        opening=first.question or "",
        turns=max([1, *(sample.turn or 0 for sample in some)]),
        exchanges=len(some),
        last_at=last.started_at,
        unanswered=last.skip_reason or "",
        worst=min((point for point in points if point.value is not None), key=goodness, default=None),
    )


async def read_turns(store: Store, key: str, app: str | None = None) -> list[ConversationTurn]:
    """Return the latest exchanges of a conversation, the oldest first; without an app, of that of the latest one."""
    stored = [sample for sample in await store.conversation(key, MAX_EXCHANGES + 1) if not sample.transcript]
    whose = app or (stored[-1].app if stored else "")
    return [
        ConversationTurn(
            exchange_id=sample.id,
            started_at=sample.started_at,
            app=sample.app,
            model=sample.model,
            turn=sample.turn,
            hop=sample.hop,
            question=sample.question or "",
            response=sample.response,
        )
        for sample in [sample for sample in stored if sample.app == whose][-MAX_EXCHANGES:]
    ]
