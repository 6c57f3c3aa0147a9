"""The learned margin: as wide as the hourly means vary, and no wider than before it was learned."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gaugeway.settings.shared import Rule
from monitors.alerting.detectors import Bucket
from monitors.alerting.detectors.baselines import HOURS_KEPT, NARROWEST, WIDEST, Auto, HourlyMargin
from monitors.alerting.rules import tolerance_of

HOUR = 3600.0


def fed(shift, hours, *, size=200, margin=None, start=0, seed=1):
    """A margin after hours whose means are .8 + shift(hour)."""
    rng, margin = np.random.default_rng(seed), margin or HourlyMargin()
    for hour in range(start, start + hours):
        scores = np.clip(rng.beta(8, 2, size) + shift(hour), 0.0, 1.0)
        for part in np.array_split(scores, 4):
            margin.update(HOUR * hour, part, np.ones(part.size))
    return margin


def test_steady_scores_have_the_least_margin_once_there_are_24_hours():
    assert fed(lambda _: 0.0, 29).value == WIDEST
    assert fed(lambda _: 0.0, 40).value == NARROWEST


@pytest.mark.parametrize("by", [0.02, 0.03, 0.04])
def test_a_daily_cycle_has_a_margin_that_covers_its_lowest_hour(by):
    value = fed(lambda hour: by * np.sin(hour * np.pi / 12), 8 * 24).value
    assert by <= value <= WIDEST


def test_one_bad_night_a_week_counts():
    assert fed(lambda hour: -0.045 if 50 <= hour < 53 else 0.0, 7 * 24, size=2000).value > 0.035


def test_few_scores_an_hour_keep_the_margin_wide():
    assert fed(lambda _: 0.0, 100, size=20).value == WIDEST


def test_a_drop_does_not_widen_the_margin_it_is_judged_by_for_six_hours():
    margin = fed(lambda _: 0.0, 60)
    assert fed(lambda _: -0.1, 6, margin=margin, start=60).value == NARROWEST
    assert fed(lambda _: -0.1, 6, margin=margin, start=66).value > NARROWEST


def test_the_state_is_bounded_and_survives_in_the_middle_of_an_hour():
    margin = fed(lambda hour: 0.02 * np.sin(hour), HOURS_KEPT + 50)
    other = HourlyMargin()
    other.loads(margin.dumps())
    assert other.dumps() == margin.dumps()
    assert len(margin.dumps()) < 6_000
    more = [fed(lambda _: 0.0, 30, margin=one, start=HOURS_KEPT + 50, seed=3) for one in (margin, other)]
    assert more[0].value == more[1].value
    assert more[0].dumps() == more[1].dumps()


def bucket(hour, scores):
    return Bucket(start=HOUR * hour, seconds=60.0, scores=tuple(scores), weights=(1.0,) * len(scores))


def test_auto_learns_its_margin_only_without_a_tolerance():
    rng = np.random.default_rng(5)
    learned, fixed = Auto(tolerance=None), Auto(tolerance=0.05)
    for hour in range(60):
        for one in (learned, fixed):
            one.update(bucket(hour, rng.beta(8, 2, 100)))
    assert (learned.margin, fixed.margin) == (NARROWEST, 0.05)
    assert "margin" not in json.loads(fixed.dumps())["state"]
    restored = Auto(tolerance=None)
    restored.loads(learned.dumps())
    assert restored.m0(HOUR * 60) == learned.m0(HOUR * 60)
    learned.rebaseline()
    assert learned.margin == WIDEST


def test_what_an_older_release_learned_is_kept():
    rng = np.random.default_rng(6)
    older = Auto(tolerance=0.05)
    for hour in range(60):
        older.update(bucket(hour, rng.beta(8, 2, 100)))
    newer = Auto(tolerance=None)
    newer.loads(older.dumps())
    assert newer.m0(HOUR * 60) == older.m0(HOUR * 60)


@pytest.mark.parametrize(
    ("rule", "tolerance"),
    [
        (Rule(metric="m", baseline="auto"), None),
        (Rule(metric="m", baseline="auto", tolerance=0.03), 0.03),
        (Rule(metric="m", baseline="auto", severity="warn"), 0.02),
        (Rule(metric="m", baseline="window"), 0.05),
        (Rule(metric="m", slo=0.8), 0.0),
    ],
)
def test_the_tolerance_of_a_rule(rule, tolerance):
    assert tolerance_of(rule) == tolerance
