"""Rules on signals: their directions, their names, and their part of the budget."""

import asyncio
import math
from dataclasses import replace

import pytest

from gaugeway.records import Evaluation, Sample, Score, Skipped
from gaugeway.settings.shared import Alerts, Rule
from gaugeway.signals import SIGNALS
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from monitors.alerting.engine import AlertEngine
from monitors.alerting.notifiers.message import labels_of, summary, title
from monitors.alerting.notifiers.webhook import group_body
from monitors.alerting.rule_watch import name_of, severity_of
from monitors.alerting.rules import (
    FOR_SIGNALS,
    budget_parts,
    is_flipped,
    problems_of,
    removal_warnings,
    rules_of,
    tolerance_of,
    watch_of,
)
from monitors.metrics.registry import zero_is_best as lower

METRICS = ("faithfulness", "hallucination", "answer_relevancy")


def test_by_default_every_metric_and_every_signal_is_watched():
    rules = rules_of(Alerts(), METRICS, SIGNALS)
    names = [name_of(rule, lower_is_better=is_flipped(rule, lower)) for rule in rules]
    assert {"faithfulness-drop", "hallucination-rise", "abstained-rise", "truncated-rise"} <= set(names)
    assert {"retriever_score-drop", "retriever_score-rise", "contexts_per_answer-drop"} <= set(names)
    assert len(set(names)) == len(names)
    assert {rule.metric for rule in rules} == {*METRICS, *SIGNALS}
    assert problems_of(rules, [*METRICS, *SIGNALS], lower) == []


def test_of_the_signals_only_two_page_unless_a_rule_says_so():
    paging = {rule.metric for rule in rules_of(Alerts(), METRICS, SIGNALS) if severity_of(rule) == "page"}
    assert paging == {*METRICS, "no_contexts", "truncated"}
    stated = Rule(metric="abstained", slo=0.1, severity="page"), Rule(metric="abstained", slo=0.1)
    assert [severity_of(rule) for rule in stated] == ["page", "warn"]


def test_a_rule_that_warns_by_default_keeps_its_name_and_has_the_tolerance_of_a_signal():
    (rule,) = rules_of(Alerts(), (), ("abstained",))
    assert name_of(rule, lower_is_better=True) == "abstained-rise"
    stream = watch_of(rule, Alerts(), part=1.0, flipped=True).stream("shop")
    assert (stream.severity, tolerance_of(rule), stream.baseline.tolerance) == ("warn", 0.02, 0.02)


@pytest.mark.parametrize("signals", [SIGNALS, ("abstained",), ()])
def test_the_budget_of_all_rules_is_the_configured_one(signals):
    config = Alerts(false_alerts_per_30d=2.0, slices=("app",))
    rules = rules_of(config, METRICS, signals)
    parts = budget_parts(rules, config)
    assert sum(parts) == pytest.approx(1.0)
    watches = [watch_of(rule, config, part=part, flipped=False) for rule, part in zip(rules, parts, strict=True)]
    assert sum(watch.budget_per_s for watch in watches) * 30 * 86_400 == pytest.approx(2.0)
    on_metrics = sum(part for rule, part in zip(rules, parts, strict=True) if rule.metric in METRICS)
    assert on_metrics == pytest.approx(1.0 - FOR_SIGNALS if signals else 1.0)


def test_configured_rules_share_the_budget_evenly_and_are_the_only_ones():
    config = Alerts(rules=(Rule(metric="abstained", slo=0.1), Rule(metric="faithfulness", slo=0.8)))
    assert rules_of(config, METRICS, SIGNALS) == config.rules
    assert budget_parts(config.rules, config) == [0.5, 0.5]
    assert budget_parts((), config) == []


def test_rules_of_ones_own_are_added_to_the_default_ones_where_these_are_kept():
    own = (Rule(metric="faithfulness", slo=0.8), Rule(metric="abstained", slo=0.1, name="refusals"))
    config = Alerts(rules=own, default_rules=True)
    rules = rules_of(config, METRICS, SIGNALS, lower)
    assert rules == (*own, *rules_of(Alerts(), METRICS, SIGNALS, lower))
    assert problems_of(rules, [*METRICS, *SIGNALS], lower) == []
    assert sum(budget_parts(rules, config)) == pytest.approx(1.0)
    assert rules_of(Alerts(default_rules=True), METRICS) == rules_of(Alerts(), METRICS)
    assert rules_of(Alerts(default_rules=False), METRICS) == ()


