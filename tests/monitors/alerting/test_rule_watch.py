"""A rule at work without any I/O: slices, coverage, learned baselines, budgets, and what a restart keeps."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from gaugeway.settings.shared import Alerts, Rule
from gaugeway.storage.stores import Point
from monitors.alerting.rule_watch import SavedWatch
from monitors.alerting.rules import MONTH_S, problems_of, rules_of, tolerance_of, watch_of
from monitors.alerting.slices import OTHER, Slices
from tests.support.alerting import RULE, T0, watching

LEARNED = Rule(metric="faithfulness", baseline="window", options={})


def point(n, value, *, at=None, app="shop", model="m", outcome="score", version="1", judge="j", tags=None, **rates):
    return Point(
        sample_id=f"x{n}",
        started_at=T0 + n if at is None else at,
        app=app,
        model=model,
        metric="faithfulness",
        outcome=outcome,
        value=value if outcome == "score" else None,
        reason="",
        rate=rates.get("rate", 1.0),
        weight=rates.get("weight"),
        version=version,
        judge=judge,
        tags=tags or {},
    )


def feed(watch, points, cases=None):
    cases = {} if cases is None else cases
    last = max(one.started_at for one in points)
    fed = watch.feed(points, until=(last // 60 + 1) * 60, bucket_s=60.0, cases=cases)
    return cases, fed


def firing(cases):
    return sorted((case.alert.app, case.alert.slice) for case in cases.values() if case.alert.state == "firing")


def test_a_value_has_a_slice_of_its_own_once_it_has_scores_enough_and_is_not_alone():
    slices = Slices(["model", "tag:tenant"], least=10)
    alone = slices.cut("shop", [point(n, 1.0) for n in range(20)], at=T0)
    assert alone == {}
    both = [point(1, 1.0), point(2, 1.0, model="new"), point(3, 1.0, tags={"tenant": "a"})]
    assert slices.cut("shop", both, at=T0 + 60) == {}  # until now there was one model only
    cut = slices.cut("shop", both, at=T0 + 120)
    assert {name: len(points) for name, points in cut.items()} == {"model=m": 2, f"model={OTHER}": 1}


def test_a_slice_that_had_scores_enough_loses_its_own_when_it_has_none_for_months():
    slices = Slices(["model"], least=10)
    slices.cut("shop", [point(n, 1.0, model="ab"[n % 2]) for n in range(40)], at=T0)
    assert set(slices.cut("shop", [point(1, 1.0, model="a")], at=T0)) == {"model=a"}
    assert set(slices.cut("shop", [point(1, 1.0, model="a")], at=T0 + MONTH_S)) == {f"model={OTHER}"}


def test_a_drop_in_one_slice_is_its_alert_and_in_most_of_the_traffic_the_app_s_with_the_slices_listed():
    def play(low_models):
        watch, cases, rng = watching(slices=("app", "model"), min_slice_scores=50), {}, np.random.default_rng(3)
        for minute in range(240):
            values = {model: 0.5 if model in low_models and minute >= 120 else 0.95 for model in "abcdefgh"}
            some = [
                point(
                    minute * 100 + n,
                    float(np.clip(rng.normal(values[model], 0.03), 0, 1)),
                    model=model,
                    at=T0 + 60 * minute + n,
                )
                for n, model in enumerate("abcdefgh")
            ]
            feed(watch, some, cases)
        return watch, cases

    watch, cases = play("h")
    assert firing(cases) == [("shop", "model=h")]
    watch, cases = play("abc")
    assert ("shop", "") in firing(cases)
    onset = next(case.alert.finding.onset for case in cases.values() if not case.alert.slice)
    assert set(watch.affected("shop", onset)) == {"model=a", "model=b", "model=c"}
    assert set(watch.affected("shop", onset + 3600.0, 60.0)) == set(), "they fell before"


def test_the_budget_of_all_streams_together_is_kept_however_many_there_are():
    watch = watching(budget_per_s=1e-6, slices=("app", "model"), min_slice_scores=1)
    for app in range(10):
        watch.stream(f"app{app}")
        for model in range(10):
            watch.stream(f"app{app}", f"model={model}")
    total = sum(stream.budget_per_s for stream in watch.streams.values())
    assert 0.9e-6 < total <= 1e-6
    assert watching(budget_per_s=1e-6).stream("shop").budget_per_s == pytest.approx(0.5e-6)


def test_scores_beside_too_many_failures_are_no_evidence_and_are_counted():
    failing = [point(n, None, outcome="failed") for n in range(0, 9000, 10)]
    few = [point(n, 0.2) for n in range(6005, 9000, 50)]
    both = sorted(failing + few, key=lambda one: one.started_at)
    cases, fed = feed(watching(), both)
    assert (cases, fed.low_coverage) == ({}, len(few))
    watch = watching()
    watch.min_coverage = 0.0
    cases, fed = feed(watch, both)
    assert (firing(cases), fed.low_coverage) == ([("shop", "")], 0)


def test_failures_of_the_same_minute_do_not_decide_about_its_scores():
    watch = watching()
    _, fed = feed(watch, [point(0, 0.9), *(point(n, None, outcome="failed") for n in range(1, 50))])
    assert fed.low_coverage == 0


def test_a_baseline_is_learned_then_a_drop_is_found_and_another_judge_begins_a_new_one():
    rng = np.random.default_rng(5)
    watch = watching(rule=LEARNED)
    cases = {}
    quiet = [point(n, float(rng.beta(8, 2))) for n in range(3000)]
    feed(watch, quiet, cases)
    assert not firing(cases)
    stream = watch.streams["shop", ""]
    assert 0.70 < stream.baseline.m0(T0 + 3000) < 0.80 - 0.05
    other = [point(n, float(rng.beta(8, 2)) * 0.7, judge="another") for n in range(3000, 4500)]
    feed(watch, other, cases)
    assert not firing(cases)
    assert stream.baseline.m0(T0 + 4500) is None  # it learns the new judge's scale
    watch = watching(rule=LEARNED)
    feed(watch, quiet, cases := {})
    feed(watch, [point(n, float(rng.beta(8, 2)) * 0.7) for n in range(3000, 4500)], cases)
    assert firing(cases) == [("shop", "")]


def test_a_restart_at_any_time_changes_nothing():
    rng = np.random.default_rng(7)
    values = np.where(np.arange(6000) < 4500, rng.beta(8, 2, 6000), rng.beta(4, 6, 6000))
    points = [point(n, float(value), model="ab"[n % 2]) for n, value in enumerate(values)]
    about = {"rule": LEARNED, "slices": ("app", "model"), "min_slice_scores": 100}
    whole, cases = watching(**about), {}
    feed(whole, points, cases)
    again, kept = watching(**about), {}
    for start in range(0, 6000, 600):
        feed(again, points[start : start + 600], kept)
        saved = msgspec.json.decode(msgspec.json.encode(again.saved()), type=SavedWatch)
        again = watching(**about)
        again.restore(saved, kept)
    assert firing(kept) == firing(cases) != []
    assert msgspec.json.decode(msgspec.json.encode(again.saved())) == msgspec.json.decode(
        msgspec.json.encode(whole.saved())
    )


def test_rebaseline_forgets_what_was_learned():
    watch = watching(rule=LEARNED)
    feed(watch, [point(n, 0.9) for n in range(3000)])
    assert watch.streams["shop", ""].baseline.m0(T0) is not None
    assert (watch.rebaseline("other"), watch.rebaseline("shop")) == (0, 1)
    assert watch.streams["shop", ""].baseline.m0(T0) is None


def test_without_rules_every_metric_is_watched_and_mistakes_are_named():
    assert [(rule.metric, rule.baseline) for rule in rules_of(Alerts(), ["a", "b"])] == [("a", "auto"), ("b", "auto")]
    wrong = (
        Rule(metric="a"),
        Rule(metric="a", slo=0.5, baseline="auto"),
        Rule(metric="b", slo=0.5),
        Rule(metric="a", slo=0.6, detector="nobody"),
        Rule(metric="a", slo=0.7, detector="threshold", options={"nothing": 1}),
        Rule(metric="b", slo=0.5, name="a-below-0.7"),
    )
    problems = problems_of(wrong, ["a"])
    assert [one.split(":")[0] for one in problems] == [
        *("alerts.rules[0]", "alerts.rules[1]", "alerts.rules[2].metric", "alerts.rules[3].detector"),
        *("alerts.rules[4].options.nothing", "alerts.rules[5].metric", "alerts.rules[5].name"),
    ]


def test_a_tolerance_lowers_what_is_held_against_an_slo_only_when_given():
    def m0(rule, flipped=False):
        return watch_of(rule, Alerts(), part=1.0, flipped=flipped).stream("shop").baseline.m0(T0)

    assert m0(Rule(metric="a", slo=0.8)) == pytest.approx(0.8)
    assert m0(Rule(metric="a", slo=0.8, tolerance=0.1)) == pytest.approx(0.7)
    assert m0(Rule(metric="hallucination", slo=0.1, tolerance=0.05), flipped=True) == pytest.approx(0.85)


def test_a_session_bets_once_a_bucket_and_all_its_scores_are_counted():
    def evidence(sessions):
        watch = watching(rule=Rule(metric="faithfulness", slo=0.8))
        few = [replace(point(n, 0.5), cluster=f"s:{n % sessions}") for n in range(6)]
        feed(watch, few)
        detector = watch.stream("shop").detector
        return detector.evidence_log10, detector.current().n

    (apart, n), (together, of) = evidence(6), evidence(1)
    assert together < apart
    assert n == of == 6


def test_what_is_known_of_clusters_outlives_a_restart():
    watch, again = watching(rule=RULE), watching(rule=RULE)
    feed(watch, [replace(point(n, n % 4 // 2), cluster=f"s:{n // 2}") for n in range(400)])
    again.restore(msgspec.json.decode(msgspec.json.encode(watch.saved()), type=SavedWatch), {})
    known = watch.stream("shop").clusters.correlation.lower
    assert again.stream("shop").clusters.correlation.lower == known > 0.5


def minutes_to(watch, cases, state, value, *, begin, rates):
    """Feed a minute of ten scores after the other until the app's alert has this state; how many it took, and when."""
    for minute in range(200):
        at = begin + 60.0 * minute
        scores = [point(int(at) + n, value(n), at=at + n, **rates) for n in range(10)]
        watch.feed(scores, until=at + 60.0, bucket_s=60.0, cases=cases)
        if any(case.alert.state == state for case in cases.values()):
            return minute + 1, at + 60.0
    raise AssertionError(f"never {state}")


