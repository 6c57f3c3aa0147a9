"""The scores of a selection: by topic, source, session, prompt or model, and as charts whose bars narrow it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cachetools import TTLCache
from markupsafe import Markup
from msgspec import Struct

from dashboards.web.addresses import explore, fields_without, topic_words
from dashboards.web.charts import drawn
from dashboards.web.format import iso
from dashboards.web.spread_sample import sampled_exchanges
from gaugeway.records import grouped
from gaugeway.storage.stores import Point, Query, Store, Summary
from monitors.alerting.stream import usable
from monitors.analysis.human_labels import Passings
from monitors.analysis.incident.reading import Namer, TopicReports, read_samples
from monitors.statistics.confidence_sequence import Level, confidence_sequence, level_of, mean_of
from monitors.statistics.weighted_mean import hajek_from_sums

MAX_REMEMBERED, FRESH_S = 32, 60.0
"""Sums by prompt or model that are remembered, for a minute."""

FIELDS = {"topic": "Topic", "source": "Source", "session": "Session", "prompt": "Prompt", "model": "Model"}
MAX_GROUPS = 100
"""Groups shown: those with the most scores."""
MAX_EXCHANGES = 1_000
"""Exchanges that are read to group them by topic, source or session: drawn from those of the selection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The scores with one value; `failed` of `n` fail the metric's threshold, None where that was not counted."""

    value: str
    words: str
    level: Level
    failed: int | None
    url: str


class Groups(Struct, frozen=True, kw_only=True):
    """The groups of a selection by one field, for one metric. `complete`: of all its scores.

    `more` groups are not shown; `without` scores have no value. `waiting`: topics are still being found. `read`
    exchanges were grouped, None for sums of all.
    """

    field: str
    metric: str
    rows: Sequence[Group] = ()
    more: int = 0
    without: int = 0
    complete: bool = True
    waiting: bool = False
    read: int | None = None


class Grouping:
    """Groups the scores of a selection; `fields` are those of its address."""

    def __init__(self, store: Store, reports: TopicReports, names: Namer, passing: Passings) -> None:
        self._store = store
        self._reports = reports
        self._names = names
        self._passing = passing
        self._sums: TTLCache[tuple[str | None, str | None, float, float, str], Sequence[Summary]]
        self._sums = TTLCache(MAX_REMEMBERED, FRESH_S)

    async def of_versions(self, query: Query, field: str, fields: Mapping[str, str]) -> Groups:
        """The groups by prompt or model from sums, for a selection by app, metric and time only."""
        rows, without = [], 0
        key = (query.app, query.metric, round(query.since / FRESH_S), round(query.until / FRESH_S), field)
        if (sums := self._sums.get(key)) is None:
            sums = self._sums[key] = await self._store.summary(query, by=field)
        for summary in sums:
            mean = level_of(hajek_from_sums(summary))
            if mean is None:
                continue
            if not summary.slice:
                without += mean.n
                continue
            rows.append(
                Group(
                    value=summary.slice,
                    words=summary.slice,
                    level=mean,
                    failed=None,
                    url=_url(fields, field, summary.slice),
                )
            )
        return _ranked(field, query.metric or "", rows, without, complete=True)

    async def of_points(
        self,
        points: Sequence[Point],
        field: str,
        fields: Mapping[str, str],
        *,
        base: Query,
        complete: bool,
        within_s: float,
    ) -> Groups:
        """The groups of scores that were read, of the metric that most of them are of."""
        scored = [point for point in points if usable(point)]
        metric = next((name for name, _ in Counter(point.metric for point in scored).most_common(1)), "")
        first: dict[str, Point] = {}
        for point in scored:
            if point.metric == metric:
                first.setdefault(point.sample_id, point)
        read = sampled_exchanges(list(first.values()), MAX_EXCHANGES)
        values = await self._values(read, field, base, within_s)
        if values is None:
            return Groups(field=field, metric=metric, waiting=True)
        by_value = grouped((value, point) for point in read for value in values.get(point.sample_id, ()))
        rule = self._passing(metric)
        kept = {**fields, "metric": metric}
        if field == "topic":  # topics belong to the exchanges that they were found in
            kept |= {"since": iso(base.since), "until": iso(base.until)}
        rows = [
            Group(
                value=value,
                words=topic_words(value) if field == "topic" else value,
                level=found,
                failed=sum(not rule.passes(member.value or 0.0) for member in some),
                url=_url(kept, field, value),
            )
            for value, some in by_value.items()
            if (found := level_of(mean_of(some), confidence_sequence)) is not None
        ]
        without = sum(not values.get(point.sample_id) for point in read)
        return _ranked(field, metric, rows, without, complete=complete and len(read) == len(first), read=len(read))

    async def _values(
        self, points: Sequence[Point], field: str, base: Query, within_s: float
    ) -> Mapping[str, Sequence[str]] | None:
        """The values of each exchange by id; None while topics are being found."""
        if field == "model":
            return {point.sample_id: (point.model,) for point in points}
        if field == "prompt":
            return {point.sample_id: (point.prompt,) for point in points if point.prompt}
        ids = [point.sample_id for point in points]
        if field == "topic":
            topics = await self._reports.topics(base, within_s=within_s)
            if topics is None:
                return None
            return {name: (topic,) for name, topic in (await self._reports.of(topics, ids)).items()}
        samples = await read_samples(self._store, ids)
        if field == "session":
            return {name: (sample.session,) for name, sample in samples.items() if sample.session}
        return {
            name: tuple(dict.fromkeys(source for source in self._names(sample) if source))
            for name, sample in samples.items()
        }


def _url(fields: Mapping[str, str], field: str, value: str) -> str:
    return explore(fields_without(fields, "group", "after") | {field: value})


def _ranked(
    field: str, metric: str, rows: list[Group], without: int, *, complete: bool, read: int | None = None
) -> Groups:
    rows.sort(key=lambda group: (-group.level.n, group.value))
    shown = rows[:MAX_GROUPS]
    return Groups(
        field=field,
        metric=metric,
        rows=shown,
        more=len(rows) - len(shown),
        without=without,
        complete=complete,
        read=read,
    )


BINS, TIME_BINS = 20, 40
STEPS_S = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000)
_LABELS = 4


class Bar(Struct, frozen=True, kw_only=True):
    """A bar: `n` scores, `low` of which fail their metric's threshold; `url` is the selection narrowed to them.

    `at`: when it begins (ISO time), "" for a bar that is not about a time.
    """

    label: str
    words: str
    n: int
    low: int
    url: str
    at: str = ""


class FilterChart(Struct, frozen=True, kw_only=True):
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
    values = grouped((point.metric, point.value) for point in points if point.value is not None)
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
    svg = filter_bars(bars, f"Scores of {metric}. {desc}", end="1.00")
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


def filter_bars(bars: Sequence[Bar], title: str, *, end: str = "") -> Markup:
    """Draw the bars. Labels stand below their left edges, and `end` below the right edge of the last one."""
    every, tallest = max(1, math.ceil(len(bars) / _LABELS)), max([1, *(bar.n for bar in bars)])
    return drawn("filter_bars", bars=bars, title=title, end=end, every=every, tallest=tallest)