@pytest.mark.parametrize(
    ("own", "replaces"),
    [
        (Rule(metric="hallucination", baseline="window"), True),
        (Rule(metric="hallucination", baseline="auto", direction="rise", name="mine"), True),
        (Rule(metric="hallucination", baseline="auto", direction="drop"), False),
        (Rule(metric="hallucination", baseline="auto", severity="warn"), False),
        (Rule(metric="hallucination", baseline="auto", apps=("shop",)), False),
        (Rule(metric="hallucination", slo=0.1), False),
    ],
)
def test_a_baseline_of_ones_own_replaces_the_default_one_of_the_same_apps_and_severity(own, replaces):
    rules = rules_of(Alerts(rules=(own,), default_rules=True), METRICS, (), lower)
    assert [rule for rule in rules if rule.metric == "hallucination"] == (
        [own] if replaces else [own, Rule(metric="hallucination", baseline="auto")]
    )
    assert problems_of(rules, METRICS, lower) == []


def test_what_rules_of_ones_own_remove_is_named_unless_the_configuration_settles_it():
    own = (Rule(metric="faithfulness", slo=0.8), Rule(metric="hallucination", baseline="auto"))
    (warning,) = removal_warnings(Alerts(rules=own), METRICS, ("slow",), lower)
    assert "the default rules on answer_relevancy, slow;" in warning
    assert "alerts.default_rules = true" in warning
    for config in (Alerts(), Alerts(rules=()), *(Alerts(rules=own, default_rules=kept) for kept in (True, False))):
        assert removal_warnings(config, METRICS, ("slow",), lower) == []


def test_a_rule_on_a_signal_that_is_off_is_a_problem():
    (problem,) = problems_of([Rule(metric="abstained", slo=0.1)], METRICS, lower)
    assert problem == "alerts.rules[0].metric: signal 'abstained' is switched off; remove it from signals.off"


async def watched(path, rules, values, *, metric, beside=lambda _: ()):
    """The alerts after these values, one a second in buckets of ten; `beside` gives other evaluations of each."""
    store, clock = SQLiteStore(path / "store.db"), [0.0]
    config = Alerts(rules=rules, bucket_s=10.0, watermark_s=0.0, slices=("app",))
    engine = AlertEngine(
        rules,
        config,
        store,
        store,
        notify_within_s=300.0,  # a busy machine describes an alert in its own time
        queue_oldest=lambda: asyncio.sleep(0),
        notifiers={},
        lower_is_better=lower,
        clock=lambda: clock[0],
    )
    try:
        for number, value in enumerate(values):
            one = Sample(id=str(number), started_at=1000.0 + number, app="shop", response="Yes.")
            found = Evaluation(sample_id=one.id, metric=metric, version="1", outcome=Score(value), weight=1.0)
            await store.add(one, [found, *beside(one)])
        clock[0] = 1000.0 + len(values) + 100.0
        await engine.tick()
        return engine.alerts()
    finally:
        await engine.aclose()
        await store.aclose()


def wave(before, since):
    """2500 exchanges of which one in `before` is 1, then 600 of which one in `since` is."""
    quiet = [float(number % before == 0) for number in range(2500)]
    return quiet + [float(number % since == 0) for number in range(600)]


def test_a_wave_of_refusals_fires_with_words_that_say_so(tmp_path):
    rules = rules_of(Alerts(), (), ("abstained",))
    (alert,) = asyncio.run(watched(tmp_path, rules, wave(50, 3), metric="abstained"))
    assert (alert.state, alert.rule, alert.direction) == ("firing", "abstained-rise", "rise")
    assert math.isclose(alert.mean_before, 0.02, abs_tol=0.005)
    assert alert.mean_since > 0.25
    shown = alert.on_own_scale().finding
    assert shown.estimate == pytest.approx(alert.mean_since)
    assert shown.interval == pytest.approx(alert.ci)
    assert alert.mean_before < shown.baseline < alert.mean_since
    noisy = replace(alert, finding=replace(alert.finding, baseline=0.95)).on_own_scale().finding.baseline
    assert noisy == 0.05, "1 - 0.95 is 0.050000000000000044"
    assert labels_of(alert)["signal"] == labels_of(alert)["metric"] == "abstained"
    assert title([alert]).startswith("Firing: share of answers that decline to answer (abstained) of shop rose from")
    assert summary(alert).startswith("share of answers that decline to answer (abstained) of shop rose from 0.02 to")
    assert group_body([alert])["alerts"][0]["labels"]["signal"] == "abstained"


