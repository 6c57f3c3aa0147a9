"""Kept minutes give the sums of the rows, also while scores come late, and little is read again."""

import asyncio
import itertools
import math
import random

import pytest

from gaugeway.storage.stores import Summary
from monitors.analysis import recent_sums
from monitors.analysis.recent_sums import MOST_KEPT, REREAD_S, SETTLED_S, RecentSums

NOW = 1_800_000_123.0


class Rows:
    """A store of (started_at, app, score); `read` are the seconds that each reading covered, without the future."""

    def __init__(self, now=NOW):
        self.now, self.rows, self.read = now, [], []

    async def summary(self, query, by=""):
        self.read.append(min(query.until, self.now) - query.since)
        found = {}
        for at, app, score in self.rows:
            if query.since <= at < query.until:
                found.setdefault(app, []).append(score)
        return [summary(app, scores) for app, scores in found.items()]

    def direct(self, window_s=3600.0):
        self.read.clear()
        return as_sums(asyncio.run(self.summary(Window(self.now - window_s, self.now + 86_400.0))))


class Window:
    def __init__(self, since, until):
        self.since, self.until = since, until


def summary(app, scores):
    x, x2 = math.fsum(scores), math.fsum(one * one for one in scores)
    n = len(scores)
    return Summary(app=app, metric="m", n=n, failed=0, w=n, wx=x, w2=n, w2x=x, w2x2=x2)


def as_sums(found):
    return {one.app: (one.n, pytest.approx(one.wx), pytest.approx(one.w2x2)) for one in found}


def recent(sums, rows, waiting=None):
    rows.read.clear()
    return {one.app: (one.n, one.wx, one.w2x2) for one in asyncio.run(sums.summary(rows.now, waiting))}


def whole(sums, rows, waiting=None):
    rows.read.clear()
    return {one.app: (one.n, one.wx, one.w2x2) for one in asyncio.run(sums.since_whole_hour(rows.now, waiting))}


@pytest.mark.parametrize("window_s", [60.0, 400.0, 3600.0, 7200.0, 10_000.0, 86_400.0])
@pytest.mark.parametrize("every_s", [2.0, 61.7])
def test_the_sums_are_those_of_the_rows_while_scores_come_in(window_s, every_s):
    drawn = random.Random(7)
    rows = Rows()
    sums = RecentSums(rows, window_s)
    rows.rows = [(NOW - drawn.uniform(0.0, 1.2 * window_s), drawn.choice("abc"), drawn.random()) for _ in range(500)]
    for _ in range(40):
        rows.now += every_s
        new = [(rows.now - drawn.uniform(0.0, SETTLED_S - every_s), drawn.choice("abcd"), drawn.random()) for _ in "12"]
        rows.rows += new
        assert recent(sums, rows) == rows.direct(window_s)


@pytest.mark.full
@pytest.mark.parametrize("window_s", [60.0, 400.0, 3600.0, 7200.0, 10_000.0, 86_400.0])
def test_the_sums_since_the_whole_hour_are_those_of_the_rows_too(window_s):
    drawn = random.Random(8)
    rows = Rows()
    sums = RecentSums(rows, window_s)
    rows.rows = [(NOW - drawn.uniform(0.0, window_s + 7200.0), drawn.choice("abc"), drawn.random()) for _ in range(900)]
    for step in range(80):
        rows.now += 97.0
        rows.rows += [
            (rows.now - drawn.uniform(0.0, SETTLED_S - 97.0), drawn.choice("abcd"), drawn.random()) for _ in "1"
        ]
        waiting = drawn.choice([None, rows.now - 30.0, rows.now - 1.1 * window_s])
        if step % 4 == 0:
            since = sums.whole_hour(rows.now)
            assert since % 3600.0 == 0.0
            assert window_s <= rows.now - since <= max(window_s, 900.0) + 3600.0
            assert whole(sums, rows, waiting) == rows.direct(rows.now - since)
        else:
            assert recent(sums, rows, waiting) == rows.direct(window_s)


