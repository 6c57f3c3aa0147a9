"""Estimates over a seeded store: sums, intervals, windows, histograms, trends, and what an incident has in common."""

from __future__ import annotations

import asyncio

import numpy as np

from gaugeway.storage.stores import Query
from gaugeway.text.passage_identity import passage_names
from monitors.analysis.incident.reading import incident_report
from monitors.analysis.quality import estimate
from monitors.analysis.recent_sums import GrowingWindow, RecentSums
from monitors.analysis.series import SeriesQuery, SeriesReader
from tests.golden.record import NOW, brief, plain
from tests.golden.seeded import DAY_S, monitors

HOUR_S, WITHIN_S = 3600.0, 60.0
SPANS = {"an hour": HOUR_S, "a day": DAY_S, "three days": 3 * DAY_S}
GROUPS = ("", "model", "prompt", "tag:tenant")


async def sums(store):
    """The store's own sums of each span; asked twice, as the second time what was added up is kept."""
    for span, length in SPANS.items():
        query = Query(since=NOW - length, until=NOW)
        for by in GROUPS:
            first, again = await store.summary(query, by), await store.summary(query, by)
            assert sorted(map(str, map(plain, first))) == sorted(map(str, map(plain, again)))
            for found in estimate(first, window_s=length):
                yield f"{span} by {by or 'app'}: {found.app} {found.metric} {found.slice}", found
        for name in ("scored", "outcomes"):
            rows = await getattr(store, name)(query)
            yield f"{span}: {name}", sorted(rows, key=repr)
        yield f"{span}: paired", await store.paired(query, "lexical_groundedness")
        spread = await store.spread(Query(since=NOW - length, until=NOW, app="desk"), "model", WITHIN_S)
        parts = [[part.slice, part.judge, part.n, part.x, np.frombuffer(part.bins).tolist()] for part in spread.parts]
        yield f"{span}: spread", [brief(part) for part in parts]
        yield f"{span}: ratings", brief(sorted(await store.ratings(query), key=repr))


async def windows(store):
    """Estimates of the configured window, grown where there are few scores."""
    for window_s in (HOUR_S, 6 * HOUR_S):
        recent = RecentSums(store, window_s)
        found = estimate(await recent.summary(NOW), window_s=window_s)
        for quality in await GrowingWindow(store, recent, window_s).grown(found, NOW, {}):
            yield f"window of {window_s / HOUR_S:g} h: {quality.app} {quality.metric}", quality


async def trends(store):
    """Means over the steps of a time, with the total of each group."""
    reader = SeriesReader(store, clock=lambda: NOW)
    for app, metric in (("desk", "faithfulness"), ("desk", "lexical_groundedness"), ("shop", "faithfulness")):
        for by in GROUPS:
            query = SeriesQuery(app=app, metric=metric, by=by, since=NOW - 2 * DAY_S, until=NOW, step_s=6 * HOUR_S)
            for group in (await reader.read(query, WITHIN_S)).groups:
                points = [[point.at, point.n, point.mean, point.ci_low, point.ci_high] for point in group.points]
                yield f"trend by {by or 'app'}: {app} {metric} {group.slice}", {"total": group.total, "points": points}


async def incidents(parts):
    """What the bad answers of each alert have in common."""
    for alert in parts.engine.alerts():
        report = await incident_report(
            parts.store, alert, names=lambda sample: passage_names(sample, salt="golden"), now=NOW
        )
        yield f"incident: {alert.app} {alert.metric} {alert.slice}", report


async def all_estimates():
    found = {}
    async with monitors() as world:
        store = world.parts.store
        for some in (sums(store), windows(store), trends(store), incidents(world.parts)):
            found |= {name: value async for name, value in some}
    return found


def fresh():
    return asyncio.run(all_estimates())