def good(n):
    return 0.9 if n % 2 else 0.85


def bad(n):
    return 0.6 if n % 2 else 0.5


@pytest.mark.parametrize("weight", [1.0, None])
def test_two_minutes_of_a_squeezed_budget_change_no_delay_if_the_weights_are_known(weight):
    watch, cases = watching(), {}
    feed(watch, [point(n, good(n), weight=weight) for n in range(600)], cases)
    squeezed = [point(600 + n, good(n), rate=0.012, weight=weight) for n in range(0, 120, 30)]
    feed(watch, squeezed, cases)
    rates = {"rate": 1.0, "weight": weight}
    found, at = minutes_to(watch, cases, "firing", bad, begin=T0 + 720, rates=rates)
    resolved, _ = minutes_to(watch, cases, "resolved", good, begin=at, rates=rates)
    assert (found <= 4 and resolved <= 4) if weight else found > 15


def test_the_end_of_a_recovery_resolves_and_its_progress_is_shown_before():
    watch, cases = watching(), {}
    _, at = minutes_to(watch, cases, "firing", bad, begin=T0, rates={})
    alert = next(case.alert for case in cases.values() if not case.alert.slice)
    assert alert.recovery is None
    feed(watch, [point(int(at - T0) + n, bad(n), at=at + n) for n in range(10)], cases)
    case = next(case for case in cases.values() if not case.alert.slice)
    assert case.alert.recovery == 0.0
    feed(watch, [point(int(at - T0) + 60 + n, good(n), at=at + 60 + n) for n in range(5)], cases)
    assert 0.0 < case.alert.recovery < 1.0
    assert case.alert.recovering_since == at + 60
    described = case.to_describe(at + 10_000.0)
    assert described is None or described <= at + 60  # what came after the recovery began is not part of the drop
    minutes_to(watch, cases, "resolved", good, begin=at + 120, rates={})
    assert (case.alert.state, case.alert.recovery) == ("resolved", None)


