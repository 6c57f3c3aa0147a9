"""Reads the scores and questions of two versions, or of two periods, from the store."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from gaugeway.storage.engines.failures import Unsupported
from gaugeway.storage.stores import Point, Query, ScoreHistogram, Store
from gaugeway.storage.stores.rollup_windows import joined, next_step
from monitors.alerting.slices import narrowed, value_of
from monitors.analysis import captured
from monitors.analysis.ab_binned import Parts, parts_of
from monitors.analysis.ab_compare import ALPHA, MARGIN, Compared, Sides, compare, sides

PERIOD = "period"
"""`by` of a comparison of two periods, each given as "SINCE..UNTIL"."""
AUTO_PAIRED_UP_TO = 20_000
"""`pairing="auto"` reads the questions of at most this many samples."""
_FIRST_S = 3600.0
_STEPS = {"quick_s": 0.03, "least_s": 900.0, "most_s": 86_400.0}
_LATEST = 2000
_AT_ONCE, _PLANNED = 500, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionQuery:
    """The versions to read: `by` is "model", "prompt" or "tag:NAME"; `a` is the champion's value, `b` the challenger's.

    With `periods` (since, until) of the champion and the challenger, all scores of these are compared, whatever their
    version: `by`, `since` and `until` do not count, and `a` and `b` are names for messages.

    Empty `metrics` means all. Up to `few` scores of both are read singly, so that they can be paired; more are read as
    histograms if the store has them, for at most `within_s` seconds. With `few` None, or without histograms, scores are
    read singly: at most `most` per version (and named metric), the oldest first, for at most `reading_s` seconds.
    `margin` and `alpha` are those of the comparison.
    """

    by: str
    a: str
    b: str
    since: float
    until: float
    metrics: Sequence[str] = ()
    app: str | None = None
    few: int | None = None
    most: int | None = None
    within_s: float | None = None
    reading_s: float | None = None
    periods: tuple[tuple[float, float], tuple[float, float]] | None = None
    margin: float = MARGIN
    alpha: float = ALPHA

    @property
    def sides(self) -> tuple[tuple[str, tuple[float, float]], tuple[str, tuple[float, float]]]:
        """Champion and challenger, each with its period."""
        first, second = self.periods or ((self.since, self.until), (self.since, self.until))
        return (self.a, first), (self.b, second)


class Read(NamedTuple):
    """The scores to compare; `partial` if not all could be read."""

    everything: list[Sides | Parts]
    partial: bool


class ComparedVersions(NamedTuple):
    """The comparison of each app and metric, and the scores behind it; `partial` if not all could be read."""

    everything: list[Sides | Parts]
    rows: list[Compared]
    partial: bool


class UnknownVersionError(ValueError):
    """Raised if a version has no score; if the champion has some, it says how many of each a decision will take."""


def period_of(text: str, now: float) -> tuple[float, float]:
    """Return a period "SINCE..UNTIL" as Unix times; an end that is not given is now. Raises ValueError.

    >>> period_of("48h..24h", 172_800.0), period_of("24h..", 172_800.0)
    ((0.0, 86400.0), (86400.0, 172800.0))
    """
    since, dots, end = (part.strip() for part in text.partition(".."))
    if not dots or not since:
        raise ValueError(f"a period has the form SINCE..UNTIL, for example 14d..7d or 7d..now, not {text!r}")
    found = captured.since(since, now), now if end in ("", "now") else captured.since(end, now)
    if found[0] >= found[1]:
        raise ValueError(f"the period {text!r} ends before it begins")
    return found


def check_by(by: str) -> None:
    """Raise ValueError unless `by` is model, prompt or tag:NAME."""
    if by not in ("model", "prompt") and not (by.startswith("tag:") and len(by) > len("tag:")):
        raise ValueError(f"expected model, prompt or tag:NAME, got {by!r}")


async def read(store: Store, wanted: VersionQuery) -> Read:
    """Read the scores of both versions. Raises UnknownVersionError, and ValueError for an invalid `by`."""
    if wanted.periods is not None:
        first, second = wanted.periods
        if first[0] < second[1] and second[0] < first[1]:
            raise ValueError("the two periods overlap")
    elif wanted.a == wanted.b:
        raise ValueError(f"the two versions are the same ({wanted.a!r})")
    else:
        check_by(wanted.by)
    if wanted.few is not None:
        with suppress(Unsupported):
            return await _counted(store, wanted, *await _spread(store, wanted))
    both: list[list[Point]] = []
    partial = False
    for value, times in wanted.sides:
        points, all_of_it = await _scores(store, wanted, value, [times], wanted.reading_s)
        if not points:
            missing = await _missing(store, wanted, value, None if all_of_it else wanted.reading_s)
            raise UnknownVersionError(missing + _plan(wanted, list(sides(*both, *both)) if both else []))
        both.append(points)
        partial = partial or not all_of_it
    return Read(list(sides(*both)), partial)


async def compare_versions(
    store: Store, wanted: VersionQuery, *, lower_is_better: Callable[[str], bool]
) -> ComparedVersions:
    """Read the scores of both versions and compare them, those to the same question as pairs. Raises as `read`."""
    everything, partial = await read(store, wanted)
    keys = await keys_of(store, everything, "auto", most=wanted.few or AUTO_PAIRED_UP_TO)
    rows = await asyncio.to_thread(
        lambda: compare(
            everything, margin=wanted.margin, alpha=wanted.alpha, keys=keys, lower_is_better=lower_is_better
        )
    )
    return ComparedVersions(everything, rows, partial)


async def _spread(store: Store, wanted: VersionQuery) -> tuple[list[list[ScoreHistogram]], list[str], bool]:
    """Return the histograms of both versions, the versions that are there, and whether these are all histograms."""
    named = wanted.metrics[0] if len(wanted.metrics) == 1 else None
    query = Query(since=wanted.since, until=wanted.until, app=wanted.app, metric=named)
    by, both, known, complete = wanted.by, [], set(), True
    if wanted.periods is None:
        counted = await store.spread(query, by, wanted.within_s)
        both = [
            [histogram for histogram in counted.parts if histogram.slice == value] for value in (wanted.a, wanted.b)
        ]
        known, complete = {histogram.slice for histogram in counted.parts if histogram.slice}, counted.complete
    else:
        for since, until in wanted.periods:
            part = await store.spread(replace(query, since=since, until=until), "", wanted.within_s)
            both.append(list(part.parts))
            complete = complete and part.complete
    chosen = [
        [histogram for histogram in some if not wanted.metrics or histogram.metric in wanted.metrics] for some in both
    ]
    return chosen, sorted(known), complete


async def _counted(
    store: Store,
    wanted: VersionQuery,
    both: Sequence[Sequence[ScoreHistogram]],
    known: Sequence[str],
    complete: bool,  # noqa: FBT001 - as `_spread` returns it
) -> Read:
    """Return the histograms of both versions, or single scores if there are few."""
    for (value, _), some in zip(wanted.sides, both, strict=True):
        if not some:
            missing = _unknown(wanted, value, known, None if complete else wanted.within_s)
            raise UnknownVersionError(missing + _plan(wanted, parts_of(both[0], both[0])))
    if complete and sum(histogram.n for some in both for histogram in some) <= (wanted.few or 0):
        read_ = []
        for (value, _), some in zip(wanted.sides, both, strict=True):
            times = joined((histogram.since, histogram.until) for histogram in some)
            points, all_of_it = await _scores(store, wanted, value, times, wanted.within_s)
            if not all_of_it:  # too slow to read: compare without pairs
                return Read(list(parts_of(*both)), partial=False)
            read_.append(points)
        return Read(list(sides(*read_)), partial=False)
    return Read(list(parts_of(*both)), not complete)


def _plan(wanted: VersionQuery, champion: Sequence[Sides | Parts]) -> str:
    """Return how many scores a decision takes, from the champion's scores compared with themselves; "" without any."""
    rows = compare(champion, margin=wanted.margin, alpha=wanted.alpha)
    needed = [f"{row.needed:,} for {row.metric} of {row.app}" for row in rows if row.needed is not None]
    if not needed:
        return ""
    return f"; as {wanted.a!r} varies, a typical decision takes so many scores of each: {', '.join(needed[:_PLANNED])}"


