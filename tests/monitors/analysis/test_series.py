"""A metric over time: steps, means with their basis, groups, what is read again, and what is said if time runs out."""

from __future__ import annotations

import asyncio
import random
import time

import pytest
from msgspec.structs import replace as replace_struct

from gaugeway.records import Alert, Evaluation, Finding, Sample, Score
from gaugeway.settings.shared import Rule
from gaugeway.storage.stores import Query, Summary
from monitors.alerting.changes import Version
from monitors.alerting.engine import StreamStatus
from monitors.analysis import series
from monitors.analysis.quality import estimate
from monitors.analysis.series import STEPS_S, SeriesQuery, SeriesReader, chosen_step, marks_of, reference_lines
from tests.support.stores import store_in

NOW = 1_790_000_000.0
HOUR = 3600.0
DAY = 86_400.0


async def fill(store, count, *, since=NOW - DAY, until=NOW, app="shop", metric="faithfulness", seed=1, models=("m",)):
    """Scores spread over a time; returns (at, value, rate, model) of each."""
    draw, made = random.Random(seed), []
    for index in range(count):
        at = since + (until - since) * (index + 0.5) / count
        value, rate, model = round(draw.random(), 3), draw.choice([1.0, 0.5]), draw.choice(models)
        sample = Sample(id=f"{app}-{metric}-{seed}-{index}", started_at=at, app=app, model=model)
        one = Evaluation(sample_id=sample.id, metric=metric, version="1", outcome=Score(value), rate=rate)
        await store.add(sample, [one])
        made.append((at, value, rate, model))
    return made


def query(**changes):
    fields = {"app": "shop", "metric": "faithfulness", "since": NOW - DAY, "until": NOW, "step_s": 900.0}
    return SeriesQuery(**(fields | changes))


class Counting:
    """A store that counts its summaries, and may be slow."""

    def __init__(self, store, clock=None, wait_s=0.0):
        self._store, self.asked, self._wait_s = store, [], wait_s

    async def summary(self, query, by=""):
        self.asked.append(query)
        if self._wait_s:
            await asyncio.sleep(self._wait_s)
        return await self._store.summary(query, by)


@pytest.mark.parametrize("seconds", [1.0, 60.0, HOUR, DAY, 7 * DAY, 30 * DAY, 400 * DAY, 60 * 365 * DAY])
@pytest.mark.parametrize("asked", [None, 1.0, 300.0, 5000.0, 1e9])
def test_no_range_has_more_steps_than_the_bound_and_no_step_is_shorter_than_asked(seconds, asked):
    step = chosen_step(seconds, asked)
    assert step >= (asked or 0.0)
    assert step in STEPS_S or step % STEPS_S[-1] == 0.0
    assert len(query(since=NOW + 7.0 - seconds, until=NOW + 7.0, step_s=step).steps) <= series.MAX_POINTS + 1


@pytest.mark.full
async def test_each_step_has_the_weighted_mean_of_its_scores(tmp_path):
    async with store_in(tmp_path) as store:
        made = await fill(store, 2000)
        found = await SeriesReader(store, clock=lambda: NOW).read(query(step_s=HOUR), 60.0)
    assert found.complete
    (group,) = found.groups
    assert (group.slice, group.n) == ("", 2000)
    for point in group.points:
        inside = [(value, 1.0 / rate) for at, value, rate, _ in made if point.at <= at < point.at + HOUR]
        weighted = sum(v * w for v, w in inside) / sum(w for _, w in inside)
        assert point.n == len(inside)
        assert point.mean == pytest.approx(weighted)
        assert point.ci_low < point.mean < point.ci_high
    assert sum(one.n for one in group.points) == 2000


async def test_a_step_without_a_basis_has_no_mean_and_one_without_scores_is_left_out(tmp_path):
    async with store_in(tmp_path) as store:
        await fill(store, 5, since=NOW - 3 * HOUR, until=NOW - 2 * HOUR)
        await fill(store, 40, since=NOW - HOUR, until=NOW, seed=2)
        (group,) = (
            await SeriesReader(store, clock=lambda: NOW).read(query(step_s=HOUR, since=NOW - 5 * HOUR), 60.0)
        ).groups
    few = [one for one in group.points if one.n <= 5]
    assert few
    assert all((one.mean, one.ci_low, one.ci_high) == (None, None, None) for one in few)
    assert all(one.mean is not None for one in group.points if one.n_eff >= 10.0)
    assert all(one.n > 0 for one in group.points)


