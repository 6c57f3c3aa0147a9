"""The alert engine on the real embedded store: what it finds, dates, measures and names."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from gaugeway.records import Failed, Skipped
from gaugeway.settings.shared import Rule
from gaugeway.storage.stores import Point
from monitors.alerting.detectors import FLOOR_LOG10
from monitors.alerting.detectors.e_sr import MixtureESR
from monitors.alerting.engine import AlertEngine, AlertObserver
from monitors.alerting.notifiers.message import summary
from monitors.alerting.rule_watch import MAX_STREAMS, SavedWatch
from monitors.alerting.stream import judge_outage
from monitors.statistics.multiple_testing import share
from tests.support.alerting import RULE, T0, TRIO, People, alerting, replace_config, run, watching, webhook_body


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.db"


async def test_a_drop_is_found_dated_measured_and_told_to_everybody_once(path):
    a, b = People(), People()
    async with alerting(path, a=a, b=b) as world:
        await world.minutes([0.95] * 60, metrics=TRIO)
        assert world.engine.alerts() == []
        begin = world.now
        while not a.alerts:
            await world.minutes([0.5], metrics=TRIO)
        alert = world.alert
        assert (alert.state, alert.rule, alert.metric, alert.app, alert.severity) == (
            *("firing", "answers", "faithfulness", "shop", "page"),
        )
        assert begin <= alert.finding.onset <= begin + 60.0
        assert (alert.mean_before, alert.mean_since) == (pytest.approx(0.95), pytest.approx(0.5))
        assert alert.finding.estimate == pytest.approx(0.5)
        assert alert.finding.n < 100
        assert alert.ci is alert.finding.interval is None  # too few scores to be believed
        assert alert.likely_cause == "retrieval"
        assert len(alert.worst_exchanges) == len(set(alert.worst_exchanges)) == 3
        for name in alert.worst_exchanges:
            found, _ = await world.store.sample(name)
            assert found.started_at >= begin
        assert a.heard == b.heard == [(alert.fingerprint, "firing")]
        assert a.alerts == [alert]
        assert len(alert.fingerprint) == 16


@pytest.mark.full
async def test_as_scores_come_in_an_alert_gets_its_interval_and_its_cause(path):
    people = People()
    async with alerting(path, people=people) as world:
        await world.minutes([0.95] * 60, metrics=TRIO)
        minute = 0
        while not world.engine.alerts() or world.alert.state != "firing":
            minute += 1  # context relevancy is judged for every other answer
            await world.minutes([0.1], per_minute=1, metrics=TRIO if minute % 2 else ("faithfulness",))
        assert (world.alert.likely_cause, world.alert.ci) == ("unknown", None)
        first = world.alert
        await world.minutes([0.1] * 20, per_minute=1, metrics=TRIO)
        assert (world.alert.likely_cause, world.alert.ci) == ("retrieval", None)
        await world.minutes([0.1] * 200, per_minute=1, metrics=TRIO)
        assert world.alert.ci[0] < 0.1 < world.alert.ci[1]
        assert world.alert.finding.n > 100
        assert (world.alert.fingerprint, world.alert.finding.onset) == (first.fingerprint, first.finding.onset)
        assert people.alerts == [first]


@pytest.mark.full
async def test_many_scores_since_the_onset_bring_an_interval_around_their_mean(path):
    async with alerting(
        path, rules=(Rule(metric="faithfulness", slo=0.85),), config=replace_config(bucket_s=600.0)
    ) as world:
        rng = np.random.default_rng(1)
        for mean in [0.92] * 30 + [0.75] * 25:
            for value in rng.beta(8 * mean, 8 * (1 - mean), 40):
                await world.add(world.now + 1.0, value)
            world.now += 60.0
        await world.later()
        low, high = world.alert.ci
        assert low < world.alert.mean_since < high
        assert world.alert.ci == world.alert.finding.interval
        assert 0.01 < high - low < 0.2


@pytest.mark.full
async def test_a_drop_of_conversations_is_explained_by_what_their_exchanges_had_at_the_time(path):
    silence_s = 900.0

    async with alerting(path, rules=(Rule(metric="goal_met", slo=0.8),)) as world:
        world.delay_s = lambda metric: silence_s if metric == "goal_met" else 0.0
        world.restart()
        begin = world.now
        for minute in range(180):
            value = 0.95 if minute < 90 else 0.2
            at = begin + 60.0 * minute
            for k in range(3):
                await world.add(at + k, value, metrics=("context_relevancy",))
                await world.add(at + k, value, metrics=("faithfulness",))
                await world.add(at + k + silence_s, value, metrics=("goal_met",))
        world.now = begin + 60.0 * 120
        await world.tick()
        assert (world.alert.metric, world.alert.likely_cause) == ("goal_met", "retrieval")
        assert world.alert.finding.onset == pytest.approx(begin + 60.0 * 90 + silence_s, abs=60.0)
        assert "0.95 to 0.20" in world.alert.cause_detail


async def test_a_doubt_is_pending_told_to_nobody_and_goes_when_it_passes(path):
    people = People()
    async with alerting(path, people=people, config=replace_config(watermark_s=0.0)) as world:
        await world.minutes([0.95] * 10)
        while not world.engine.alerts():
            await world.minutes([0.6], per_minute=1)
        assert world.alert.state == "pending"
        assert world.shown[0].state == "pending"
        assert -1.0 <= world.alert.finding.evidence_log10 < 0.0
        await world.minutes([1.0] * 60)
        assert world.engine.alerts() == []
        assert people.calls == 0


async def test_an_alert_keeps_its_fingerprint_from_doubt_to_end_and_is_told_twice(path):
    people = People()
    async with alerting(path, people=people) as world:
        seen = []
        for value in [0.95] * 20 + [0.6] * 40 + [0.97] * 60:
            await world.minutes([value], per_minute=2)
            seen += [(alert.fingerprint, alert.state) for alert in world.engine.alerts()]
        assert list(dict.fromkeys(seen)) == [(world.alert.fingerprint, s) for s in ("pending", "firing", "resolved")]
        assert world.alert.since < world.alert.ended_at <= world.now
        assert 0.6 <= world.alert.mean_since < 0.75  # the time until the recovery was sure counts
        assert people.heard == [(world.alert.fingerprint, "firing"), (world.alert.fingerprint, "resolved")]
        assert world.shown[0].state == "quiet"


async def test_a_second_drop_is_another_alert(path):
    async with alerting(path) as world:
        await world.minutes([0.95] * 10 + [0.5] * 20 + [0.97] * 30 + [0.5] * 120)
        assert [alert.state for alert in world.engine.alerts()] == ["firing", "resolved"]
        assert len({alert.fingerprint for alert in world.engine.alerts()}) == 2


async def test_for_a_metric_whose_best_is_zero_a_rise_is_the_drop(path):
    async with alerting(path, rules=(Rule(metric="hallucination", slo=0.1),)) as world:
        await world.minutes([0.02] * 30, metrics=("hallucination",))
        await world.minutes([0.5, 0.4] * 15, metrics=("hallucination",))
        alert = world.alert
        assert (alert.rule, alert.state) == ("hallucination-above-0.1", "firing")
        assert alert.mean_before == pytest.approx(0.02)
        assert 0.4 < alert.mean_since < 0.5
        assert alert.finding.baseline == pytest.approx(0.9)
        assert alert.finding.estimate == pytest.approx(1.0 - alert.mean_since)
        assert world.shown[0].m0 == pytest.approx(0.1)
        for name in alert.worst_exchanges[:2]:
            _, (evaluation,) = await world.store.sample(name)
            assert evaluation.outcome.value == 0.5


async def test_skipped_and_failed_evaluations_are_no_evidence_but_may_name_the_cause(path):
    async with alerting(path) as world:
        await world.minutes([Skipped("no_claims"), Failed("timeout")] * 30)
        assert world.engine.streams() == []
        await world.minutes([0.95] * 30)
        for _ in range(30):
            await world.minutes([Failed("timeout")], per_minute=1, tick=False)
            world.now -= 60.0
            await world.minutes([0.4], per_minute=1)
        assert world.alert.likely_cause == "unknown"  # it failed half of the time before, too


def test_a_judge_that_begins_to_fail_and_another_judge_are_named(tmp_path):
    async def failing(world):
        await world.minutes([0.95] * 60)
        for _ in range(30):
            await world.minutes([Failed("timeout")], tick=False)
            world.now -= 60.0
            await world.minutes([0.4])
        return world.alert.likely_cause

    async def another(world):
        await world.minutes([0.95] * 60)
        await world.minutes([0.4] * 30, judge="k")
        return world.alert.likely_cause

    assert run(tmp_path / "a.db", failing) == run(tmp_path / "b.db", another) == "judge"


async def test_a_rule_watches_each_app_it_names_on_its_own(path):
    async with alerting(path, rules=(Rule(metric="faithfulness", slo=0.85, apps=("shop-*", "help")),)) as world:
        for _ in range(30):
            for app, value in (("shop-de", 0.95), ("shop-fr", 0.4), ("internal", 0.1)):
                await world.minutes([value], app=app, tick=False)
                world.now -= 60.0
            world.now += 60.0
            await world.tick()
        assert [(stream.app, stream.state) for stream in world.shown] == [("shop-de", "quiet"), ("shop-fr", "firing")]


async def test_however_many_apps_turn_up_their_budgets_stay_within_the_rules_and_never_change(path):
    rules = (RULE, Rule(metric="faithfulness", slo=0.5))
    async with alerting(path, rules=rules) as world:
        for k in range(30):
            await world.add(world.now + k, 0.9, app=f"app-{29 - k}")
        await world.later(600.0)
        watches = world.engine._watches  # noqa: SLF001 - a stream's share of the budget is told nowhere
        budgets = [
            detector.budget_per_s
            for detector in [stream.detector for watch in watches.values() for stream in watch.streams.values()]
        ]
    total = 1.0 / (30 * 86_400)
    assert len(budgets) == 60
    assert 0.9 * total < sum(budgets) < total
    assert budgets[0] == pytest.approx(total / 2 * share(0))


def test_scores_count_by_the_smallest_rate_known_before_their_bucket():
    watch = watching()
    stream = watch.stream("shop")

    def bucket(*rates):
        points = [point(str(k), T0, 0.9, rate) for k, rate in enumerate(rates)]
        return stream.bucket(T0, 60.0, points).weights

    assert bucket(0.4, 0.8) == (1.0, 0.5)
    assert bucket(0.8, 0.2) == (0.5, 1.0)
    assert bucket(0.8, 0.2) == (0.25, 1.0)
    assert min(stream.rates.values()) == 0.2


def test_a_small_rate_is_forgotten_after_a_day_and_the_last_one_known_is_not(path):
    def weights(watch, at, rate):
        return watch.stream("shop").bucket(T0 + at, 60.0, [point("x", T0 + at, 0.9, rate)]).weights

    def fresh():
        return watching()

    watch, day = fresh(), 86_400.0
    weights(watch, 0.0, 0.01)
    for hour in range(1, 25):
        assert weights(watch, 3600.0 * hour, 1.0) == (0.01,)
    saved = msgspec.json.decode(msgspec.json.encode(watch.saved()), type=SavedWatch)
    restored = fresh()
    restored.restore(saved, {})
    assert weights(restored, day, 1.0) == (0.01,)
    for again in (watch, restored):
        assert weights(again, day + 7200.0, 1.0) == (1.0,)
        assert len(again.stream("shop").rates) <= 26
    weights(watch, day + 7260.0, 0.5)
    assert weights(watch, 30 * day, 1.0) == (0.5,), "fixed before the scores are seen, however long ago"


async def test_a_rule_watches_so_many_apps_and_the_others_are_told(path, caplog):
    apps = []

    class Counts(AlertObserver):
        def app_over_limit(self, app):
            apps.append(app)

    async with alerting(path) as world:
        world.engine = AlertEngine(
            world.rules,
            world.config,
            world.store,
            world.store,
            notify_within_s=300.0,  # a busy machine describes an alert in its own time
            queue_oldest=lambda: asyncio.sleep(0),
            notifiers={},
            clock=lambda: world.now,
            lower_is_better=lambda _: False,
            observer=Counts(),
        )
        for k in range(MAX_STREAMS + 3):
            await world.add(world.now + k / 10, 0.9, app=f"app-{k:03}")
        await world.later(600.0)
        await world.add(world.now - 100.0, 0.9, app="app-202")
        await world.later(600.0)
        assert len(world.engine.streams()) == MAX_STREAMS
    assert sorted(apps) == ["app-200", "app-201", "app-202", "app-202"]
    assert caplog.text.count("has reached the limit of 200 streams") == 1


def point(sample_id, started_at, value, rate=1.0, app="shop"):
    return Point(
        sample_id=sample_id,
        started_at=started_at,
        app=app,
        model="m",
        metric="faithfulness",
        outcome="score",
        value=value,
        reason="",
        rate=rate,
    )


def test_two_judgements_of_one_answer_count_once():
    once, twice = (watching() for _ in range(2))
    points = [point(str(k), T0 + k, 0.2) for k in range(5)]
    once.feed(points, until=T0 + 60, bucket_s=60.0, cases={})
    twice.feed([p for p in points for _ in range(2)], until=T0 + 60, bucket_s=60.0, cases={})
    assert once.saved() == twice.saved()


def test_the_watch_feeds_a_detector_the_buckets_as_they_are():
    watch = watching()
    detector = MixtureESR(budget_per_s=1e-6 / 2)
    stream = watch.stream("shop")
    for start in (T0, T0 + 120.0, T0 + 600.0):
        points = [point(f"{start}{k}", start + 7 * k, 0.1 * k) for k in range(8)]
        watch.feed(points, until=start + 60.0, bucket_s=60.0, cases={})
        detector.update(stream.bucket(start, 60.0, points), 0.85)
    assert stream.detector.dumps() == detector.dumps()


async def test_a_rule_without_history_looks_one_day_back(path):
    async with alerting(path) as world:
        await world.minutes([0.1] * 20, tick=False)
        world.now += 90_000.0
        await world.minutes([0.95] * 20, tick=False)
        await world.later()
        assert world.engine.alerts() == []
        assert len(world.shown) == 1


async def test_what_was_gathered_during_a_drop_is_no_evidence_about_the_time_after_it(path):
    async with alerting(path, config=replace_config(watermark_s=0.0)) as world:
        await world.minutes([0.95] * 5 + [0.3] * 20)
        while world.alert.state == "firing":
            await world.minutes([0.95])
        assert world.shown[0].evidence_log10 == FLOOR_LOG10


async def test_while_the_judge_is_blind_that_is_told_and_no_judged_metric_fires_or_resolves(path):
    people = People()
    async with alerting(path, people=people) as world:
        await world.minutes([0.95] * 60)
        world.blind_since = world.now
        await world.minutes([0.1] * 60)
        assert [(one.rule, one.metric, one.state) for one in world.engine.alerts()] == [
            ("judge_blind", "judge", "firing")
        ]
        world.restart()
        await world.later(60.0)
        world.blind_since = None
        await world.later(60.0)
        blind, drop = sorted(world.engine.alerts(), key=lambda one: one.rule != "judge_blind")[:2]
        assert (blind.rule, blind.state) == ("judge_blind", "resolved")
        # What was scored meanwhile was not lost: it is taken in now.
        assert (drop.metric, drop.state) == ("faithfulness", "firing")
        told = [(one.rule, one.state) for one in people.alerts]
    assert set(told) == {("judge_blind", "firing"), ("judge_blind", "resolved"), ("answers", "firing")}


async def test_the_judges_outage_survives_a_restart_of_a_process_that_knows_nothing_of_it(path):
    people = People()
    async with alerting(path, people=people) as world:
        world.blind_since = T0
        await world.later(60.0)
        world.blind_since = None
        world.restart()
        await world.later(60.0)
        await world.later(60.0)
        assert world.blind_since == T0, "the judge's circuit is open again"
        assert [one.state for one in world.engine.alerts()] == ["firing"]
        await world.engine.follow()
        assert [one.state for one in world.engine.alerts()] == ["firing"], "another process leads"
        await world.later(60.0)
        world.blind_since = None
        await world.later(60.0)
        assert world.alert.state == "resolved"
    assert [state for _, state in people.heard] == ["firing", "resolved"]


async def test_an_outage_of_a_judge_that_is_not_asked_any_more_ends_in_other_words(path):
    people = People()
    async with alerting(path, people=people) as world:
        world.blind_since = T0
        await world.later(60.0)
        world.blind_since, world.judged = None, False
        world.restart()
        await world.later(60.0)
    assert [state for _, state in people.heard] == ["firing", "resolved"]
    assert "no metric is judged any more" in summary(people.alerts[1])


def test_judge_outage_is_told_in_words_of_its_own():
    fires = judge_outage(1_790_000_000.0)
    assert webhook_body(fires)["alerts"][0]["labels"]["alertname"] == "GaugewayJudgeBlind"
    assert "no judged metrics" in summary(fires)
    over = replace(fires, state="resolved", ended_at=1_790_000_600.0)
    assert "judge recovered at 2026-09-21" in summary(over)
