"""What changed with the onset of an alert, from the evaluations on either side."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from monitors.alerting.changes import changes_at_onset
from monitors.alerting.notifiers.message import annotations_of, changed, headline, title
from monitors.records import Change
from monitors.storage.stores import Point
from tests.support.receivers import alert

RNG = np.random.default_rng(7)


def points(n, begin, value, *, model="large", prompt="p1", tags=None, every=1.0):
    """Answers from `begin` on, one each second, with scores around `value`; `model` may be a function of the number."""
    return [
        Point(
            sample_id=f"{begin}-{number}",
            started_at=begin + every * number,
            app="shop",
            model=model(number) if callable(model) else model,
            prompt=prompt,
            tags=tags or {},
            metric="faithfulness",
            outcome="score",
            value=float(np.clip((value(number) if callable(value) else value) + RNG.normal(0.0, 0.05), 0.0, 1.0)),
            reason="",
            rate=1.0,
        )
        for number in range(n)
    ]


def found(before, since):
    return changes_at_onset(before, since, "faithfulness")


def test_a_model_that_replaced_another_is_named_with_it():
    (change,) = found(points(800, 0, 0.87), points(60, 800, 0.61, model="mini"))
    assert (change.kind, change.value, change.replaced) == ("model", "mini", "large")
    assert (change.before, change.since) == (0.0, 1.0)


def test_all_that_changed_at_once_is_named():
    since = points(60, 800, 0.5, model="mini", prompt="p2", tags={"release": "42"})
    kinds = {change.kind for change in found(points(800, 0, 0.9, tags={"release": "41"}), since)}
    assert kinds == {"model", "prompt", "tag:release"}


def test_a_late_onset_hides_no_change():
    before = [*points(800, 0, 0.87), *points(40, 800, 0.61, model="mini")]
    (change,) = found(before, points(120, 840, 0.61, model="mini"))
    assert (change.value, change.replaced) == ("mini", "")
    assert 0.0 < change.before < 0.5


def test_what_changed_long_before_the_onset_is_not_named():
    before = [*points(5_000, 0, 0.87), *points(800, 5_000, 0.87, model="mini")]
    assert found(before, points(120, 5_800, 0.61, model="mini")) == ()


def test_an_experiment_too_small_for_the_fall_is_not_named():
    since = points(1_000, 800, 0.6, model=lambda number: "try" if number % 33 == 0 else "large")
    assert found(points(800, 0, 0.87), since) == ()
    half = points(400, 800, lambda number: 0.5 * (number % 2) + 0.4, model=lambda n: "large" if n % 2 else "canary")
    (change,) = found(points(800, 0, 0.9), half)
    assert (change.value, change.replaced, change.since) == ("canary", "", 0.5)


def test_a_new_version_whose_answers_are_the_better_ones_is_not_named():
    since = points(400, 800, lambda number: 0.9 - 0.5 * (number % 2), model=lambda n: "large" if n % 2 else "good")
    assert found(points(800, 0, 0.9), since) == ()


def test_without_a_change_it_says_so():
    assert found(points(800, 0, 0.87), points(60, 800, 0.61)) == ()
    assert found([], points(60, 800, 0.61)) == ()


def test_a_mixture_that_only_varies_is_no_change():
    for seed in range(200):
        rng = np.random.default_rng(seed)
        mixed = [str(model) for model in rng.choice(["a", "b"], 900)]
        before = points(800, 0, 0.87, model=lambda number, mixed=mixed: mixed[number])
        since = points(100, 800, 0.61, model=lambda number, mixed=mixed: mixed[800 + number])
        assert found(before, since) == (), seed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Change(kind="model", value="mini", replaced="large"), "model mini replaced large"),
        (Change(kind="prompt", value="9f3b", replaced="77aa"), "prompt version 9f3b replaced 77aa"),
        (Change(kind="tag:release", value="42", since=0.4), "release 42 appeared in 40% of the answers"),
        (Change(kind="model", value="m", before=0.3, since=0.95), "model m grew from 30% to 95% of the answers"),
    ],
)
def test_what_changed_comes_first_in_title_and_summary(change, words):
    one = replace(alert(), changes=(change,))
    assert headline(one) == f"faithfulness of shop fell from 0.91 to 0.62 since {words}"
    assert title([one]) == f"Firing: {headline(one)}"
    told = annotations_of(one)
    assert told["changed"] == changed(one) == words
    assert told["summary"].startswith(headline(one))


def test_nothing_changed_is_said_and_not_looked_up_is_not():
    assert "no change of model, prompt or release was seen" in annotations_of(replace(alert(), changes=()))["summary"]
    assert annotations_of(alert())["changed"] == ""