async def test_groups_are_those_with_the_most_scores_and_the_others_are_counted(tmp_path):
    models = [f"m{index:02}" for index in range(24)]

    async with store_in(tmp_path) as store:
        for place, model in enumerate(models):
            await fill(store, 30 - place, since=NOW - HOUR, seed=place, models=(model,))
        found = await SeriesReader(store, clock=lambda: NOW).read(
            query(by="model", since=NOW - HOUR, step_s=300.0), 60.0
        )
    assert [one.slice for one in found.groups] == models[:20]
    assert found.more_groups == 4


async def test_the_total_of_a_group_is_the_estimate_of_its_whole_range(tmp_path):
    async with store_in(tmp_path) as store:
        await fill(store, 500, since=NOW - 6 * HOUR)
        asked = query(since=NOW - 6 * HOUR, step_s=HOUR)
        start, end = asked.steps.start * HOUR, asked.steps.stop * HOUR
        whole = estimate(await store.summary(Query(since=start, until=end, app="shop")))
        whole, found = whole[0], await SeriesReader(store, clock=lambda: NOW).read(asked, 60.0)
    total = found.groups[0].total
    assert (total.n, total.mean) == (whole.n, pytest.approx(whole.mean))
    assert (total.ci_low, total.ci_high) == (pytest.approx(whole.ci_low), pytest.approx(whole.ci_high))


async def test_a_design_effect_widens_the_intervals(tmp_path):
    async with store_in(tmp_path) as store:
        await fill(store, 600)
        plain = SeriesReader(store, clock=lambda: NOW)
        wide = SeriesReader(store, clock=lambda: NOW, effects=lambda: {("shop", "faithfulness", ""): 4.0})
        asked = query(step_s=12 * HOUR)
        plain, wide = [(await one.read(asked, 60.0)).groups[0].points[1] for one in (plain, wide)]
    assert wide.mean == plain.mean
    assert wide.n_eff == pytest.approx(plain.n_eff / 4.0)
    assert wide.ci_high - wide.ci_low > 1.8 * (plain.ci_high - plain.ci_low)


