"""Which alerts a silence holds back, and when."""

from __future__ import annotations

import time

import pytest

from monitors.alerting.acknowledgements import Matcher, Silence

LABELS = {
    "alertname": "GaugewayQualityDrop",
    "app": "shop",
    "metric": "faithfulness",
    "rule": "answers",
    "severity": "page",
    "slice": "model=m1",
}


def matcher(text):
    name, op, value = text.split(" ")
    return Matcher(name=name, op=op, value=value.strip("'"))


def silence(*matchers, starts=100.0, ends=200.0, by="lee"):
    return Silence(id="1", matchers=tuple(map(matcher, matchers)), starts=starts, ends=ends, by=by)


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("app = shop", True),
        ("app = sho", False),
        ("app != shop", False),
        ("app != bank", True),
        ("app =~ sh.*", True),
        ("app =~ sh", False),
        ("app =~ bank|shop", True),
        ("app !~ sh.*", False),
        ("app !~ sh", True),
        ("slice =~ model=.*", True),
        ("severity = ''", False),
    ],
)
def test_one_condition(text, met):
    assert matcher(text).matches(LABELS) is met


def test_a_label_that_is_not_there_is_empty():
    whole = {name: value for name, value in LABELS.items() if name != "slice"}
    assert matcher("slice = ''").matches(whole)
    assert not matcher("slice = ''").matches(LABELS)
    assert matcher("slice != model=m1").matches(whole)


def test_all_conditions_together_and_only_between_start_and_end():
    both = silence("app = shop", "metric =~ faith.*")
    assert [both.mutes(LABELS, now) for now in (99.9, 100.0, 199.9, 200.0)] == [False, True, True, False]
    assert [both.state(now) for now in (99.9, 100.0, 200.0)] == ["pending", "active", "expired"]
    assert not both.mutes({**LABELS, "metric": "answer_relevancy"}, 150.0)


def test_a_pattern_that_takes_for_ever_silences_nothing_and_holds_nobody_up():
    slow = Matcher(name="app", op="=~", value="(a|aa)+$")
    begun = time.thread_time()
    assert not slow.matches({"app": "a" * 60 + "b"})
    assert not Matcher(name="app", op="!~", value="(a|aa)+$").matches({"app": "a" * 60 + "b"})
    assert time.thread_time() - begun < 1.0


def test_a_slow_pattern_is_tried_once_for_each_value(monkeypatch):
    tried = []

    def fullmatch(pattern, value, timeout):
        tried.append(value)
        raise TimeoutError

    monkeypatch.setattr("monitors.alerting.acknowledgements.regex.fullmatch", fullmatch)
    slow = Matcher(name="app", op="=~", value="(b|bb)+$")
    assert not any(slow.matches({"app": app}) for app in ("b1", "b2") * 100)
    assert tried == ["b1", "b2"]


@pytest.mark.parametrize(
    ("made", "field"),
    [
        (silence(), "matchers: "),
        (silence("app =~ ("), "matchers[0].value: "),
        (silence("app = shop", "rule !~ ["), "matchers[1].value: "),
        (silence("app =~ .*"), "matchers: at least one must not match an empty value"),
        (silence("app != bank"), "matchers: at least one must not match an empty value"),
        (silence("app = shop", ends=150.0), "ends: "),
        (silence("app = shop", starts=300.0, ends=250.0), "ends: "),
        (silence("app = shop", by=" "), "by: "),
        (silence("app = " + "x" * 501), "matchers[0].value: "),
    ],
)
def test_what_cannot_be_meant_is_named(made, field):
    (problem,) = made.problems(now=160.0)
    assert problem.startswith(field)


def test_a_good_one_has_no_problems():
    assert silence("app != bank", "severity = page").problems(now=160.0) == []
