"""A release that names prompts otherwise: the same prompt's new version is no change of the prompt."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from dashboards.web.views.compare import start
from gaugeway.records import PROMPT_SCHEME, Evaluation, Sample, Score
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.stores import Query
from monitors.alerting.changes import Version, Versions
from monitors.alerting.description import Describer
from monitors.analysis.incident.reading import incident_report, scored_points
from monitors.analysis.series import marks_of
from tests.support.alerting import T0
from tests.support.receivers import alert

OLD, NEW, NEWER = "51c2aa0017fe", f"{PROMPT_SCHEME}9f3ab2c10d44", f"{PROMPT_SCHEME}07b1cc91a2d3"
N = 300


async def fill(store, before, since):
    """Scores fall at T0, when the prompt version `since` appears beside the one `before`."""
    for number in range(-N, N):
        new = number >= 0 and number % 4 > 0
        value = (0.2 if new else 0.9) + (number % 7) / 100
        prompt = since if new else before
        sample = Sample(
            id=f"x{number + N:05}", started_at=T0 + 10.0 * number, app="shop", prompt=prompt, question="Why?"
        )
        outcome = Evaluation(sample_id=sample.id, metric="faithfulness", version="1", outcome=Score(value))
        await store.add(sample, [outcome])


def seen(tmp_path, before, since):
    """What the alert, the incident's report and the tracker of versions say."""

    async def main():
        store = SQLiteStore(tmp_path / "store.db")
        try:
            await fill(store, before, since)
            about = alert(finding=replace(alert().finding, onset=T0), mean_before=None, mean_since=None)
            described = await Describer(store, lower_is_better=lambda _: False).describe(about, T0 + 3600.0, ())
            report = await incident_report(store, described, names=lambda _: (), now=T0 + 3600.0)
            span = Query(since=T0 - 3600.0, until=T0 + 3600.0, metric="faithfulness", app="shop")
            points, _ = await scored_points(store, span, 4 * N)
            return described, report, sorted(points, key=lambda point: point.started_at)
        finally:
            await store.aclose()

    return asyncio.run(main())


@pytest.mark.parametrize(("before", "since", "changed"), [(OLD, NEW, False), (NEW, NEWER, True)])
def test_only_versions_of_one_scheme_are_a_cause_a_difference_or_a_mark(tmp_path, before, since, changed):
    described, report, points = seen(tmp_path, before, since)
    assert (since in described.cause_detail) is changed
    comparison = report.comparison
    fields = {one.trait.field for one in (*comparison.differences, *comparison.changes)}
    assert ("prompt" in fields) is changed
    versions = Versions()
    versions.notice([point for point in points if point.started_at < T0])
    upgraded = Versions()
    upgraded.loads(versions.dumps())
    upgraded.notice([point for point in points if point.started_at >= T0])
    marks, _ = marks_of(upgraded.changes(), (), app="shop", metric="faithfulness", since=T0 - 1e4, until=T0 + 1e4)
    assert [mark.value for mark in marks] == ([since] if changed else [])


def test_a_change_after_the_upgrade_is_a_mark_and_what_compare_begins_with():
    times = {OLD: 1.0, NEW: 2.0, NEWER: 3.0}
    found = [Version(app="a", kind="prompt", value=one, first_seen=at, exchanges=30) for one, at in times.items()]
    assert (start(found, by="prompt").a, start(found, by="prompt").b) == (NEW, NEWER)
    assert start(found[:2]).by == "model"