def test_another_budget_starts_the_evidence_again_and_keeps_the_baseline():
    watch, again = watching(rule=LEARNED), watching(budget_per_s=1e-7, rule=LEARNED)
    feed(watch, [point(n, 0.8 + 0.1 * (n % 2) - 0.3 * (n > 3000)) for n in range(3010)])
    again.restore(msgspec.json.decode(msgspec.json.encode(watch.saved()), type=SavedWatch), {})
    before, after = watch.stream("shop"), again.stream("shop")
    assert after.baseline.m0(T0) == before.baseline.m0(T0) > 0.7
    assert before.detector.current().n > 0
    assert after.detector.current().n == 0


@pytest.mark.parametrize(
    ("rule", "tolerance"),
    [
        (Rule(metric="faithfulness", baseline="auto"), 0.01),
        (Rule(metric="faithfulness", baseline="seasonal", severity="warn"), 0.01),
        (Rule(metric="abstained", baseline="auto"), 0.02),
        (Rule(metric="faithfulness", baseline="auto", tolerance=0.03), 0.03),
        (Rule(metric="faithfulness", baseline="window"), 0.05),
        (Rule(metric="faithfulness", baseline="ratchet", severity="warn"), 0.02),
        (Rule(metric="faithfulness", slo=0.8), 0.0),
    ],
)
def test_the_tolerance_of_a_rule_is_that_of_its_baseline(rule, tolerance):
    assert tolerance_of(rule) == tolerance
    stream = watch_of(rule, Alerts(), part=1.0, flipped=False).stream("shop")
    assert stream.baseline.tolerance == tolerance


def test_a_forecast_of_an_older_release_is_learned_again_and_the_rest_of_the_stream_stays():
    rule, rng = Rule(metric="faithfulness", baseline="auto", options={}), np.random.default_rng(6)
    watch, again = watching(rule=rule), watching(rule=rule)
    feed(watch, [point(n, float(value)) for n, value in enumerate(rng.random(3000))])
    saved = watch.saved()
    (own,) = saved.streams
    assert watch.stream("shop").baseline.m0(T0 + 3000.0) is not None
    older = replace(own, baseline='{"for":{"kind":"auto","n0":2000,"lag":1000},"state":{}}')
    again.restore(replace(saved, streams=(older,)), {})
    stream = again.stream("shop")
    assert stream.baseline.m0(T0 + 3000.0) is None
    assert stream.baseline.progress() == (0, 2000)
    assert again.closed_until == watch.closed_until
