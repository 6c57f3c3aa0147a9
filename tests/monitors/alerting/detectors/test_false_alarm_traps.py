"""What makes a detector of this kind cry wolf: each trap, with the guard against it and without."""

from __future__ import annotations

import numpy as np
import pytest

from gaugeway import sampling
from monitors.alerting.detectors import Bucket
from monitors.alerting.detectors.e_sr import MixtureESR

M0, C, MINUTE = 0.85, 1000.0, 10


def spiked(rng, mean, shape):
    """Scores as judges give them: some 0, many 1, and a middle."""
    u, middle = rng.random(shape), 0.735 - (M0 - mean) / 0.34
    return np.where(u < 0.06, 0.0, np.where(u < 0.66, 1.0, rng.beta(4.73 * middle, 4.73 * (1 - middle), shape)))


def alarms(scores, weights=None):
    """How often the detector alarms on scores in the order in which it gets them; a second a score, ten a bucket."""
    detector, found = MixtureESR(M0, budget_per_s=1 / C), 0
    weights = np.ones_like(scores) if weights is None else weights
    for start in range(0, len(scores) - MINUTE + 1, MINUTE):
        part = slice(start, start + MINUTE)
        bucket = Bucket(
            start=float(start),
            seconds=float(MINUTE),
            scores=tuple(scores[part].tolist()),
            weights=tuple(weights[part].tolist()),
        )
        found += detector.update(bucket) is not None
    return found


@pytest.mark.full
def test_a_backlog_is_no_drop_in_the_order_of_the_exchanges_and_one_in_the_order_of_arrival():
    rng, guarded, unguarded = np.random.default_rng(1), 0, 0
    n, blocks = 2000, 60
    for _ in range(blocks):
        scores = spiked(rng, M0 + 0.02, n)
        # the last 300 wait for the judge to come back; the better an answer, the sooner it is through
        arrival = np.concatenate([np.arange(n - 300), n - 300 + np.argsort(-scores[-300:])])
        guarded += alarms(scores)
        unguarded += alarms(scores[arrival])
    assert guarded <= blocks * n / C
    assert unguarded > blocks * n / C
    assert unguarded > 10 * guarded


def test_a_sample_with_more_bad_answers_keeps_the_budget_with_its_weights_and_breaks_it_without():
    rng = np.random.default_rng(2)
    everything = spiked(rng, M0, 600_000)
    rates = np.where(everything < M0, 0.20, 0.05)
    judged = rng.random(everything.size) < rates
    scores, weights = everything[judged], 0.05 / rates[judged]
    bound = len(scores) / C
    assert 0.2 * bound < alarms(scores, weights) <= bound  # a detector that never alarms would keep it too
    assert alarms(scores) > 10 * bound


def test_a_sample_by_hash_keeps_the_budget_and_the_first_that_are_done_break_it():
    rng, minutes, a_minute, judged = np.random.default_rng(3), 4000, 50, 5
    scores = spiked(rng, M0, (minutes, a_minute))
    done = rng.exponential(0.5 + scores)  # bad answers are short
    hashed = np.array([sampling.keep(str(i), judged / a_minute, "salt") for i in range(scores.size)])
    fair = scores.reshape(-1)[hashed]
    first = np.take_along_axis(scores, np.argsort(done, axis=1)[:, :judged], axis=1).reshape(-1)
    bound = minutes * judged / C
    assert 0.95 < len(fair) / len(first) < 1.05
    assert alarms(fair) <= bound * len(fair) / len(first)
    assert alarms(first) > 5 * bound


def test_a_bet_on_every_score_keeps_the_budget_and_one_on_the_suspects_only_breaks_it():
    rng, n = np.random.default_rng(4), 60_000
    scores = spiked(rng, M0, n)
    suspect = scores + rng.normal(0.0, 0.3, n) < 0.7  # what a cheap score says of the very same answer
    assert alarms(scores) <= n / C
    assert alarms(scores[suspect]) > 10 * n / C


def test_no_bet_at_all_on_a_score_is_refused():
    bucket = Bucket(start=0.0, seconds=1.0, scores=(1.0, 0.2), weights=(0.0, 1.0))
    with pytest.raises(ValueError, match="weights"):
        MixtureESR(M0, 1 / C).update(bucket)
