"""Of the answers, the share with question and passages: by process, across processes, restarts and late contexts."""

from __future__ import annotations

import msgspec
import pytest

from gaugeway.records import Context, Sample
from gaugeway.runtime.label_cap import OVERFLOW
from monitors.analysis import capture_coverage
from monitors.analysis.capture_coverage import DAY_S, LEAST_ANSWERS, MAX_APPS, PREFIX, CaptureCoverage, Tally, found_in
from tests.support.clock import Clock
from tests.support.stores import store_in

NOW = 1_760_000_000.0


def answer(*, at=NOW, app="shop", question="How long?", source="tools", **about):
    return Sample(id="x", started_at=at, app=app, question=question, context_source=source, response="Two.", **about)


def counting(clock=None, window_s=3600.0):
    return CaptureCoverage(None, "one", window_s, clock or Clock(NOW))


@pytest.mark.parametrize(
    ("sample", "found"),
    [
        (answer(contexts=(Context(text="a"),)), "both"),
        (answer(source="explicit"), "both"),  # the retrieval was recognised and found nothing
        (answer(source="none"), "question"),
        (answer(question=None), "passages"),
        (answer(question=" \n"), "passages"),
        (answer(question=None, source="none"), "nothing"),
        (answer(source="none", skip_reason="auxiliary"), None),
        (answer(skip_reason="tool_call"), None),
    ],
)
def test_what_was_found_in_an_exchange(sample, found):
    assert found_in(sample) == found


def test_auxiliary_calls_do_not_count_and_the_rest_adds_up():
    coverage = counting()
    for source, question, count in (("tools", "q", 27), ("none", "q", 9), ("tools", None, 3), ("none", None, 1)):
        for _ in range(count):
            coverage.add(answer(source=source, question=question))
    for _ in range(500):
        coverage.add(answer(source="none", skip_reason="auxiliary"))
    (one,) = coverage.captured()
    assert (one.app, one.answers, one.captured, one.without_question, one.without_passages) == ("shop", 40, 27, 4, 10)
    assert one.ratio == 27 / 40
    assert (round(one.ci_low, 3), round(one.ci_high, 3)) == (0.520, 0.799)  # Wilson's, by hand


def test_the_window_is_that_of_the_means_and_a_day_where_that_holds_few_answers():
    clock = Clock(NOW)
    coverage = counting(clock)
    for minute in range(300):
        coverage.add(answer(at=NOW - 60.0 * minute, source="none" if minute >= 90 else "tools"))
    (recent,) = coverage.captured()
    assert (recent.window_s, recent.ratio) == (3600.0, 1.0)
    assert 60 <= recent.answers <= 65  # buckets of five minutes
    clock.now += 2700.0
    (few,) = coverage.captured()
    assert (few.window_s, few.answers, few.captured) == (DAY_S, 300, 90)
    clock.now += DAY_S + 3600.0
    assert coverage.captured() == []


def test_what_began_before_the_day_or_after_now_does_not_stay():
    coverage = counting()
    coverage.add(answer(at=NOW - 2 * DAY_S))
    assert coverage.captured() == []
    coverage.add(answer(at=NOW + 1e9))
    assert [one.answers for one in coverage.captured()] == [1]


def test_contexts_that_come_late_move_the_answer_and_make_no_new_one():
    coverage = counting()
    bare, full = answer(source="none"), answer(source="feedback")
    coverage.add(bare)
    coverage.add(full, bare)
    coverage.add(full, full)
    (one,) = coverage.captured()
    assert (one.answers, one.captured) == (1, 1)


async def test_several_processes_add_up_and_a_restart_goes_on(tmp_path):
    async with store_in(tmp_path) as store:
        clock = Clock(NOW)
        one, two = (CaptureCoverage(store, name, 3600.0, clock) for name in ("one", "two"))
        bare = answer(source="none")
        for _ in range(30):
            one.add(bare)
            two.add(answer())
        two.add(answer(source="spans"), bare)  # counted by the other one before
        for process in (one, two, one):
            await process.tick()
        again = CaptureCoverage(store, "one", 3600.0, clock)
        again.add(answer())
        before = again.captured()
        await again.tick()
        await again.tick()
        shared, after = one.captured(), again.captured()
    assert [(one.answers, one.captured) for one in shared] == [(60, 31)]
    assert [(one.answers, one.captured) for one in before] == [(1, 1)]
    assert [(one.answers, one.captured) for one in after] == [(61, 32)]


async def test_another_window_after_a_restart_keeps_the_day(tmp_path):
    async with store_in(tmp_path) as store:
        clock = Clock(NOW)
        first = CaptureCoverage(store, "one", 3600.0, clock)
        for _ in range(50):
            first.add(answer())
        await first.tick()
        second = CaptureCoverage(store, "one", 60.0, clock)
        await second.tick()
        assert [(one.window_s, one.answers) for one in second.captured()] == [(DAY_S, 50)]


async def test_what_is_left_of_a_process_that_is_gone_is_emptied(tmp_path):
    async with store_in(tmp_path) as store:
        clock = Clock(NOW)
        gone, here = (CaptureCoverage(store, name, 3600.0, clock) for name in ("gone", "here"))
        gone.add(answer())
        await gone.tick()
        clock.now += DAY_S + 7300.0
        await here.tick()
        emptied = (await store.load())[PREFIX + "gone"]
        gone.add(answer(at=clock.now))
        await gone.tick()
        await here.tick()
        captured = here.captured()
    assert emptied == b""
    assert [one.answers for one in captured] == [1]


async def test_a_state_that_cannot_be_read_is_said_once_and_left_out(tmp_path, caplog):
    async with store_in(tmp_path) as store:
        await store.save({PREFIX + "other": b"{", "judge/spent/x": b"{"})
        coverage = CaptureCoverage(store, "one", 3600.0, Clock(NOW))
        coverage.add(answer())
        await coverage.tick()
        await coverage.tick()
        assert [one.answers for one in coverage.captured()] == [1]
    assert caplog.text.count("ignoring unreadable") == 1


def test_apps_beyond_the_bound_count_as_others_and_one_with_many_answers_stays():
    coverage = counting()
    for _ in range(LEAST_ANSWERS):
        coverage.add(answer(app="real"))
    for number in range(3 * MAX_APPS):
        coverage.add(answer(app=f"made-up-{number}", source="none"))
    found = {one.app: one for one in coverage.captured()}
    assert len(found) <= MAX_APPS
    assert found["real"].ratio == 1.0
    assert found[OVERFLOW].answers > MAX_APPS


def test_when_every_app_has_many_answers_a_new_one_counts_as_others(monkeypatch):
    monkeypatch.setattr(capture_coverage, "MAX_APPS", 2)
    coverage = counting()
    for app, count in (("a", LEAST_ANSWERS), ("b", LEAST_ANSWERS), ("late", LEAST_ANSWERS + 1)):
        for _ in range(count):
            coverage.add(answer(app=app))
    found = {one.app: one.answers for one in coverage.captured()}
    assert "late" not in found
    assert found[OVERFLOW] == LEAST_ANSWERS + 1  # its own alone: none of the others gave way


def test_a_full_state_stays_small():
    tally = Tally(window_s=3600.0)
    for app in range(MAX_APPS):
        for half_hour in range(48):
            tally.add(answer(app=f"app-{app}", at=NOW - 1800.0 * half_hour), None, NOW)
    tally.forget(NOW)
    assert len(msgspec.json.encode(tally)) < 200_000
