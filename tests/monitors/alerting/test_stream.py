"""Earlier incidents, as the cases of the engine know them, and what a stream knows of the dependence of its scores."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from gaugeway.storage.stores import Point
from monitors.alerting.detectors.baselines import Forecasted
from monitors.alerting.detectors.e_sr import MixtureESR
from monitors.alerting.stream import Case, Cases, SavedStream, Stream
from monitors.statistics.dependence import SerialDependence
from tests.support.receivers import alert


def at(onset, **changes):
    return alert(finding=replace(alert().finding, onset=onset), **changes)


@pytest.mark.parametrize(
    ("changes", "times"),
    [
        ({"state": "resolved", "ended_at": 200.0}, ((100.0, 200.0),)),
        ({"state": "firing"}, ((100.0, 500.0),)),
        ({"state": "resolved", "ended_at": 900.0}, ((100.0, 500.0),)),
        ({"state": "pending"}, ()),
        ({"app": "other"}, ()),
        ({"metric": "context_relevancy"}, ()),
        ({"slice": "tag:tenant=a"}, ()),
    ],
)
def test_earlier_incidents_are_those_of_the_same_app_and_metric_up_to_the_onset(changes, times):
    cases, now = Cases(), at(500.0, fingerprint="now")
    cases.by_fingerprint = {"old": Case(alert=at(100.0, fingerprint="old", **changes)), "now": Case(alert=now)}
    assert cases.earlier(now) == times


def stream(**changes):
    fields = {"rule": "answers", "metric": "faithfulness", "app": "shop", "severity": "page", "flipped": False}
    of = {"budget_per_s": 1e-6, "detector": MixtureESR(None, 1e-6), "baseline": Forecasted(200)}
    return Stream(**fields | of | changes)


def scored(n, value, start):
    made = {"app": "shop", "model": "m", "metric": "faithfulness", "outcome": "score", "reason": "", "rate": 1.0}
    return Point(sample_id=f"{start}-{n}", started_at=start + n, value=value, **made)


def played(stream, first, last, rng):
    """Feed minutes of scores that come in fives of the same value."""
    for minute in range(first, last):
        values = np.repeat(rng.random(4), 5)
        points = [scored(n, float(value), 60.0 * minute) for n, value in enumerate(values)]
        stream.take(stream.bucket(60.0 * minute, 60.0, points))
    return stream


def test_scores_that_are_alike_raise_the_design_effect_of_the_next_bucket_and_not_of_their_own():
    own, bucket = stream(), [scored(n, 0.5 + n / 100, 0.0) for n in range(20)]
    assert own.bucket(0.0, 60.0, bucket).design_effect == SerialDependence().design_effect
    played(own, 1, 200, np.random.default_rng(1))
    assert own.bucket(60.0 * 200, 60.0, bucket).design_effect > 4.0


def test_a_stream_goes_on_with_its_design_effect_and_its_forecast_after_a_restart():
    through = played(stream(), 0, 100, np.random.default_rng(2))
    again = stream()
    again.restore(msgspec.json.decode(msgspec.json.encode(through.saved()), type=SavedStream), None)
    assert again.dependence.design_effect == through.dependence.design_effect > 3.0
    played(through, 100, 150, np.random.default_rng(3))
    played(again, 100, 150, np.random.default_rng(3))
    assert again.saved() == through.saved()


def test_the_state_of_a_stream_of_an_older_release_has_no_design_effect_yet():
    saved = msgspec.structs.replace(played(stream(), 0, 100, np.random.default_rng(4)).saved(), dependence=())
    again = stream()
    again.restore(saved, None)
    assert again.dependence.design_effect == SerialDependence().design_effect


def test_a_forecast_is_paid_for_by_the_detector():
    paid = played(stream(), 0, 60, np.random.default_rng(5))
    assert paid.baseline.variance(3600.0) > 0.0
    m0 = paid.baseline.m0(3600.0)
    bucket = paid.bucket(3600.0, 60.0, [scored(n, 0.2, 3600.0) for n in range(20)])
    without = MixtureESR(None, 1e-6)
    without.loads(paid.detector.dumps())
    without.update(bucket, m0)
    paid.take(bucket)
    assert paid.detector.evidence_log10 < without.evidence_log10