@pytest.mark.parametrize("scores", [1, 5])
def test_minutes_from_before_the_window_are_kept_if_they_hold_many_scores(scores, monkeypatch):
    monkeypatch.setattr(recent_sums, "_FEW", 5)
    rows = Rows()
    sums = RecentSums(rows, 3600.0)
    rows.rows = [(NOW + 60.0 * minute, "a", 0.5) for minute in range(-130, 60) for _ in range(scores)]
    whole(sums, rows)
    while rows.now % 3600.0 < 2700.0 or rows.now < NOW + 3600.0:
        rows.now += 60.0
        recent(sums, rows)
    rows.rows.append((rows.now - 4000.0, "late", 0.5))
    found = whole(sums, rows)
    few = scores < 5
    assert (found == rows.direct(rows.now - sums.whole_hour(rows.now))) == few
    assert (whole(sums, rows) and sum(rows.read) > 2700.0) == few


@pytest.mark.full
def test_the_minutes_of_the_window_take_the_place_of_earlier_ones():
    rows = Rows()
    sums = RecentSums(rows, 3600.0)
    rows.rows = [(NOW - 60.0 * minute, f"app-{app}", 0.5) for minute in range(120) for app in range(MOST_KEPT // 70)]
    whole(sums, rows)
    for _ in range(2 * int(REREAD_S // 60.0)):
        rows.now += 60.0
        recent(sums, rows)
    assert sum(rows.read) <= SETTLED_S + 9 * 60.0
    assert recent(sums, rows) == rows.direct()


def test_little_is_read_again():
    rows = Rows()
    sums = RecentSums(rows, 3600.0)
    recent(sums, rows)
    assert sum(rows.read) == pytest.approx(3600.0)
    for _ in range(600):
        rows.now += 2.0
        recent(sums, rows)
        assert sum(rows.read) <= SETTLED_S + 4 * 60.0
        assert len(rows.read) <= 5


def test_minutes_since_the_oldest_sample_that_waits_are_read_each_time():
    rows = Rows()
    sums = RecentSums(rows, 3600.0)
    recent(sums, rows)
    waiting = NOW - 2000.0
    for late in range(5):
        rows.now += 2.0
        recent(sums, rows, waiting)
        rows.rows.append((waiting + 100.0 * late, "late", 0.5))
        assert recent(sums, rows, waiting) == rows.direct()
    assert recent(sums, rows) == rows.direct(), "what was stored while it waited is counted when it has left the queue"


def test_a_score_that_comes_much_later_is_counted_when_its_minute_is_read_again():
    for age_s, every_s in itertools.product((SETTLED_S + 100.0, 1500.0, 2000.0), (2.0, 10.0, 61.0)):
        rows = Rows()
        sums = RecentSums(rows, 3600.0)
        recent(sums, rows)
        rows.rows.append((NOW - age_s, "late", 0.5))
        counted = []
        while rows.now < NOW + 1.5 * REREAD_S:
            rows.now += every_s
            counted.append("late" in recent(sums, rows))
        assert all(counted[counted.index(True) :])
        assert counted.index(True) * every_s <= REREAD_S + every_s


def test_minutes_are_read_again_a_few_at_a_time():
    rows = Rows()
    sums = RecentSums(rows, 3600.0)
    recent(sums, rows)
    again = []
    for _ in range(40):
        rows.now += 61.0
        recent(sums, rows)
        again.append(sum(rows.read))
    assert max(again) <= SETTLED_S + 9 * 60.0


def test_a_clock_that_is_set_back_reads_all_again():
    rows = Rows()
    sums = RecentSums(rows, 3600.0)
    recent(sums, rows)
    rows.rows.append((NOW - 2000.0, "late", 0.5))
    rows.now -= 100.0
    assert recent(sums, rows) == rows.direct()


@pytest.mark.full
def test_no_more_sums_are_kept_than_the_limit():
    rows = Rows()
    sums = RecentSums(rows, 3600.0)
    apps = MOST_KEPT // 50
    rows.rows = [(NOW - minute * 60.0, f"app-{app}", 0.5) for minute in range(60) for app in range(apps)]
    recent(sums, rows)
    recent(sums, rows)
    assert SETTLED_S + 120.0 < sum(rows.read) < 1200.0
