"""The other detectors: thresholds, the adapter for river's, and how each is made by name."""

from __future__ import annotations

import json
from collections import deque

import numpy as np
import pytest

from monitors.alerting import detectors
from monitors.alerting.detectors import FLOOR_LOG10, Bucket
from monitors.alerting.detectors.e_sr import MixtureESR
from monitors.alerting.detectors.river import RiverDetector
from monitors.alerting.detectors.threshold import Threshold


class Windows:
    """A change detector with river's two names: the last `size` scores against all before them."""

    def __init__(self, size=50, limit=0.15):
        self.size, self.limit = size, limit
        self.last, self.n, self.total = deque(maxlen=size), 0, 0.0
        self.drift_detected = False

    def update(self, x):
        if len(self.last) == self.size:
            self.n, self.total = self.n + 1, self.total + self.last[0]
        self.last.append(x)
        change = abs(sum(self.last) / self.size - self.total / self.n) if self.n > self.size else 0.0
        self.drift_detected = change > self.limit


def bucket(minute, scores, weights=None):
    scores = tuple(float(score) for score in scores)
    return Bucket(start=60.0 * minute, seconds=60.0, scores=scores, weights=weights or (1.0,) * len(scores))


def first(detector, rows, m0=None, start=0):
    for minute, row in enumerate(rows, start):
        if finding := detector.update(bucket(minute, row), m0):
            return minute, finding
    return None


def test_the_mean_of_the_last_scores_alarms_when_it_is_below_the_threshold():
    rows = np.concatenate([np.full((20, 10), 0.9), np.full((20, 10), 0.7)])
    minute, finding = first(Threshold(m0=0.8, n=100), rows)
    assert minute == 25  # 60 of 110 scores: the window is a tenth longer while it moves on
    assert (finding.baseline, finding.evidence_log10) == (0.8, 0.0)
    assert 100 <= finding.n <= 110
    assert finding.onset >= 15 * 60.0
    assert first(Threshold(n=100), rows, m0=0.8)[0] == 25


def test_a_window_in_seconds_forgets_by_the_clock_and_asks_for_some_scores():
    detector = Threshold(m0=0.8, seconds=600.0, least=30)
    assert first(detector, np.full((9, 10), 0.5)) is None
    assert first(detector, np.full((1, 10), 0.5), start=9)[0] == 9
    assert first(detector, np.full((20, 2), 0.5), start=20) is None
    assert first(Threshold(m0=0.8, seconds=600.0, least=10), np.full((20, 2), 0.5))[0] == 9
    late = Threshold(m0=0.8, seconds=600.0)
    assert first(late, np.full((9, 10), 0.5)) is None
    assert first(late, np.full((30, 10), 0.9), start=30) is None


def test_a_threshold_weighs_its_scores():
    rows, weights = [(1.0, 0.0)] * 60, (1.0, 0.25)
    detector = Threshold(m0=0.75, n=100)
    assert all(detector.update(bucket(t, row, weights)) is None for t, row in enumerate(rows))
    assert first(Threshold(m0=0.75, n=100), rows) is not None


@pytest.mark.parametrize("options", [{"n": 0}, {"seconds": -1.0}, {"n": 100, "seconds": 60.0}])
def test_a_window_without_a_length_is_refused(options):
    with pytest.raises(ValueError, match="window"):
        Threshold(**options)


def test_a_threshold_without_a_number_is_refused():
    with pytest.raises(ValueError, match="m0"):
        Threshold().update(bucket(0, [0.5]))


@pytest.mark.parametrize("options", [{"n": 100}, {"n": 7}, {"seconds": 3600.0}])
def test_a_threshold_goes_on_from_its_small_state_and_refuses_another_ones(options):
    rng, through, again = np.random.default_rng(1), Threshold(m0=0.8, **options), Threshold(m0=0.8, **options)
    alarms = 0
    for minute in range(2_000_000, 2_000_500):
        one = bucket(minute, rng.random(10) ** 0.25, tuple(rng.uniform(0.3, 1.0, 10).tolist()))
        state = again.dumps()
        assert len(state) < 1000
        again = Threshold(m0=0.8, **options)
        again.loads(state)
        expected = through.update(one)
        assert again.update(one) == expected
        alarms += expected is not None
    assert alarms
    with pytest.raises(ValueError, match="another detector"):
        Threshold(m0=0.7, **options).loads(again.dumps())