@pytest.mark.parametrize("minutes", [10, 60, 600])
async def test_the_first_scores_of_an_app_are_a_line_and_no_single_dot(tmp_path, minutes):
    async with store_in(tmp_path) as store:
        await fill(store, 12 * minutes, since=NOW - 60.0 * minutes)
        asked = query(step_s=chosen_step(DAY, points=series.FEW_POINTS))
        better, found = await SeriesReader(store, clock=lambda: NOW).read_fitted(asked, 60.0)
    assert found.complete
    (group,) = found.groups
    assert group.n == 12 * minutes
    means = [point for point in group.points if point.mean is not None]
    assert len(means) >= min(5, minutes // 2)
    assert len(means) >= 0.8 * len(group.points)
    assert NOW - better.since < 60.0 * minutes + asked.step_s
    assert len(better.steps) <= series.USUAL_POINTS + 1


async def test_few_scores_of_a_long_time_have_long_steps_over_the_whole_range(tmp_path):
    async with store_in(tmp_path) as store:
        await fill(store, 120)
        asked = query(step_s=chosen_step(DAY, points=series.FEW_POINTS))
        better, found = await SeriesReader(store, clock=lambda: NOW).read_fitted(asked, 60.0)
    assert (better.since, better.until) == (asked.since, asked.until)
    assert better.step_s > asked.step_s
    assert sum(point.mean is not None for point in found.groups[0].points) >= 4


async def test_while_the_fitting_steps_are_read_others_are_shown(tmp_path):
    async with store_in(tmp_path) as store:
        await fill(store, 600, since=NOW - HOUR)
        asked = query(step_s=chosen_step(DAY, points=series.FEW_POINTS))
        reader = SeriesReader(store, clock=lambda: NOW)
        await reader.read(asked, 60.0)
        first, found = await reader.read_fitted(asked, 0.0)
        better, later = await reader.read_fitted(asked, 60.0)
    assert first == asked
    assert not found.complete
    assert found.groups[0].n == later.groups[0].n == 600
    assert better.step_s < asked.step_s


async def test_settled_steps_are_read_once_and_open_ones_again(tmp_path):
    async with store_in(tmp_path) as store:
        await fill(store, 300)
        now = [NOW]
        counting = Counting(store)
        reader = SeriesReader(counting, clock=lambda: now[0])
        await reader.read(query(), 60.0)
        first = len(counting.asked)
        counting.asked.clear()
        now[0] += 60.0
        await reader.read(query(), 60.0)
        again = list(counting.asked)
    assert first == len(query().steps)
    assert 0 < len(again) < 12
    assert all(one.until > NOW - series.SETTLED_S - 900.0 for one in again)


async def test_metrics_of_an_app_share_what_long_steps_read(tmp_path):
    async with store_in(tmp_path) as store:
        for metric in ("faithfulness", "answer_relevancy"):
            await fill(store, 200, metric=metric, since=NOW - 3 * DAY, until=NOW)
        counting = Counting(store)
        reader = SeriesReader(counting, clock=lambda: NOW)
        asked = {"since": NOW - 3 * DAY, "until": NOW - DAY, "step_s": HOUR}
        both = [
            await reader.read(query(metric=metric, **asked), 60.0) for metric in ("faithfulness", "answer_relevancy")
        ]
        asked = len(counting.asked)
    assert [one.groups[0].n for one in both] == [pytest.approx(133, abs=3)] * 2
    assert asked == len(query(since=NOW - 3 * DAY, until=NOW - DAY, step_s=HOUR).steps)


async def test_an_answer_that_ran_out_of_time_says_so_and_the_next_one_goes_on(tmp_path):
    async with store_in(tmp_path) as store:
        await fill(store, 300)
        reader = SeriesReader(Counting(store, wait_s=0.01), clock=lambda: NOW)
        found = [await reader.read(query(), 0.1)]
        while not found[-1].complete:
            found.append(await reader.read(query(), 0.1))
            assert len(found) < 200
    assert len(found) > 2
    assert not found[0].complete
    assert all(point.at >= found[0].read_since for one in found[0].groups for point in one.points)
    reads = [one.read_since for one in found]
    assert reads == sorted(reads, reverse=True)
    assert sum(one.n for one in found[-1].groups) == 300


async def test_with_no_time_at_all_only_what_is_known_is_answered(tmp_path):
    async with store_in(tmp_path) as store:
        await fill(store, 100)
        reader = SeriesReader(store, clock=lambda: NOW)
        nothing = await reader.read(query(), 0.0)
        await reader.read(query(), 60.0)
        known = await reader.read(query(), 0.0)
    assert (nothing.groups, nothing.complete) == ([], False)
    assert known.complete
    assert known.groups[0].n == 100


def test_a_failure_of_the_store_reaches_whoever_asked():
    class Broken:
        async def summary(self, query, by=""):
            raise OSError("no such disk")

    with pytest.raises(OSError, match="no such disk"):
        asyncio.run(SeriesReader(Broken(), clock=lambda: NOW).read(query(), 1.0))


def test_what_is_kept_in_memory_is_bounded(monkeypatch):
    class Wide:
        async def summary(self, query, by=""):
            sums = {"failed": 0, "w": 1.0, "wx": 1.0, "w2": 1.0, "w2x": 1.0, "w2x2": 1.0}
            return [
                Summary(app="shop", metric="faithfulness", n=place, slice=f"s{place}", **sums) for place in range(500)
            ]

    monkeypatch.setattr(series, "MAX_REMEMBERED", 1000)
    reader = SeriesReader(Wide(), clock=lambda: NOW)
    asyncio.run(reader.read(query(by="tag:user"), 60.0))
    assert sum(1 + len(some) for _, some in reader._known.values()) <= 1000  # noqa: SLF001 - what it keeps has no view


def version(value, first_seen, app="shop", kind="model"):
    return Version(app=app, kind=kind, value=value, first_seen=first_seen, exchanges=50)


def alert(onset, ended_at=None, app="shop", metric="faithfulness", **about):
    finding = Finding(evidence_log10=1.0, baseline=0.9, onset=onset, n=100)
    state = "firing" if ended_at is None else "resolved"
    return Alert(
        fingerprint="f", rule="r", metric=metric, app=app, severity="page", state=state, since=onset + 60.0,
        finding=finding, ended_at=ended_at, **about,
    )  # fmt: skip


def test_marks_are_what_happened_to_this_app_and_metric_in_the_range():
    changes = [version("m-2", NOW - HOUR), version("m-1", NOW - 3 * DAY), version("x", NOW - HOUR, app="other")]
    alerts = [
        alert(NOW - 2 * HOUR),
        alert(NOW - 3 * DAY, NOW - 20 * HOUR),
        alert(NOW - 3 * DAY, NOW - 2 * DAY),
        alert(NOW - HOUR, metric="other"),
    ]
    marks, more = marks_of(changes, alerts, app="shop", metric="faithfulness", since=NOW - DAY, until=NOW)
    assert more == 0
    assert [(one.kind, one.at, one.until) for one in marks] == [
        ("alert", NOW - 3 * DAY, NOW - 20 * HOUR),
        ("alert", NOW - 2 * HOUR, None),
        ("model", NOW - HOUR, NOW - HOUR),
    ]


def test_the_latest_marks_are_kept():
    changes = [version(f"m{index}", NOW - 1000.0 + index) for index in range(150)]
    marks, more = marks_of(changes, [], app="shop", metric="faithfulness", since=NOW - DAY, until=NOW)
    assert (len(marks), more, marks[-1].value) == (100, 50, "m149")


def stream(rule, m0, app="shop", **about):
    fields = {"metric": "faithfulness", "evidence_log10": -1.0, "state": "quiet", "closed_until": NOW}
    return StreamStatus(rule=rule, app=app, m0=m0, **(fields | about))


def test_lines_are_the_objective_and_the_learned_baselines_of_the_whole_app():
    rules = [
        Rule(metric="faithfulness", slo=0.85, name="answers", apps=("sh*",)),
        Rule(metric="faithfulness", slo=0.5, apps=("other",)),
        Rule(metric="faithfulness", baseline="auto", name="drop"),
    ]
    streams = [
        stream("answers", 0.84),
        stream("drop", 0.91),
        stream("drop", 0.7, slice="model=m"),
        stream("drop", None, app="new"),
    ]
    lines = reference_lines(streams, rules, app="shop", metric="faithfulness", lower_is_better=False)
    assert [(one.kind, one.value, one.rule) for one in lines] == [("slo", 0.85, "answers"), ("baseline", 0.91, "drop")]


SUMS = {"n": 20, "w": 20.0, "wx": 18.0, "w2": 20.0, "w2x": 18.0, "w2x2": 16.2}


class Slow:
    """A store that answers when it is let."""

    def __init__(self):
        self.go, self.asked = asyncio.Event(), 0

    async def summary(self, query, by=""):
        await self.go.wait()
        self.asked += 1
        return [Summary(app="a", metric="m", failed=0, **SUMS)]


async def test_nobody_waits_for_hours_that_are_not_read_yet():
    store = Slow()
    reader = SeriesReader(store, clock=lambda: 1e6 * 3600.0 + 1.0)
    begin = time.perf_counter()
    first = await reader.recent(HOUR, 24, 0.01)
    waited = time.perf_counter() - begin
    store.go.set()
    later, asked = await reader.recent(HOUR, 24, 5.0), store.asked
    assert waited < 0.5
    assert first == ({}, False)
    assert later[1]
    assert len(later[0]["a", "m"]) == asked == 24


async def test_an_hour_that_is_over_is_not_read_again_and_the_present_one_is():
    store, now = Slow(), [1e6 * 3600.0 + 1.0]
    store.go.set()
    reader = SeriesReader(store, clock=lambda: now[0])
    await reader.recent(HOUR, 24, 5.0)
    now[0] += 11.0
    await reader.recent(HOUR, 24, 5.0)
    again = store.asked - 24
    now[0] += 1000.0
    await reader.recent(HOUR, 24, 5.0)
    assert (again, store.asked - 24 - again) == (2, 24)


async def test_a_step_that_is_to_be_read_again_is_shown_meanwhile_and_not_for_long():
    store, now = Slow(), [1e6 * HOUR + 1.0]
    store.go.set()
    reader, asked = SeriesReader(store, clock=lambda: now[0]), query(since=now[0] - DAY, until=now[0], step_s=HOUR)
    asked = replace_struct(asked, app="a", metric="m")
    assert (await reader.read(asked, 5.0)).complete
    store.go.clear()
    now[0] += 20.0
    held = await reader.read(asked, 0.01)
    now[0] += 2 * series.HELD_S
    late = await reader.read(asked, 0.01)
    store.go.set()
    assert held.complete
    assert not late.complete
    assert (await reader.read(asked, 5.0)).complete


async def test_what_a_request_had_no_time_for_is_there_for_the_next_one():
    store = Slow()
    reader, asked = SeriesReader(store, clock=lambda: NOW), query(since=NOW - 10 * HOUR, until=NOW, step_s=HOUR)
    asked = replace_struct(asked, app="a", metric="m")
    assert not (await reader.read(asked, 0.01)).complete
    store.go.set()
    await asyncio.gather(*reader._reading.values())  # noqa: SLF001 - what goes on without a request
    assert (await reader.read(asked, 0.01)).complete


async def test_all_metrics_of_an_app_share_the_reading_of_hours_that_are_over(tmp_path):
    async with store_in(tmp_path) as store:
        await fill(store, 200)
        counting = Counting(store)
        reader = SeriesReader(counting, clock=lambda: NOW)
        names = ["faithfulness", *(f"rare_{number}" for number in range(5))]
        until = NOW - 3 * HOUR
        some = [query(metric=name, step_s=HOUR, until=until) for name in names]
        found = await asyncio.gather(*(reader.read(one, 60.0) for one in some))
    assert all(one.complete for one in found)
    assert [bool(one.groups) for one in found] == [True] + [False] * 5
    assert len(counting.asked) == len(some[0].steps)
