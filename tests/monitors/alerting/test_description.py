"""What the description of an alert reads from a busy app, on the real embedded store."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from itertools import pairwise

import pytest

from monitors.alerting import description
from monitors.alerting.description import Describer
from monitors.records import Evaluation, Sample, Score
from monitors.storage.spread_points import PARTS
from monitors.storage.stores.sqlite.store import SQLiteStore
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
