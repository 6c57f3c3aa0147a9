"""The default rules where an LLM judges a sample of what decisions judge, and the cause of their disagreement."""

from __future__ import annotations

from gaugeway.settings.shared import Alerts
from monitors.alerting.causes.explain import explain
from monitors.alerting.rules import FOR_SIGNALS, baseline_for, budget_parts, rules_of

TIERS = ["faithfulness", "faithfulness~anchor", "faithfulness~disagreement"]


def test_decisions_and_disagreement_are_watched_and_the_anchor_is_not():
    rules = rules_of(Alerts(), TIERS, ["abstained"])
    assert [(rule.metric, rule.direction) for rule in rules] == [
        ("faithfulness", None),
        ("faithfulness~disagreement", "drop"),
        ("faithfulness~disagreement", "rise"),
        ("abstained", "rise"),
    ]
    assert budget_parts(rules, Alerts()) == [1.0 - FOR_SIGNALS, *[FOR_SIGNALS / 3] * 3]


def test_a_smaller_disagreement_is_no_better_baseline_than_a_larger_one():
    baselines = [baseline_for(rule, 0.01, flipped=False) for rule in rules_of(Alerts(), TIERS)]
    assert [baseline.keywords["improves"] for baseline in baselines] == [True, False, False]


def test_a_change_of_the_disagreement_is_a_change_of_a_judge():
    found = explain("faithfulness~disagreement", [], [])
    assert found.cause == "judge"
    assert found.strength == 0.5