async def keys_of(
    store: Store, everything: Iterable[Sides | Parts], pairing: str, *, most: int = AUTO_PAIRED_UP_TO
) -> dict[str, str]:
    """Return the pairing key by sample id: the value of a tag ("tag:NAME"), or the question's text.

    "auto" returns none for more than `most` samples.
    """
    points = {
        point.sample_id: point
        for scores in everything
        if isinstance(scores, Sides)
        for point in (*scores.champion, *scores.challenger)
    }
    if pairing.startswith("tag:"):
        tagged = ((name, value_of(point, pairing)) for name, point in points.items())
        return {name: value for name, value in tagged if value is not None}
    if pairing == "off" or (pairing == "auto" and len(points) > most):
        return {}
    found: dict[str, str] = {}
    names = list(points)
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        asked = await store.questions(some)
        found |= {name: asked[name].strip() for name in some if name in asked}
    return found


async def _scores(
    store: Store, wanted: VersionQuery, value: str, times: Sequence[tuple[float, float]], within_s: float | None
) -> tuple[list[Point], bool]:
    """Read a version's scores in time steps sized so that each query is fast; return whether all were read."""
    found: list[Point] = []
    deadline = math.inf if within_s is None else time.monotonic() + within_s
    for metric in wanted.metrics or (None,):
        count, step = 0, _FIRST_S
        for since, end in times:
            at = since
            while at < end and (wanted.most is None or count < wanted.most):
                if time.monotonic() > deadline:
                    return found, False
                until = min(at + step, end)
                query = Query(since=at, until=until, metric=metric, app=wanted.app, outcome="score")
                query = replace(query, limit=None if wanted.most is None else wanted.most - count)
                begin = time.monotonic()
                page = await store.series(query if wanted.periods else narrowed(query, wanted.by, value))
                step = next_step(step, time.monotonic() - begin, **_STEPS)
                found += page
                count, at = count + len(page), until
        if wanted.most is not None and count >= wanted.most:
            return found, False
    return found, True


async def _missing(store: Store, wanted: VersionQuery, value: str, looked_s: float | None) -> str:
    """Return the error for a version without scores, with the versions in the latest traffic."""
    query = Query(since=wanted.since, until=wanted.until, app=wanted.app, outcome="score", order="newest")
    latest = [] if wanted.periods else await store.series(replace(query, limit=_LATEST))
    known = sorted({name for point in latest if (name := value_of(point, wanted.by))})
    return _unknown(wanted, value, known, looked_s)


def _unknown(wanted: VersionQuery, value: str, known: Sequence[str], looked_s: float | None) -> str:
    there = f"; available: {', '.join(known[:20])}" if known else ""
    of = f" of {', '.join(wanted.metrics)}" if wanted.metrics else ""
    where = "in this period" + ("" if looked_s is None else f" (only part of it could be read in {looked_s:g} s)")
    what = f"period {value}" if wanted.periods else f"{wanted.by} {value!r} {where}"
    return f"no scores{of} for {what}{there}"
