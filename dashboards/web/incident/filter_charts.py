"""Charts of a selection whose bars are links that narrow it: the distribution of scores, and scores over time. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from dashboards.web.charts import drawn
from dashboards.web.format import iso
from dashboards.web.incident.links import explore, fields_without
from gaugeway.storage.stores import Point
from monitors.analysis.human_labels import Passings

BINS, TIME_BINS = 20, 40
STEPS_S = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000)
_LABELS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar: `n` scores, `low` of which fail their metric's threshold; `url` is the selection narrowed to them.

    `at`: when it begins (ISO time), "" for a bar that is not about a time.
    """

    label: str
    words: str
    n: int
    low: int
    url: str
    at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterChart:
    """A chart with its bars, for the table behind it; `mean` is unweighted."""

    name: str
    n: int
    mean: float
    bars: Sequence[Bar]
    svg: Markup


def distributions(
    points: Sequence[Point], fields: Mapping[str, str], passing: Passings, most: int
) -> list[FilterChart]:
    """The distribution of each metric's scores, the most frequent metric first; a click on a bar selects its scores."""
    values: dict[str, list[float]] = {}
    for point in points:
        if point.value is not None:
            values.setdefault(point.metric, []).append(point.value)
    ranked = sorted(values.items(), key=lambda pair: (-len(pair[1]), pair[0]))[:most]
    return [_distribution(metric, some, fields, passing) for metric, some in ranked]


def _distribution(metric: str, some: Sequence[float], fields: Mapping[str, str], passing: Passings) -> FilterChart:
    rule = passing(metric)
    parts: list[list[float]] = [[] for _ in range(BINS)]
    for value in some:
        parts[min(BINS - 1, max(0, math.floor(value * BINS + 1e-9)))].append(value)
    bars = []
    for index, part in enumerate(parts):
        low, high = index / BINS, (index + 1) / BINS
        narrowed = {"metric": metric, "least": f"{low:g}" if index else "", "outcome": ""}
        narrowed["most"] = "" if index == BINS - 1 else f"{high - 1e-9:.9f}"
        bars.append(
            Bar(
                label=f"{low:.2f}",
                words=f"{low:.2f} to {high:.2f}",
                n=len(part),
                low=sum(not rule.passes(value) for value in part),
                url=explore(fields_without(fields, "after") | narrowed),
            )
        )
    mean, tallest = sum(some) / len(some), max(bars, key=lambda bar: bar.n)
    desc = f"{len(some)} scores, unweighted mean {mean:.2f}; the largest bin, {tallest.words}, has {tallest.n}"
    svg = filter_bars(bars, f"Scores of {metric}. {desc}", end="1.00", major=2)
    return FilterChart(name=metric, n=len(some), mean=mean, bars=bars, svg=svg)


def over_time(
    points: Sequence[Point], since: float, until: float, fields: Mapping[str, str], passing: Passings
) -> FilterChart | None:
    """Scores by time, with those that fail their threshold; a click on a bar selects its time. None without scores."""
    scored = [point for point in points if point.value is not None]
    if not scored:
        return None
    step = next((seconds for seconds in STEPS_S if (until - since) / seconds <= TIME_BINS), STEPS_S[-1])
    first = math.floor(since / step)
    parts: list[list[Point]] = [[] for _ in range(min(TIME_BINS + 2, math.ceil(until / step) - first))]
    for point in scored:
        parts[min(len(parts) - 1, max(0, math.floor(point.started_at / step) - first))].append(point)
    bars = []
    for index, part in enumerate(parts):
        start = float((first + index) * step)
        begin, end = iso(max(start, math.floor(since))), iso(start + step)
        bars.append(
            Bar(
                label=begin[11:16] if step < STEPS_S[12] else begin[5:10],
                words=f"{begin} to {end}",
                n=len(part),
                low=sum(not passing(point.metric).passes(point.value or 0.0) for point in part),
                url=explore(fields_without(fields, "after") | {"since": begin, "until": end}),
                at=begin,
            )
        )
    mean = sum(point.value or 0.0 for point in scored) / len(scored)
    low = sum(bar.low for bar in bars)
    svg = filter_bars(bars, f"Scores over time. {len(scored)} scores, {low} of which fail their metric's threshold")
    return FilterChart(name="Scores over time", n=len(scored), mean=mean, bars=bars, svg=svg)


def filter_bars(bars: Sequence[Bar], title: str, *, end: str = "", major: int = 3) -> Markup:
    """Draw the bars.

    Labels stand below the left edges of their bars, and `end` below the right edge of the last one. Narrow charts
    show only one in `major` of them, and the end.
    """
    every, tallest = max(1, math.ceil(len(bars) / _LABELS)), max([1, *(bar.n for bar in bars)])
    return drawn("filter_bars", bars=bars, title=title, end=end, every=every, major=major, tallest=tallest)
