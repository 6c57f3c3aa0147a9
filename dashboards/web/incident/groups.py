"""The scores of a selection by topic, source, session, prompt or model: number, mean with interval, and failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cachetools import TTLCache

from dashboards.web.format import iso
from dashboards.web.incident.links import explore, fields_without, topic_words
from dashboards.web.readings.spread_sample import drawn
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
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
        read = drawn(list(first.values()), MAX_EXCHANGES)
        values = await self._values(read, field, base, within_s)
        if values is None:
            return Groups(field=field, metric=metric, waiting=True)
        by_value: dict[str, list[Point]] = {}
        for point in read:
            for value in values.get(point.sample_id, ()):
                by_value.setdefault(value, []).append(point)
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