def test_only_a_drop_is_an_alarm_and_its_onset_is_near_the_change():
    rng = np.random.default_rng(2)
    calm, worse, better = (rng.binomial(1, p, (60, 10)) for p in (0.8, 0.4, 1.0))
    minute, finding = first(RiverDetector(detector=Windows), np.concatenate([calm, worse]))
    assert 60 <= minute < 66
    assert abs(finding.onset / 60 - 60) <= 2
    assert 0.75 < finding.baseline < 0.85
    assert finding.n == pytest.approx((minute + 1) * 10 - finding.onset / 6)
    assert first(RiverDetector(detector=Windows), np.concatenate([calm, better])) is None


def test_after_a_rise_a_fall_to_the_old_mean_is_a_drop():
    rng = np.random.default_rng(3)
    rows = np.concatenate([rng.binomial(1, p, (60, 10)) for p in (0.6, 0.95, 0.6)])
    minute, finding = first(RiverDetector(detector=Windows), rows)
    assert 120 <= minute < 130
    assert finding.baseline > 0.9


def test_a_biased_sample_is_made_uniform_before_a_detector_that_takes_no_weights():
    class Mean:
        n = total = 0
        drift_detected = False

        def update(self, x):
            Mean.n, Mean.total = Mean.n + 1, Mean.total + x

    rng, detector = np.random.default_rng(4), RiverDetector(detector=Mean)
    for minute in range(1000):
        everything = rng.binomial(1, 0.8, 20)
        rates = np.where(everything, 0.2, 0.8)
        kept = rng.random(20) < rates
        detector.update(bucket(minute, everything[kept], tuple((0.2 / rates[kept]).tolist())))
    assert Mean.n == pytest.approx(1000 * 20 * 0.2, rel=0.05)
    assert Mean.total / Mean.n == pytest.approx(0.8, abs=0.02)


def test_the_memory_of_long_calm_stays_small():
    detector = RiverDetector(detector=Windows)
    rng = np.random.default_rng(5)
    assert first(detector, rng.uniform(0.8, 0.9, (5000, 1))) is None
    blocks = detector._blocks  # noqa: SLF001 - what is remembered shows nowhere else
    assert len(blocks) < 120
    assert sum(block[1] for block in blocks) == 5000
    assert detector.evidence_log10 == FLOOR_LOG10
    assert 0.8 < detector.current().baseline < 0.9


def test_an_adapter_begins_afresh_after_a_restart_and_refuses_another_ones_state():
    detector = RiverDetector(detector=Windows, size=20)
    first(detector, np.full((10, 10), 0.9))
    again = RiverDetector(detector=Windows, size=20)
    again.loads(detector.dumps())
    assert again.current().n == 0
    assert len(detector.dumps()) < 1000
    with pytest.raises(ValueError, match="another detector"):
        RiverDetector(detector=Windows, size=30).loads(detector.dumps())


def test_detectors_are_made_by_name_with_their_options():
    esr = detectors.build("esr", {}, 1 / 5e4)
    assert isinstance(esr, MixtureESR)
    assert esr.budget_per_s == 1 / 5e4
    threshold = detectors.build("threshold", {"seconds": 600.0}, 1.0)
    assert isinstance(threshold, Threshold)
    assert json.loads(threshold.dumps())["window_s"] == 600.0
    assert isinstance(detectors.build("river", {"detector": "collections:Counter"}, 1.0), RiverDetector)


@pytest.mark.parametrize(
    ("name", "options", "error", "says"),
    [
        ("cusum", {}, ValueError, "esr, river, threshold"),
        ("esr", {"n": 5}, TypeError, "n"),
        ("threshold", {"n": 0}, ValueError, "window"),
        ("river", {"detector": "no_such_package:ADWIN"}, ValueError, "pip install river"),
    ],
)
def test_what_is_no_detector_or_no_option_is_said(name, options, error, says):
    with pytest.raises(error, match=says):
        detectors.build(name, options, 1.0)


def test_every_detector_refuses_scores_that_cannot_be():
    for detector in (MixtureESR(0.8), Threshold(m0=0.8), RiverDetector(detector=Windows)):
        with pytest.raises(ValueError, match="scores"):
            detector.update(bucket(0, [1.5]))
        assert detector.update(bucket(0, [])) is None
