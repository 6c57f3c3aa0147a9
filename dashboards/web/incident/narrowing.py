"""Filters that no store can apply: topics, which are found in the questions, and passages named by a hash."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dashboards.web.incident.explore_search import Cursor, Found, search, together
from gaugeway.storage.stores import Point, Query, Store
from monitors.analysis.incident.reading import Namer, TopicReports, Topics, read_samples

MAX_POINTS = 2_000
"""Evaluations of a selection that these filters look at, the first ones in its order."""
_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowed:
    """What is left of a selection. `waiting`: its topics are still being found. `unknown`: none of them is this one.

    `every` are all points that are left, `found` is a page of them. `cut`: the selection has more than was looked at.
    """

    found: Found = field(default_factory=Found)
    every: Sequence[Point] = ()
    waiting: bool = False
    unknown: bool = False
    cut: bool = False


class Narrowing:
    """Applies the filters to points. `query` selects everything else, `live` says that it ends now."""

    def __init__(
        self, store: Store, reports: TopicReports, names: Namer, query: Query, *, topic: str, source: str, live: bool
    ) -> None:
        self._store = store
        self._reports = reports
        self._names = names
        self._query = query
        self._topic = topic
        self._source = source
        self._base = topic_query(query, live=live)

    async def page(self, *, after: Cursor | None, rows: int, budget_s: float, within_s: float) -> Narrowed:
        """A page of what is left."""
        topics = await self._topics(within_s) if self._topic else None
        if self._topic and topics is None:
            return Narrowed(waiting=True)
        looked = await search(
            self._store, self._query, after=None, wanted=MAX_POINTS, budget_s=budget_s, clock=time.monotonic
        )
        every = await self.keep(looked.points, topics)
        groups = together(every)
        start = after.skip if after is not None else 0
        page = [point for some in groups[start : start + rows] for point in some]
        following = Cursor(at=0.0, skip=start + rows) if len(groups) > start + rows else None
        return Narrowed(
            found=Found(points=page, after=following, since=looked.since),
            every=every,
            unknown=topics is not None and self._topic not in topics.topic.values() and not every,
            cut=looked.after is not None,
        )

    async def keep(self, points: Sequence[Point], topics: Topics | None = None) -> list[Point]:
        """The points of exchanges with the topic and the source."""
        if self._topic:
            topics = topics or await self._topics(math.inf)
            topic = await self._reports.of(topics, [point.sample_id for point in points]) if topics is not None else {}
            points = [point for point in points if topic.get(point.sample_id) == self._topic]
        if self._source:
            samples = await read_samples(self._store, [point.sample_id for point in points])
            got = {name for name, sample in samples.items() if self._source in self._names(sample)}
            points = [point for point in points if point.sample_id in got]
        return list(points)

    async def _topics(self, within_s: float) -> Topics | None:
        """The topics of the selection; those of the whole app where the topic is none of these."""
        deadline = time.monotonic() + within_s
        found = await self._reports.topics(self._base, within_s=within_s)
        if found is not None and self._topic not in found.topic.values():
            wider = replace(self._base, model=None, prompt=None, tag=None)
            if wider != self._base:
                found = await self._reports.topics(wider, within_s=max(0.0, deadline - time.monotonic()))
        return found


def topic_query(query: Query, *, live: bool) -> Query:
    """The query whose exchanges the topics of a selection are found in: by its app, metric, versions and time.

    The time of a selection that ends now is rounded to minutes, so that its topics can be kept for one.
    """
    since, until = query.since, query.until
    if live:
        since, until = math.floor(since / _MINUTE_S) * _MINUTE_S, math.ceil(until / _MINUTE_S) * _MINUTE_S
    return Query(
        since=since,
        until=until,
        metric=query.metric,
        without=query.without,
        app=query.app,
        model=query.model,
        prompt=query.prompt,
        tag=query.tag,
    )
