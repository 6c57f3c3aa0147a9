"""What the description of an alert reads from a busy app, on the real embedded store."""

from __future__ import annotations

import asyncio
import random
import re
from dataclasses import replace
from itertools import pairwise

import pytest

from gaugeway.records import Evaluation, Sample, Score
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.spread_points import PARTS
from monitors.alerting import description
from monitors.alerting.description import Describer, usual_times
from tests.support.alerting import T0
from tests.support.receivers import alert

HOUR_S = 3600.0


def value_at(seconds):
    """Good before the onset but for the last minute, bad since but for the last minute."""
    last_minute = (-60.0 <= seconds < 0.0) or seconds >= HOUR_S - 60.0
    return 0.9 if (seconds < 0.0) != last_minute else 0.1


TIMES = [
    *(10.0 * number for number in range(-720, -6)),
    *(0.2 * number - 60.0 for number in range(300)),
    *(10.0 * number for number in range(354)),
    *(HOUR_S - 60.0 + 0.2 * number for number in range(300)),
]
"""When exchanges began, in seconds after the onset: many of them in the last minute before and since."""


async def fill(store):
    for number, seconds in enumerate(TIMES):
        sample = Sample(
            id=f"x{number:05}",
            started_at=T0 + seconds,
            app="shop",
            question=f"Where is parcel {number}?",
        )
        outcome = Score(value_at(seconds))
        await store.add(sample, [Evaluation(sample_id=sample.id, metric="faithfulness", version="1", outcome=outcome)])


class Watched(SQLiteStore):
    """A store that remembers whose questions were read."""

    asked = ()

    async def questions(self, sample_ids):
        self.asked = (*self.asked, sample_ids)
        return await super().questions(sample_ids)


@pytest.fixture
def described(tmp_path, monkeypatch):
    """The description of an alert of which 360 scores and 90 questions are read on each side, and these questions."""
    monkeypatch.setattr(description, "MAX_POINTS", 360)
    monkeypatch.setattr(description, "_TOPICS_FROM", 90)

    async def main():
        store = Watched(tmp_path / "store.db")
        await fill(store)
        about = alert(finding=replace(alert().finding, onset=T0), mean_before=None, mean_since=None)
        try:
            found = await Describer(store, lower_is_better=lambda _: False).describe(about, T0 + HOUR_S, ())
            return found, store.asked
        finally:
            await store.aclose()

    return asyncio.run(main())


def test_the_means_are_those_of_the_whole_time_not_of_the_last_minute(described):
    found, _ = described
    assert found.finding.n == 360
    assert found.mean_before > 0.8
    assert found.mean_since < 0.2
    low, high = found.ci
    assert low <= found.mean_since <= high


@pytest.mark.full
def test_the_cause_compares_the_whole_time(described):
    found, _ = described
    before, since = re.search(r"0\.(\d\d) to 0\.(\d\d)", found.cause_detail).groups()
    assert (int(before) > 80, int(since) < 20) == (True, True)


def test_topics_are_found_in_questions_of_the_whole_time(described):
    _, (before, since, *_) = described
    for ids, since_s, until_s in ((before, -7200.0, 0.0), (since, 0.0, HOUR_S)):
        times = sorted(TIMES[int(one[1:])] for one in ids)
        assert len(times) == 90
        assert max(b - a for a, b in pairwise([since_s, *times, until_s])) < 1.5 * (until_s - since_s) / PARTS


@pytest.fixture
def busy(tmp_path):
    """A function that describes a drop at T0, with `halved` passages, in traffic of which an hour was an incident."""

    async def main(*, halved, earlier):
        store = SQLiteStore(tmp_path / "busy.db")
        rng = random.Random(5)
        for number in range(600):
            seconds = 24.0 * (number - 300)
            low = seconds >= 0.0 or -5400.0 <= seconds < -1800.0
            sample = Sample(id=f"x{number:05}", started_at=T0 + seconds, app="shop", question="Where?")
            values = {
                "faithfulness": (0.4 if low else 0.9) + rng.uniform(-0.1, 0.1),
                "context_relevancy": 0.8 + rng.uniform(-0.1, 0.1),
                "contexts_per_answer": rng.uniform(0.0, 0.2) if halved and seconds >= 0.0 else rng.uniform(0.4, 0.6),
            }
            scores = [
                Evaluation(sample_id=sample.id, metric=name, version="1", outcome=Score(value))
                for name, value in values.items()
            ]
            await store.add(sample, scores)
        about = alert(finding=replace(alert().finding, onset=T0), mean_before=None, mean_since=None)
        try:
            return await Describer(store, lower_is_better=lambda _: False).describe(about, T0 + 7200.0, (), earlier)
        finally:
            await store.aclose()

    return lambda **options: asyncio.run(main(**options))


def test_signals_of_the_retrieval_are_read_for_the_cause_of_a_metric(busy):
    found = busy(halved=True, earlier=())
    assert found.likely_cause == "retrieval"
    assert "contexts_per_answer fell" in found.cause_detail


def test_signals_take_no_places_of_the_metrics(busy, monkeypatch):
    monkeypatch.setattr(description, "MAX_POINTS", 240)
    assert busy(halved=True, earlier=()).finding.n == 120, "beside the relevance of each exchange"


def test_an_earlier_incident_is_no_part_of_what_was_usual(busy):
    found = busy(halved=False, earlier=[(T0 - 5400.0, T0 - 1800.0)])
    assert found.mean_before == pytest.approx(0.9, abs=0.02)


def test_usual_times_are_a_day_without_incidents_of_at_most_a_week():
    day = description.DAY_S
    assert usual_times(9 * day, []) == [(8 * day, 9 * day)]
    assert usual_times(9 * day, [(8.5 * day, 9 * day), (8.25 * day, 8.75 * day)]) == [(7.25 * day, 8.25 * day)]
    assert usual_times(9 * day, [(0.0, 8.75 * day)]) == [(8.75 * day, 9 * day)]
    assert usual_times(9 * day, [(0.0, 9 * day)]) == [(8 * day, 9 * day)]
    many = [(9 * day - 600.0 * n, 9 * day - 600.0 * n + 300.0) for n in range(1, 100)]
    assert len(usual_times(9 * day, many)) == description.MAX_TIMES
