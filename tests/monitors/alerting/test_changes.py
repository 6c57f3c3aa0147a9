"""What changed with the onset of an alert, from the evaluations on either side."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from gaugeway.records import Change
from gaugeway.storage.stores import Point
from monitors.alerting.causes import Observation, Passages, explain
from monitors.alerting.changes import changes_at_onset, documents_change, placed, source_change
from monitors.alerting.notifiers.message import annotations_of, at_onset, changed, headline, summary, title, verdict
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
    assert (change.value, change.replaced) == ("mini", "large")
    assert 0.0 < change.before < 0.5


def test_what_changed_long_before_the_onset_is_not_named():
    before = [*points(5_000, 0, 0.87), *points(800, 5_000, 0.87, model="mini")]
    assert found(before, points(120, 5_800, 0.61, model="mini")) == ()


@pytest.mark.parametrize("since", [60, 1_000])
def test_what_was_well_for_an_hour_before_the_onset_is_not_named_however_many_answers_follow(since):
    before = [*points(1_200, 0, 0.87, every=10.0), *points(300, 12_000, 0.87, model="mini", every=10.0)]
    assert found(before, points(since, 15_000, 0.61, model="mini")) == ()


def test_a_busy_app_whose_onset_is_dated_a_minute_late_hides_no_change():
    before = [*points(6_000, 0, 0.87, every=0.1), *points(600, 600, 0.61, model="mini", every=0.1)]
    (change,) = found(before, points(600, 660, 0.61, model="mini", every=0.1))
    assert (change.value, change.since) == ("mini", 1.0)


@pytest.mark.parametrize("parts", [["mini", "nano"], ["mini", "nano", "large"]])
def test_two_versions_that_came_at_once_are_both_named(parts):
    since = points(
        300,
        800,
        lambda number: 0.87 if parts[number % len(parts)] == "large" else 0.5,
        model=lambda number: parts[number % len(parts)],
    )
    changes = found(points(800, 0, 0.87), since)
    assert {change.value for change in changes} == {"mini", "nano"}


def test_a_source_is_named_with_its_share_if_it_came_with_the_onset():
    before, since = points(800, 0, 0.87), points(60, 800, 0.61)
    always, new = (Passages(documents=frozenset(names), contradicted=None) for names in ("a", "ab"))
    read = {point.sample_id: always for point in before} | {point.sample_id: new for point in since}
    new_source = Change(kind="source", value="b", elsewhere="none")
    assert source_change("b", read, before, since, "faithfulness") == new_source
    assert source_change("a", read, before, since, "faithfulness") is None, "it was there before"
    assert source_change("b", {}, before, since, "faithfulness") is None, "nothing was read"
    rare = read | {point.sample_id: always for number, point in enumerate(since) if number % 20}
    assert source_change("b", rare, before, since, "faithfulness") is None, "in one of twenty answers"


def given(points, documents):
    return {
        one.sample_id: Passages(documents=frozenset(documents(number)), contradicted=None)
        for number, one in enumerate(points)
    }


def test_replaced_documents_are_a_change_though_none_of_them_came_alone():
    before, since = points(400, 0, 0.9), points(60, 400, lambda number: 0.9 if number % 2 else 0.3)
    read = given(before, lambda n: (f"d{n % 30}",))
    read |= given(since, lambda n: (f"d{n % 30}",) if n % 2 else (f"d{n % 30} (export)",))
    change = documents_change(read, before, since, "faithfulness")
    assert (change.kind, change.before, change.since) == ("documents", 0.0, 0.5)
    assert "(export)" in change.value
    assert "and 14 more" in change.value
    found = alert(mean_before=0.9, mean_since=0.6, changes=(change,))
    assert "after documents not seen before (d0 (export) and 14 more) (50 % of answers)" in headline(found)


def test_documents_that_are_always_new_are_no_change():
    before, since = points(400, 0, 0.9), points(60, 400, 0.4)
    read = given(before, lambda n: (f"old {n}",)) | given(since, lambda n: (f"new {n}",))
    assert documents_change(read, before, since, "faithfulness") is None


def test_new_documents_whose_answers_are_the_better_ones_are_not_named():
    before, since = points(400, 0, 0.9), points(60, 400, lambda number: 0.95 if number % 2 else 0.2)
    read = given(before, lambda n: (f"d{n % 30}",))
    read |= given(since, lambda n: (f"d{n % 30} (good)",) if n % 2 else (f"d{n % 30}",))
    assert documents_change(read, before, since, "faithfulness") is None
    assert documents_change({}, before, since, "faithfulness") is None


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
    for seed in range(60):
        rng = np.random.default_rng(seed)
        mixed = [str(model) for model in rng.choice(["a", "b"], 900)]
        before = points(800, 0, 0.87, model=lambda number, mixed=mixed: mixed[number])
        since = points(100, 800, 0.61, model=lambda number, mixed=mixed: mixed[800 + number])
        assert found(before, since) == (), seed


@pytest.mark.parametrize(
    ("change", "words", "name"),
    [
        (Change(kind="model", value="mini", replaced="large"), "model mini replaced large", "model mini"),
        (Change(kind="prompt", value="9f3b", replaced="77aa"), "prompt version 9f3b replaced 77aa", "prompt 9f3b"),
        (
            Change(kind="tag:release", value="42", since=0.4),
            "release 42 appeared in 40% of the answers",
            "release 42 (40 % of answers)",
        ),
        (Change(kind="source", value="b", since=0.83), "source b appeared in 83% of the answers", "source b (83 % of"),
        (Change(kind="model", value="m", before=0.3, since=0.95), "model m grew from 30% to 95% of the", "model m"),
    ],
)
def test_what_changed_is_in_title_and_summary(change, words, name):
    one = replace(alert(), changes=(change,))
    assert headline(one).startswith(f"faithfulness of shop fell from 0.91 to 0.62 after {name}")
    assert title([one]) == f"Firing: {headline(one)}"
    told = annotations_of(one)
    assert told["changed"] == changed(one)
    assert changed(one).startswith(words)
    assert told["summary"].startswith(headline(one))
    assert at_onset(one) in told["summary"]
    assert at_onset(one).startswith(f"At the same time {words}")


def test_nothing_changed_is_said_and_not_looked_up_is_not():
    assert "No new model, prompt or release explains it" in annotations_of(replace(alert(), changes=()))["summary"]
    assert annotations_of(alert())["changed"] == ""


TOPICS = ("refund", "luggage", "bicycle", "seat", "meal", "delay")
OLD, NEW = {"release": "8.1"}, {"release": "8.2"}


def described(before, since):
    """An alert as it is described from these answers, which are about one topic after the other."""
    sides = [
        [
            Observation(
                sample_id=point.sample_id,
                metric=point.metric,
                started_at=point.started_at,
                rate=1.0,
                outcome="score",
                value=point.value,
                reason="",
                version="1",
                judge=None,
                strata={
                    "model": point.model,
                    "prompt": point.prompt,
                    "topic": TOPICS[number % len(TOPICS)],
                    **{f"tag:{name}": value for name, value in point.tags.items()},
                },
            )
            for number, point in enumerate(side)
        ]
        for side in (before, since)
    ]
    why = explain("faithfulness", *sides)
    place = {} if why.place is None else {"confined_to": why.slice, "mostly": not why.place.only}
    changes = tuple(placed(change, why.place) for change in found(before, since))
    return replace(alert(), likely_cause=why.cause, cause_detail=why.detail, changes=changes, **place)


def of_one_topic(number):
    return 0.9 if number % len(TOPICS) else 0.3


def test_a_release_under_which_only_a_topic_fell_is_not_blamed():
    one = described(points(900, 0, 0.9, tags=OLD), points(300, 900, of_one_topic, tags=NEW))
    assert headline(one) == "faithfulness of shop fell from 0.91 to 0.62, only in topic “refund”"
    assert verdict(one) == "No clear cause yet"
    assert at_onset(one) == "At the same time release 8.2 replaced 8.1; other topics did not fall under it."
    assert at_onset(one) in summary(one)


def test_a_topic_that_carries_the_fall_is_named_though_the_rest_fell_a_little():
    since = points(3_000, 900, lambda number: 0.86 if number % len(TOPICS) else 0.3, tags=NEW)
    one = described(points(900, 0, 0.9, tags=OLD), since)
    assert headline(one).endswith(", mostly in topic “refund”")
    assert at_onset(one) == "At the same time release 8.2 replaced 8.1; other topics hardly fell under it."


def test_a_release_under_which_all_topics_fell_is_named_with_the_caveat():
    one = described(points(900, 0, 0.9, tags=OLD), points(300, 900, 0.5, tags=NEW))
    assert headline(one) == "faithfulness of shop fell from 0.91 to 0.62 after release 8.2"
    assert verdict(one) == "Perhaps release 8.2: no other cause was found"
    assert at_onset(one) == "At the same time release 8.2 replaced 8.1, which is no proof. Roll it back to check."


def test_two_changes_in_the_same_answers_cannot_be_told_apart():
    one = described(points(900, 0, 0.9, tags=OLD), points(300, 900, 0.5, tags=NEW, prompt="p2"))
    assert headline(one) == "faithfulness of shop fell from 0.91 to 0.62 after prompt p2 and release 8.2"
    assert verdict(one) == "Perhaps prompt p2 or release 8.2: no other cause was found"
    assert at_onset(one) == (
        "At once, and in the same answers, prompt version p2 replaced p1 and release 8.2 replaced 8.1: the data cannot "
        "tell them apart. Roll back both, or one at a time."
    )


def test_of_two_changes_the_one_whose_answers_are_as_good_as_before_elsewhere_is_not_blamed():
    since = points(
        600,
        900,
        lambda number: 0.3 if number % 5 < 2 else 0.9,
        tags=NEW,
        model=lambda number: "mini" if number % 5 < 2 else "large",
    )
    one = described(points(900, 0, 0.9, tags=OLD), since)
    assert headline(one) == "faithfulness of shop fell from 0.91 to 0.62 after model mini (40 % of answers)"
    assert "At the same time release 8.2 replaced 8.1; other answers did not fall under it." in at_onset(one)
    assert "model mini appeared in 40% of the answers, which is no proof. Roll it back to check." in at_onset(one)


def test_a_change_of_the_topic_that_fell_alone_is_named():
    since = [
        msgspec.structs.replace(point, prompt="p1" if number % len(TOPICS) else "refund-2")
        for number, point in enumerate(points(300, 900, of_one_topic))
    ]
    one = described(points(900, 0, 0.9), since)
    assert "after prompt refund-2 (17 % of answers)" in headline(one)


def test_without_a_change_a_place_is_named_and_nothing_is_rolled_back():
    one = described(points(900, 0, 0.9), points(300, 900, of_one_topic))
    assert headline(one).endswith(", only in topic “refund”")
    assert at_onset(one) == "No new model, prompt or release explains it."
    everywhere = described(points(900, 0, 0.9), points(300, 900, 0.5))
    assert (headline(everywhere), verdict(everywhere)) == (
        "faithfulness of shop fell from 0.91 to 0.62",
        "No clear cause yet",
    )


def test_while_the_cause_is_computed_nothing_is_blamed_and_nothing_is_ruled_out():
    one = replace(alert(), likely_cause="unknown")
    assert headline(one) == "faithfulness of shop fell from 0.91 to 0.62"
    assert (verdict(one), at_onset(one)) == ("The cause is still being computed", "")
    assert summary(one).endswith("The cause is still being computed.")


@pytest.mark.parametrize("cause", ["judge", "traffic_mix"])
def test_a_release_is_not_blamed_for_what_the_judge_or_the_traffic_explains(cause):
    release = Change(kind="tag:release", value="8.2", replaced="8.1")
    one = replace(alert(), likely_cause=cause, changes=(release,))
    assert "8.2" not in headline(one)
    assert at_onset(one) == "At the same time release 8.2 replaced 8.1."


def test_a_slice_of_one_version_is_not_said_to_have_no_new_version():
    fell = replace(alert(), changes=(), slice="topic=refunds")
    assert "No new model" in at_onset(fell)
    assert "No new model" not in at_onset(replace(fell, slice="model=m2"))