@pytest.mark.full
@pytest.mark.parametrize(("lost", "cause"), [(True, "retrieval"), (False, "unknown")])
def test_refusals_are_blamed_on_a_retrieval_that_returns_nothing(tmp_path, lost, cause):
    def grounded(one):
        found = Skipped("no_contexts") if lost and one.started_at >= 3500.0 else Score(0.8)
        return [Evaluation(sample_id=one.id, metric="lexical_groundedness", version="1", outcome=found, weight=1.0)]

    rules = rules_of(Alerts(), (), ("abstained",))
    (alert,) = asyncio.run(watched(tmp_path, rules, wave(50, 2), metric="abstained", beside=grounded))
    assert (alert.state, alert.likely_cause) == ("firing", cause), alert.cause_detail


@pytest.mark.full
@pytest.mark.parametrize(
    ("scores", "cause", "words"),
    [
        ((0.5, 0.5), "generation", "the retrieval returns about as much as before"),
        ((0.5, 0.2), "retrieval", "retriever_score changed with abstained"),
        ((0.5, 0.8), "retrieval", "retriever_score changed with abstained"),
        (None, "unknown", "changed little, if at all: no_contexts 0.00 to 0.00"),
    ],
)
def test_signals_of_the_retrieval_tell_what_changed_beside_the_answers(tmp_path, scores, cause, words):
    def retrieved(one):
        found = {"no_contexts": 0.0, "contexts_per_answer": 0.5}
        if scores is not None:
            found["retriever_score"] = scores[one.started_at >= 3500.0] + (int(one.id) % 11 - 5) / 50
        return [
            Evaluation(sample_id=one.id, metric=name, version="1", outcome=Score(value), weight=1.0)
            for name, value in found.items()
        ]

    rules = rules_of(Alerts(), (), ("abstained",))
    (alert,) = asyncio.run(watched(tmp_path, rules, wave(50, 2), metric="abstained", beside=retrieved))
    assert (alert.state, alert.likely_cause) == ("firing", cause), alert.cause_detail
    assert words in alert.cause_detail


@pytest.mark.full
@pytest.mark.parametrize(
    ("metric", "cause", "words"),
    [
        ("truncated", "generation", "token limit"),
        ("tool_invalid", "generation", "calls tools"),
        ("slow", "generation", "takes longer"),
        ("expensive", "generation", "more tokens"),
        ("no_contexts", "retrieval", "retrieval returns"),
    ],
)
def test_some_signals_name_their_cause_themselves(tmp_path, metric, cause, words):
    rules = rules_of(Alerts(), (), (metric,))
    (alert,) = asyncio.run(watched(tmp_path, rules, wave(50, 2), metric=metric))
    assert (alert.state, alert.likely_cause) == ("firing", cause)
    assert words in alert.cause_detail
    assert alert.cause_strength == 0.9


def ranks(around, count):
    return [min(1.0, max(0.0, around + (number * 37 % 100 - 50) / 120)) for number in range(count)]


@pytest.mark.full
@pytest.mark.parametrize(("since", "rule", "word"), [(0.3, "drop", "fell"), (0.7, "rise", "rose")])
def test_a_signal_is_watched_in_both_directions(tmp_path, since, rule, word):
    rules = rules_of(Alerts(), (), ("retriever_score",))
    values = ranks(0.5, 2500) + ranks(since, 800)
    (alert,) = asyncio.run(watched(tmp_path, rules, values, metric="retriever_score"))
    assert (alert.state, alert.rule, alert.direction) == ("firing", f"retriever_score-{rule}", rule)
    assert alert.mean_before == pytest.approx(0.5, abs=0.02)
    assert alert.mean_since == pytest.approx(since, abs=0.05)
    assert f" {word} from " in summary(alert)


def test_a_quiet_stream_fires_nothing(tmp_path):
    rules = rules_of(Alerts(), (), ("retriever_score", "abstained"))
    assert asyncio.run(watched(tmp_path, rules, ranks(0.5, 4000), metric="retriever_score")) == []
