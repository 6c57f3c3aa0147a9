"""The e-SR detector: its promise at the boundary, what it finds, what it refuses, its state."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from monitors.alerting.detectors import FLOOR_LOG10, Bucket
from monitors.alerting.detectors.e_sr import MixtureESR
from monitors.alerting.detectors.recovery import Recovery
from monitors.statistics import eprocess

M0 = 0.85
BUDGET = 1 / 5e4


def bucket(t, scores, weights=None, seconds=1.0):
    scores = tuple(float(score) for score in scores)
    return Bucket(start=float(t) * seconds, seconds=seconds, scores=scores, weights=weights or (1.0,) * len(scores))


def beta(rng, mean, shape):
    return rng.beta(7.85 * mean, 7.85 * (1 - mean), shape)


def spiked(rng, mean, shape):
    u, middle = rng.random(shape), 0.735 - (M0 - mean) / 0.34
    return np.where(u < 0.06, 0.0, np.where(u < 0.66, 1.0, rng.beta(4.73 * middle, 4.73 * (1 - middle), shape)))


def binary(rng, mean, shape):
    return (rng.random(shape) < mean).astype(float)


LAWS = pytest.mark.parametrize("law", [beta, spiked, binary])


def count_alarms(scores, weights, c):
    """Run the recursion of the detector over many streams at once, one score a bucket."""
    log_m = np.full((scores.shape[1], eprocess.BETS), eprocess.EMPTY)
    factors = eprocess.log_factors(eprocess.drop_payoffs(scores, weights, M0), eprocess.bets())
    alarms = 0
    for increments in factors:
        log_m = eprocess.shiryaev_roberts(log_m, increments, -np.log(c))
        hit = eprocess.log_mean(log_m) >= 0.0
        alarms += int(hit.sum())
        log_m[hit] = eprocess.EMPTY
    return alarms


@pytest.mark.full
@LAWS
def test_with_the_mean_exactly_at_the_promise_false_alarms_stay_within_the_budget(law):
    scores = law(np.random.default_rng(3), M0, (2500, 200))
    alarms = count_alarms(scores, np.ones_like(scores), c=1000.0)
    assert 0.4 * 500 < alarms <= 500  # the bound is 2500 x 200 / 1000; a detector that never alarms would keep it too


def test_oversampling_bad_answers_keeps_the_budget_with_weights_and_breaks_it_without():
    rng = np.random.default_rng(4)
    everything = beta(rng, M0, (2000, 200))
    rates = np.where(everything < M0, 0.8, 0.2)  # 4 to 1, by the score itself: as bad as it can be
    kept = rng.random(everything.shape) < rates
    neutral = np.where(kept, everything, M0)  # a score of m0 leaves every factor at 1, like no score
    weighted = count_alarms(neutral, np.where(kept, 0.2 / rates, 1.0), c=1000.0)
    assert weighted <= 400
    assert count_alarms(neutral, np.ones_like(neutral), c=1000.0) > 10 * 400


@pytest.mark.full
@LAWS
def test_a_drop_of_a_tenth_is_found_in_the_time_the_design_states(law):
    rng = np.random.default_rng(5)
    delays = []
    for _ in range(15):
        detector = MixtureESR(M0, BUDGET)
        scores = np.concatenate([law(rng, M0, 600), law(rng, M0 - 0.1, 3000)])
        found = [t for t, score in enumerate(scores) if detector.update(bucket(t, [score]))]
        delays.append(next(t for t in found if t >= 600) - 600)
    assert np.median(delays) <= {beta: 50, spiked: 250, binary: 320}[law]


def test_the_detector_raises_the_same_alarms_as_the_plain_recursion():
    scores = binary(np.random.default_rng(6), 0.8, 6000)
    detector = MixtureESR(M0, BUDGET)
    alarms = [t for t, score in enumerate(scores) if detector.update(bucket(t, [score]))]
    m, expected = [0.0] * 8, []
    bets = [0.02 * 40 ** (k / 7) for k in range(8)]
    for t, score in enumerate(scores):
        m = [(1 + g * (M0 - score) / (1 - M0)) * (value + BUDGET) for g, value in zip(bets, m, strict=True)]
        if sum(m) / 8 >= 1:
            expected.append(t)
            m = [0.0] * 8
    assert alarms == expected != []


def test_the_onset_is_the_start_of_a_bucket_near_the_change():
    rng = np.random.default_rng(7)
    detector = MixtureESR(M0, BUDGET / 60)
    onset = None
    for t in range(1000):
        mean = M0 if t < 300 else M0 - 0.15
        finding = detector.update(bucket(t, binary(rng, mean, 10), seconds=60.0))
        if finding and t >= 300:
            onset = finding.onset
            break
    assert onset is not None
    assert onset % 60.0 == 0.0
    assert abs(onset - 300 * 60.0) <= 20 * 60.0
    assert finding.n % 10 == 0
    assert (finding.baseline, finding.interval) == (M0, None)
    assert finding.estimate == pytest.approx(M0 - 0.15, abs=0.12)
    assert finding.evidence_log10 >= 0.0


def test_the_order_of_scores_in_a_bucket_does_not_matter():
    rng = np.random.default_rng(8)
    detectors = MixtureESR(M0, BUDGET), MixtureESR(M0, BUDGET)
    for t in range(50):
        scores, weights = rng.random(20), rng.uniform(0.1, 1.0, 20)
        order = rng.permutation(20)
        detectors[0].update(bucket(t, scores, tuple(weights.tolist())))
        detectors[1].update(bucket(t, scores[order], tuple(weights[order].tolist())))
        assert detectors[0].evidence_log10 == pytest.approx(detectors[1].evidence_log10, rel=1e-9)


def test_time_without_scores_is_no_evidence_however_long():
    detector = MixtureESR(M0, budget_per_s=1.0)
    assert all(detector.update(bucket(t, [], seconds=60.0)) is None for t in range(1000))
    assert detector.evidence_log10 == FLOOR_LOG10
    detector.update(bucket(1000, [1.0], seconds=0.5))
    before = detector.dumps()
    detector.update(bucket(1001, [], seconds=1e9))
    assert detector.dumps() == before


def test_an_alarm_leaves_nothing_behind_but_the_weight_of_its_hour():
    detector, n = MixtureESR(M0, BUDGET), 1
    while not detector.update(bucket(0, [0.0])):
        n += 1
    assert json.loads(detector.dumps()) == json.loads(MixtureESR(M0, BUDGET).dumps()) | {"hour": [0, n]}


def test_the_evidence_is_the_mean_of_the_bets_over_the_threshold():
    detector = MixtureESR(m0=0.5, budget_per_s=0.01)
    detector.update(bucket(0, [0.5], seconds=10.0))  # the score at m0 moves nothing: only the start weight .1 is there
    assert detector.evidence_log10 == pytest.approx(-1.0)


@pytest.mark.full
def test_a_state_written_and_read_between_all_buckets_gives_the_same_alarms():
    rng = np.random.default_rng(9)
    through, again = MixtureESR(M0, BUDGET), MixtureESR(M0, BUDGET)
    alarms = []
    for t, score in enumerate(binary(rng, 0.8, 3000)):
        expected = through.update(bucket(t, [score]))
        assert len(again.dumps()) < 1000
        fresh = MixtureESR(M0, BUDGET)
        fresh.loads(again.dumps())
        again = fresh
        assert again.update(bucket(t, [score])) == expected
        alarms += [t] if expected else []
    assert alarms


@pytest.mark.parametrize("other", [MixtureESR(0.8, BUDGET), MixtureESR(M0, 2 * BUDGET)])
def test_evidence_for_another_promise_or_budget_is_refused_and_the_detector_stays_fresh(other):
    detector = MixtureESR(M0, BUDGET)
    detector.update(bucket(0, [0.1]))
    fresh = other.dumps()
    with pytest.raises(ValueError, match="another detector"):
        other.loads(detector.dumps())
    assert other.dumps() == fresh


def test_evidence_of_another_set_of_bets_is_refused():
    state = json.loads(MixtureESR(M0, BUDGET).dumps())
    state["bets"] = [0.02, 0.8, 16]
    with pytest.raises(ValueError, match="another detector"):
        MixtureESR(M0, BUDGET).loads(json.dumps(state))


@pytest.mark.parametrize(
    ("scores", "weights"),
    [
        ([-0.1], (1.0,)),
        ([1.1], (1.0,)),
        ([float("nan")], (1.0,)),
        ([0.5], (0.0,)),
        ([0.5], (1.1,)),
        ([0.5], (float("nan"),)),
        ([0.5, 0.5], (1.0,)),
    ],
)
def test_scores_and_weights_that_cannot_be_are_refused_and_change_nothing(scores, weights):
    detector, recovery = MixtureESR(M0, BUDGET), Recovery()
    states = detector.dumps(), recovery.dumps()
    for taker in (detector, recovery):
        with pytest.raises(ValueError, match=r"scores"):
            taker.update(bucket(0, scores, weights), M0)
    assert (detector.dumps(), recovery.dumps()) == states


@pytest.mark.parametrize(
    ("m0", "budget"), [(0.0, 1.0), (1.0, 1.0), (float("nan"), 1.0), (0.5, 0.0), (0.5, float("inf"))]
)
def test_a_promise_or_budget_without_meaning_is_refused(m0, budget):
    with pytest.raises(ValueError, match=r"m0|budget"):
        MixtureESR(m0, budget)


def test_it_is_over_soon_after_the_mean_came_back_and_not_before():
    rng = np.random.default_rng(10)
    recovery = Recovery(depth=0.1, n=50)
    assert not any(recovery.update(bucket(t, beta(rng, M0 - 0.1, 5)), M0) for t in range(500))
    assert any(recovery.update(bucket(t, beta(rng, M0, 5)), M0) for t in range(500, 520))


@pytest.mark.full
@pytest.mark.parametrize("law", [beta, spiked, binary])
def test_a_mean_that_is_back_at_the_slo_ends_it_in_twice_the_scores_of_the_alarm(law):
    found, ended = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        detector, size = MixtureESR(M0, BUDGET), 5
        findings = (detector.update(bucket(t, law(rng, M0 - 0.2, size))) for t in range(2_000))
        buckets, finding = next((t, one) for t, one in enumerate(findings, 1) if one is not None)
        found.append(buckets * size)
        recovery = Recovery(depth=finding.baseline - finding.estimate, n=finding.n)
        for t in range(200):
            recovery.update(bucket(t, law(rng, M0 - 0.2, size)), M0)
        ended.append(next(t for t in range(1, 2_000) if recovery.update(bucket(t, law(rng, M0, size)), M0)) * size)
    assert np.median(ended) <= 2 * np.median(found)


def test_progress_and_the_time_it_grew_from_are_shown_while_it_recovers():
    recovery = Recovery(depth=0.3, n=20)
    for t in range(20):
        recovery.update(bucket(t, [0.2, 0.6, 0.7]), M0)
    assert (recovery.progress, recovery.since) == (0.0, None)
    recovery.update(bucket(20, [0.9, 1.0, 0.8]), M0)
    first = recovery.progress
    recovery.update(bucket(21, [0.9, 1.0, 0.8]), M0)
    assert 0.0 < first < recovery.progress <= 1.0
    assert recovery.since == 20.0


def test_a_recovery_goes_on_from_its_state():
    recovery, again = Recovery(), Recovery()
    recovery.update(bucket(0, [0.9, 0.8]), 0.5)
    again.loads(recovery.dumps())
    assert again.progress == recovery.progress > Recovery().progress == 0.0


def test_a_mean_that_is_given_with_each_bucket_counts_for_that_bucket():
    rng = np.random.default_rng(11)
    moving, fixed, other = MixtureESR(None, BUDGET), MixtureESR(M0, BUDGET), MixtureESR(0.8, BUDGET)
    for t in range(200):
        one = bucket(t, beta(rng, M0, 5))
        assert moving.update(one, M0) == fixed.update(one) == other.update(one, M0)
    assert moving.evidence_log10 == fixed.evidence_log10
    low = bucket(200, [0.82] * 5)
    before = moving.evidence_log10
    moving.update(low, 0.7)
    fixed.update(low)
    assert moving.evidence_log10 < before < fixed.evidence_log10
    assert moving.current().baseline == 0.7


@pytest.mark.full
def test_a_moving_mean_keeps_the_budget_as_long_as_the_true_one_is_never_below_it():
    rng = np.random.default_rng(12)
    detector, alarms, c = MixtureESR(None, 1 / 500.0), 0, 500.0
    n = 60_000
    for t in range(n // 5):
        mean = 0.8 + 0.1 * np.sin(t / 200)
        alarms += detector.update(bucket(t, beta(rng, mean, 5), seconds=5.0), mean) is not None
    assert 0.2 * n / c < alarms <= n / c


def test_the_state_of_a_detector_with_a_moving_mean_goes_on_with_any_mean():
    detector, again = MixtureESR(None, BUDGET), MixtureESR(None, BUDGET)
    detector.update(bucket(0, [0.3, 0.4]), 0.8)
    again.loads(detector.dumps())
    assert again.evidence_log10 == detector.evidence_log10
    assert again.current() == detector.current()
    assert again.update(bucket(1, [0.2]), 0.6) == detector.update(bucket(1, [0.2]), 0.6)
    assert len(detector.dumps()) < 1000
    with pytest.raises(ValueError, match="another detector"):
        MixtureESR(0.8, BUDGET).loads(detector.dumps())


@pytest.mark.parametrize("m0", [None, 0.0, 1.0, float("nan")])
def test_a_bucket_without_a_mean_to_compare_with_is_refused_and_changes_nothing(m0):
    detector, recovery = MixtureESR(None, BUDGET), Recovery()
    states = detector.dumps(), recovery.dumps()
    for taker in (detector, recovery):
        with pytest.raises(ValueError, match="m0"):
            taker.update(bucket(0, [0.5]), m0)
    assert (detector.dumps(), recovery.dumps()) == states


def increments(detector, before):
    """What a bucket added to log(M + budget), for each bet."""
    return detector._log_m - np.logaddexp(before, np.log(BUDGET))  # noqa: SLF001 - computed by hand


def test_scores_that_are_alike_count_as_much_less_as_their_design_effect_says():
    detector = MixtureESR(0.5, BUDGET)
    detector.update(replace(bucket(0, [0.2, 0.9, 0.1]), design_effect=2.5))
    by_hand = [
        (np.log(1 + 2 * g * 0.3) + np.log(1 - 2 * g * 0.4) + np.log(1 + 2 * g * 0.4)) / 2.5 for g in eprocess.bets()
    ]
    assert increments(detector, -np.inf) == pytest.approx(by_hand)


def test_a_bet_on_an_hour_pays_for_the_variance_of_its_forecast_and_the_next_hour_starts_again():
    detector, variance, effect = MixtureESR(0.5, BUDGET), 0.02**2, 1.5
    squares = [2.0**2, 5.0**2 - 2.0**2, 1.0]  # of the hour's weight so far, from bucket to bucket
    sizes_and_starts = [(2, 3600.0), (3, 7140.0), (1, 7200.0)]
    for (size, start), square in zip(sizes_and_starts, squares, strict=True):
        before = detector._log_m.copy()  # noqa: SLF001 - computed by hand
        scores = (0.3,) * size
        taken = Bucket(start=start, seconds=1.0, scores=scores, weights=(1.0,) * size, m0_variance=variance)
        detector.update(replace(taken, design_effect=effect))
        slopes = 2 * eprocess.bets() / effect
        by_hand = size * np.log(1 + 0.4 * eprocess.bets()) / effect - slopes**2 * variance * square / 2
        assert increments(detector, before) == pytest.approx(by_hand)


def test_weights_and_what_is_known_of_clusters_make_the_forecast_cheaper():
    costs = []
    for weight, shrinkage in ((1.0, 0.0), (0.5, 0.0), (1.0, 0.5)):
        known = Bucket(
            start=0.0,
            seconds=1.0,
            scores=(0.5,) * 4,
            weights=(weight,) * 4,
            earlier=(0.5,) * 4,
            shrinkage=(shrinkage,) * 4,
        )
        detector = MixtureESR(0.5, BUDGET)
        detector.update(replace(known, m0_variance=0.01))
        costs.append(increments(detector, -np.inf))
    assert costs[1] == pytest.approx(costs[0] / 4)
    assert costs[2] == pytest.approx(costs[1])


def test_with_hours_that_differ_from_their_forecast_as_it_says_the_budget_is_kept_and_without_the_cost_it_is_not():
    rng, sd = np.random.default_rng(13), 0.03
    paying, free = MixtureESR(None, 1 / 3e5), MixtureESR(None, 1 / 3e5)
    alarms = np.zeros(2)
    for hour in range(1500):
        mean = 0.8 + sd * rng.standard_normal()
        for part in range(4):
            taken = bucket(4 * hour + part, beta(rng, np.clip(mean, 0.05, 0.95), 50), seconds=900.0)
            alarms += (
                paying.update(replace(taken, m0_variance=sd * sd), 0.8) is not None,
                free.update(taken, 0.8) is not None,
            )
    assert alarms[0] <= 1500 * 3600 / 3e5
    assert alarms[1] > 5 * 1500 * 3600 / 3e5


def test_a_restart_in_the_middle_of_an_hour_changes_no_cost():
    through, again = MixtureESR(None, BUDGET), MixtureESR(None, BUDGET)
    for minute in range(90):
        taken = replace(bucket(minute, [0.4, 0.9], seconds=60.0), design_effect=1.3, m0_variance=1e-3)
        through.update(taken, 0.7)
        again.update(taken, 0.7)
        state = again.dumps()
        again = MixtureESR(None, BUDGET)
        again.loads(state)
    assert again.dumps() == through.dumps()
    assert json.loads(state)["hour"] == [1, 60.0]
