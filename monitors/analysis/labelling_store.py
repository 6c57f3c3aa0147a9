"""What the store has of people's labels, and the scores beside them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from monitors.analysis.human_labels import HALF_WIDTH, Labelled, Passing, Passings, label
from monitors.metrics import LOWER_IS_BETTER, lower_is_better
from monitors.metrics.registry import THRESHOLD, THRESHOLD_IF_LOW_IS_GOOD, Catalogue
from monitors.storage.stores import Point, Query, Store

WINDOW_S = 30 * 86_400.0
_STEP_S = 86_400.0


def default_passing(metric: str) -> Passing:
    """The thresholds that hold where the configuration has none."""
    flipped = metric.partition("~")[0] in LOWER_IS_BETTER
    return Passing(threshold=THRESHOLD_IF_LOW_IS_GOOD if flipped else THRESHOLD, flipped=flipped)


def passings(catalogue: Catalogue) -> Passings:
    """When scores of the metrics that are switched on pass; of others, what holds without a configuration."""
    known = {
        one.metric.name: Passing(threshold=one.threshold, flipped=lower_is_better(one.metric))
        for one in catalogue.enabled
    }
    return lambda metric: known.get(metric.partition("~")[0]) or default_passing(metric)


async def labelled(
    store: Store, query: Query, *, passing: Passings = default_passing, half_width: float = HALF_WIDTH
) -> list[Labelled]:
    """Look at a window: everything that has labels and, if the query names a metric, that metric in any case."""
    rated = await store.ratings(query)
    streams = {(one.app, one.metric) for one in rated}
    if query.metric is None and not streams:
        return []
    added_up = await store.scored(query)
    if added_up is not None:
        sums = [one for one in added_up if query.metric is not None or (one.app, one.metric) in streams]
        return await asyncio.to_thread(label, (), rated, passing=passing, half_width=half_width, scored=sums)
    points: list[Point] = []
    metrics = {query.metric} if query.metric is not None else {metric for _, metric in streams}
    for metric in sorted(metrics):
        points += [
            point
            for point in await scores(store, replace(query, metric=metric))
            if query.metric is not None or (point.app, metric) in streams
        ]
    # hundreds of thousands of scores: whatever else runs here goes on meanwhile
    return await asyncio.to_thread(label, points, rated, passing=passing, half_width=half_width)


async def scores(store: Store, query: Query) -> list[Point]:
    """The scores that a query asks for, a day at a time so that a long span does not hold the store."""
    found: list[Point] = []
    at = query.since
    while at < query.until:
        until = min(at + _STEP_S, query.until)
        found += await store.series(replace(query, since=at, until=until, outcome="score"))
        at = until
    return found
