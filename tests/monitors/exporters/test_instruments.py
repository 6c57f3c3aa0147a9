"""What `/metrics` of the monitors shows, and what it does not show any more."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, Counter

from gaugeway.records import Evaluation, Failed, Sample, Score, Skipped
from gaugeway.runtime.label_cap import MAX_VALUES, OVERFLOW, LabelCap
from gaugeway.settings.shared import Alerts, Metric, Rule
from gaugeway.storage.trials import StoredTrial
from monitors.alerting.engine import StreamStatus, status_of
from monitors.alerting.rules import watch_of
from monitors.analysis.capture_coverage import Captured
from monitors.analysis.quality import Quality
from monitors.exporters.factory import PrometheusExporter
from monitors.exporters.instruments import AlertGauges, Instruments
from monitors.judges.scripted import Scripted
from monitors.metrics.registry import build
from tests.gaugeway.storage.test_trials import trial

TARGETS = {"m": (0.95, 0.7)}
GAUGES = (
    *("quality_n_eff", "quality_coverage_ratio", "quality_mean", "quality_ci_low", "quality_ci_high"),
    *("slo_objective_ratio", "score_threshold_ratio"),
)


@pytest.fixture
def instruments():
    return Instruments(CollectorRegistry(), version="0")


def quality(app, *, mean=0.5):
    return Quality(app=app, metric="m", n=200, n_eff=200.0, coverage_ratio=1.0, mean=mean, ci_low=mean, ci_high=mean)


def value(instruments, name, **labels):
    return instruments.registry.get_sample_value(f"gaugeway_{name}", labels)


def test_the_gauges_of_an_app_that_left_the_window_leave_too(instruments):
    instruments.show_quality([quality("a"), quality("b")], TARGETS)
    assert all(value(instruments, name, app="b", metric="m") is not None for name in GAUGES)
    instruments.show_quality([quality("a")], TARGETS)
    assert all(value(instruments, name, app="a", metric="m") is not None for name in GAUGES)
    assert all(value(instruments, name, app="b", metric="m") is None for name in GAUGES)


def test_a_metric_has_an_objective_only_where_the_user_sets_one(instruments):
    defaults = build({}, Scripted({}), None)
    chosen = build({"context_relevancy": Metric(objective=0.9)}, Scripted({}), None)

    def objectives(catalogue):
        targets = {one.metric.name: (one.objective, one.threshold) for one in catalogue.enabled}
        instruments.show_quality([replace(quality("a"), metric=name) for name in targets], targets)
        assert all(value(instruments, "score_threshold_ratio", app="a", metric=name) is not None for name in targets)
        exported = {name: value(instruments, "slo_objective_ratio", app="a", metric=name) for name in targets}
        return {name: ratio for name, ratio in exported.items() if ratio is not None}

    assert objectives(defaults) == {}
    assert objectives(chosen) == {"context_relevancy": 0.9}
    assert objectives(defaults) == {}


def test_without_a_basis_for_a_number_its_gauge_is_taken_away_and_the_others_stay(instruments):
    instruments.show_quality([quality("a")], TARGETS)
    instruments.show_quality([quality("a", mean=None)], TARGETS)
    assert value(instruments, "quality_mean", app="a", metric="m") is None
    assert value(instruments, "quality_n_eff", app="a", metric="m") == 200.0


def test_apps_beyond_the_cap_have_no_gauges_and_are_counted_once(instruments):
    estimates = [quality(f"app-{k:03}") for k in range(103)]
    watched = [
        StreamStatus(rule="r", metric="m", app=one.app, m0=0.5, evidence_log10=0.0, state="quiet", closed_until=0.0)
        for one in estimates
    ]
    for _ in range(3):
        instruments.show_quality(estimates, TARGETS)
        AlertGauges(instruments).show_streams(watched)
    assert value(instruments, "quality_mean", app="app-099", metric="m") == 0.5
    assert value(instruments, "quality_alarm", app="app-099", metric="m", rule="r") == 0.0
    for app in ("app-100", "_other"):
        assert all(value(instruments, name, app=app, metric="m") is None for name in GAUGES)
        assert value(instruments, "quality_alarm", app=app, metric="m", rule="r") is None
    assert value(instruments, "label_overflow_total", label="app") == 3.0


def test_the_gauges_of_capture_leave_with_their_app_and_apps_beyond_the_cap_have_none(instruments):
    def captured(app):
        return Captured(
            app=app,
            window_s=3600.0,
            answers=40,
            captured=30,
            without_question=0,
            without_passages=10,
            ratio=0.75,
            ci_low=0.6,
            ci_high=0.86,
        )

    names = ("capture_ratio", "capture_ci_low", "capture_ci_high", "capture_n")
    instruments.show_capture([captured(f"app-{k:03}") for k in range(103)])
    assert [value(instruments, name, app="app-099") for name in names] == [0.75, 0.6, 0.86, 40.0]
    assert all(value(instruments, name, app=app) is None for name in names for app in ("app-100", "_other"))
    instruments.show_capture([captured("app-000")])
    assert [value(instruments, name, app="app-000") for name in names] == [0.75, 0.6, 0.86, 40.0]
    assert all(value(instruments, name, app="app-099") is None for name in names)


def test_reasons_of_a_metric_beyond_the_cap_are_counted_together_and_leave_others_alone(instruments):
    exporter = PrometheusExporter(instruments, {})
    some = Sample(id="s", started_at=0.0, app="a", model="m")

    def export(metric, outcome):
        exporter.export(some, [Evaluation(sample_id="s", metric=metric, version="1", outcome=outcome)])

    for number in range(MAX_VALUES + 7):
        export("mine", Skipped(f"reason {number}"))
        export("mine", Failed(f"error {number}", "x"))
    export("faithfulness", Failed("timeout", "x"))
    skipped = {"metric": "mine", "outcome": "skipped"}
    assert value(instruments, "evaluations_total", **skipped, reason="reason 0") == 1
    shown = [one for one in instruments.registry.collect() if one.name == "gaugeway_evaluations"]
    reasons = {each.labels["reason"] for one in shown for each in one.samples if each.labels["metric"] == "mine"}
    assert len(reasons) == MAX_VALUES + 1
    assert OVERFLOW in reasons
    assert value(instruments, "label_overflow_total", label="reason:mine") == MAX_VALUES + 14
    assert value(instruments, "evaluations_total", metric="faithfulness", outcome="failed", reason="timeout") == 1


def test_the_memory_for_values_beyond_the_cap_is_bounded():
    registry = CollectorRegistry()
    overflow = Counter("overflow", "Test.", ("label",), registry=registry)
    cap = LabelCap(overflow, limit=1, remembered=5)
    assert [cap("app", f"a{k}") for k in [*range(20), 0]] == ["a0", *["_other"] * 19, "a0"]
    assert registry.get_sample_value("overflow_total", {"label": "app"}) == 5.0


def test_a_baseline_is_shown_while_it_is_known_and_a_slice_while_its_alert_fires(instruments):
    def show(m0, state):
        about = {"rule": "r", "metric": "m", "app": "a", "evidence_log10": -1.0, "closed_until": 0.0}
        gauges.show_streams(
            [StreamStatus(**about, m0=m0, state="quiet"), StreamStatus(**about, m0=m0, state=state, slice="model=x")]
        )
        labels = {"app": "a", "metric": "m", "rule": "r"}
        return (
            value(instruments, "quality_baseline", **labels),
            value(instruments, "quality_slice_alarm", **labels, slice="model=x"),
        )

    gauges = AlertGauges(instruments)
    assert show(None, "quiet") == (None, None)
    assert show(0.8, "firing") == (0.8, 1.0)
    assert show(None, "quiet") == (None, None)


def test_the_severity_of_a_rule_is_exported_beside_its_alarm(instruments):
    watch = watch_of(Rule(metric="slow", baseline="auto", severity="warn"), Alerts(), part=1.0, flipped=True)
    AlertGauges(instruments).show_streams([status_of(watch, watch.stream("shop"), 0.0)])
    assert value(instruments, "quality_alarm", app="shop", metric="slow", rule="slow-rise-warn") == 0.0
    assert value(instruments, "rule_info", rule="slow-rise-warn", severity="warn") == 1.0


def test_the_window_of_a_mean_is_exported_beside_it_and_leaves_with_it(instruments):
    known = {"n": 20, "n_eff": 20.0, "coverage_ratio": 1.0, "mean": 0.5, "ci_low": 0.4, "ci_high": 0.6}
    wide = [Quality(app="a", metric=metric, window_s=21_600.0, **known) for metric in ("m", "abstained")]
    instruments.show_quality(wide, TARGETS)
    assert value(instruments, "quality_window_seconds", app="a", metric="m") == 21_600.0
    assert value(instruments, "signal_window_seconds", app="a", signal="abstained") == 21_600.0
    assert value(instruments, "signal_mean", app="a", signal="abstained") == 0.5
    instruments.show_quality([replace(one, mean=None, ci_low=None, ci_high=None) for one in wide], TARGETS)
    assert value(instruments, "quality_window_seconds", app="a", metric="m") is None
    assert value(instruments, "signal_window_seconds", app="a", signal="abstained") is None


def judged(outcome, judge="large"):
    return Evaluation(sample_id="x", metric="answer_relevancy", version="1", outcome=outcome, judge=judge)


@pytest.mark.parametrize(
    ("response", "outcomes", "kind"),
    [
        ("I don't know.", [Score(0.0, "the response is noncommittal")], None),
        ("I don't know.", [Skipped("abstained")], None),
        ("I don't know.", [Score(0.9, "9 of 10 claims are relevant")], "signal_only"),
        ("That is a story for another day.", [Score(0.0, "the response is noncommittal")], "judge_only"),
        ("That is a story for another day.", [Score(0.9), Skipped("abstained")], "judge_only"),
        ("It opens at nine.", [Score(0.0, "0 of 1 claims are relevant")], None),
        ("It opens at nine.", [Score(0.5, "1 of 2 claims are supported by the contexts; noncommittal")], None),
    ],
)
def test_where_judge_and_signal_disagree_about_abstention_is_counted(instruments, response, outcomes, kind):
    exporter = PrometheusExporter(instruments, {})
    exporter.export(sample_of(response), [judged(outcome) for outcome in outcomes])
    kinds = {
        one: value(instruments, "abstention_disagreements_total", app="shop", kind=one)
        for one in ("judge_only", "signal_only")
    }
    assert value(instruments, "abstention_comparisons_total", app="shop") == 1.0
    assert {one for one, count in kinds.items() if count} == ({kind} if kind else set())


@pytest.mark.parametrize(
    "evaluations",
    [[judged(Failed("timeout"))], [judged(Skipped("no_claims"))], [judged(Score(0.0, "noncommittal"), judge=None)], []],
)
def test_what_no_judge_decided_is_no_disagreement(instruments, evaluations):
    PrometheusExporter(instruments, {}).export(sample_of("It opens at nine."), evaluations)
    assert value(instruments, "abstention_comparisons_total", app="shop") is None


def sample_of(response):
    return Sample(id="x", started_at=0.0, app="shop", response=response)


def test_a_watched_switch_that_did_harm_is_shown_until_its_trial_is_removed(instruments):
    def stored(name, why, watch=True):
        about = trial(name=name, watch=watch)
        return StoredTrial(about, "ended", 1.0, {}, why)

    def shown():
        family = next(iter(instruments.trial_worse.collect()))
        return {one.labels["trial"]: one.value for one in family.samples}

    instruments.show_trials([stored("a", "worse"), stored("b", "not_worse"), stored("c", "decided", watch=False)])
    assert shown() == {"a": 1.0, "b": 0.0}
    instruments.show_trials([stored("b", "not_worse")])
    assert shown() == {"b": 0.0}
