"""Splits a time into past days and hours and the rest, and merges the sums of the parts. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gaugeway.records import grouped
from gaugeway.storage.stores import OutcomeCount, ScoreHistogram, ScoreSums, Summary

Array: TypeAlias = NDArray[np.float64]
HOUR_S, DAY_S = 3600, 86_400
SETTLED_S = 900.0
"""An hour is added up when it is over for so long: until then late scores come all the time."""
_HOURS = DAY_S // HOUR_S


class Span(NamedTuple):
    """An hour or a day of UTC, in Unix seconds."""

    start: int
    seconds: int

    @property
    def hours(self) -> Sequence[tuple[float, float]]:
        """Its hours, each with its end."""
        steps = range(self.start, self.start + self.seconds, HOUR_S)
        return [(float(step), float(step + HOUR_S)) for step in steps]


def cut(since: float, until: float, over: float) -> tuple[list[Span], list[tuple[float, float]]]:
    """The whole days and hours in [since, until) that ended before `over`, as few as can be; and what is left.

    >>> cut(1800.0, 9000.0, over=1e9)
    ([Span(start=3600, seconds=3600)], [(1800.0, 3600.0), (7200.0, 9000.0)])
    >>> [len(part) for part in cut(0.0, 90_000.0, over=1e9)], cut(10.0, 20.0, over=1e9)[1]
    ([2, 0], [(10.0, 20.0)])
    """
    first, last = math.ceil(max(since, 0.0) / HOUR_S), math.floor(min(until, over) / HOUR_S)
    if first >= last:
        return [], [(since, until)]
    spans = []
    at = first
    while at < last:
        hours = _HOURS if at % _HOURS == 0 and at + _HOURS <= last else 1
        spans.append(Span(at * HOUR_S, hours * HOUR_S))
        at += hours
    edges = [(since, float(first * HOUR_S)), (float(last * HOUR_S), until)]
    return spans, [(start, end) for start, end in edges if start < end]


def joined(times: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Times that touch, as one.

    >>> joined([(7.0, 9.0), (1.0, 3.0), (3.0, 5.0)])
    [(1.0, 5.0), (7.0, 9.0)]
    """
    found: list[tuple[float, float]] = []
    for start, end in sorted(times):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def next_step(step_s: float, took_s: float, *, quick_s: float, least_s: float, most_s: float) -> float:
    """How long a time to read next: twice the last one if it took less than `quick_s` to read, else half of it.

    >>> [next_step(600.0, took, quick_s=0.05, least_s=400.0, most_s=900.0) for took in (0.01, 0.1)]
    [900.0, 400.0]
    """
    return min(most_s, 2.0 * step_s) if took_s < quick_s else max(least_s, step_s / 2.0)


def add_summaries(parts: Iterable[Summary]) -> list[Summary]:
    """One summary for each app, metric and slice."""
    found: dict[tuple[str, str, str], Summary] = {}
    for summary in parts:
        key = (summary.app, summary.metric, summary.slice)
        earlier = found.get(key)
        found[key] = summary if earlier is None else earlier + summary
    return list(found.values())


def add_scored(parts: Iterable[ScoreSums]) -> list[ScoreSums]:
    """One for each app and metric."""
    found = grouped(((sums.app, sums.metric), sums) for sums in parts)
    return [
        ScoreSums(
            app=app,
            metric=metric,
            n=sum(sums.n for sums in some),
            x=math.fsum(sums.x for sums in some),
            x2=math.fsum(sums.x2 for sums in some),
            least_rate=min(sums.least_rate for sums in some),
            most_rate=max(sums.most_rate for sums in some),
        )
        for (app, metric), some in found.items()
    ]


def add_outcomes(parts: Iterable[OutcomeCount]) -> list[OutcomeCount]:
    """One for each app, metric, outcome and reason."""
    found: dict[OutcomeCount, int] = {}
    for count in parts:
        key = replace(count, n=0)
        found[key] = found.get(key, 0) + count.n
    return [replace(count, n=n) for count, n in found.items()]


def add_spreads(parts: Iterable[ScoreHistogram]) -> list[ScoreHistogram]:
    """One for each app, metric, slice, judge, version and rate, over all the time of its parts."""
    found: dict[tuple[object, ...], list[ScoreHistogram]] = {}
    for histogram in parts:
        key = (histogram.app, histogram.metric, histogram.slice, histogram.version, histogram.judge, histogram.rate)
        found.setdefault(key, []).append(histogram)
    return [_whole(some) for some in found.values()]


def packed(rows: Sequence[Sequence[float]] | Array) -> bytes:
    """Hundredths as `ScoreHistogram.bins` has them, from rows of k, number and sum.

    >>> hundredths([packed([(0, 2, 0.01), (99, 1, 1.0)]), packed([])]).tolist()
    [[0.0, 2.0, 0.01], [99.0, 1.0, 1.0]]
    """
    return np.asarray(rows, dtype="<f8").tobytes()


def hundredths(bins: Iterable[bytes]) -> Array:
    """Rows of k, number and sum: those of all parts, one after the other."""
    return np.frombuffer(b"".join(bins), dtype="<f8").reshape(-1, 3)


def _whole(parts: Sequence[ScoreHistogram]) -> ScoreHistogram:
    k, n, x = hundredths(histogram.bins for histogram in parts).T
    places, at = np.unique(k, return_inverse=True)
    return replace(
        parts[0],
        since=min(histogram.since for histogram in parts),
        until=max(histogram.until for histogram in parts),
        n=sum(histogram.n for histogram in parts),
        x=math.fsum(histogram.x for histogram in parts),
        x2=math.fsum(histogram.x2 for histogram in parts),
        bins=packed(np.stack([places, np.bincount(at, n), np.bincount(at, x)], axis=1)),
    )
