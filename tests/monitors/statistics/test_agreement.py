"""Trust in a judge: numbers of papers and other packages, coverage, and what cannot be told."""

from __future__ import annotations

import numpy as np
import pytest

from gaugeway.records import Evaluation, Score
from monitors.statistics.agreement import (
    corrected_mean,
    half_width_of,
    kappa,
    labels_needed,
    rates,
    repeatability,
    share_at_any_time,
    wilson,
)
from monitors.statistics.confidence_sequence import student


def corrected(labels, judged_, everything):
    return corrected_mean(labels, judged_, everything.size, x=float(everything.sum()))


def judged(rng, n, *, truth=0.85, sensitivity=0.95, specificity=0.9):
    labels = rng.random(n) < truth
    verdicts = np.where(labels, rng.random(n) < sensitivity, rng.random(n) >= specificity)
    return labels.astype(float), verdicts.astype(float)


@pytest.mark.parametrize(
    ("table", "value", "low", "high"),
    [
        ([[40, 10], [5, 45]], 0.7, 0.560732180365726, 0.8392678196342739),
        ([[88, 14, 18], [10, 40, 10], [2, 6, 12]], 0.49152542372881347, 0.3915637020535469, 0.59148714540408),
    ],
)
def test_kappa_and_its_interval_are_those_of_statsmodels(table, value, low, high):
    found = kappa(table)
    assert (found.value, found.low, found.high) == (
        pytest.approx(value, abs=1e-12),
        pytest.approx(low, abs=1e-8),
        pytest.approx(high, abs=1e-8),
    )


def test_full_agreement_is_one_and_independent_raters_are_near_zero():
    assert kappa([[30, 0], [0, 20]]).value == 1.0
    assert kappa([[25, 25], [25, 25]]).value == pytest.approx(0.0)


@pytest.mark.parametrize("table", [[[0, 40], [0, 10]], [[0, 0], [9, 3]], [[12, 4, 3], [0, 0, 0], [0, 0, 0]]])
def test_a_rater_with_one_class_leaves_kappa_undefined_whatever_the_other_one_says(table):
    """The formula gives 0 with an interval of no width, as if that were certain."""
    with pytest.raises(ValueError, match="kappa is undefined: a rater put every item in one class"):
        kappa(table)


@pytest.mark.parametrize("table", [[[1, 2]], [[0, 0], [0, 0]], [[5, -1], [0, 5]], [[7, 0], [0, 0]], []])
def test_a_table_that_tells_nothing_is_refused(table):
    with pytest.raises(ValueError, match=r"rater|table"):
        kappa(table)


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [
        (45, 50, 0.7863976856252034, 0.9565242350681095),
        (0, 10, 0.0, 0.27753279986288926),
        (9, 10, 0.5958499732047614, 0.982123786904927),
    ],
)
def test_wilsons_interval_is_that_of_statsmodels(k, n, low, high):
    assert wilson(k, n) == (pytest.approx(low, abs=1e-10), pytest.approx(high, abs=1e-10))


@pytest.mark.parametrize(("labelled", "specificity"), [(15, 0.9), (30, 0.9), (50, 0.9), (50, 0.7), (200, 0.9)])
def test_the_mean_corrected_by_labels_covers_the_truth_even_with_few(labelled, specificity):
    rng = np.random.default_rng(2)
    right = []
    for _ in range(250):
        labels, verdicts = judged(rng, 3000, specificity=specificity)
        found = corrected(labels[:labelled], verdicts[:labelled], verdicts).corrected
        right.append(found.low <= 0.85 <= found.high)
    assert np.mean(right) >= 0.91


@pytest.mark.parametrize(("rho", "widest"), [(0.6, 0.85), (0.9, 0.56)])
def test_thirty_graded_labels_with_a_judge_are_worth_more_than_alone(rho, widest):
    rng = np.random.default_rng(6)
    right, widths, alone = [], [], []
    for _ in range(400):
        y = rng.beta(6.0, 2.0, 2_000)
        noise = y.std() * np.sqrt(1.0 / rho**2 - 1.0)
        judge = np.clip(0.2 + 0.5 * (y + noise * rng.normal(size=y.size)), 0.0, 1.0)
        found = corrected(y[:30], judge[:30], judge).corrected
        right.append(found.low <= 0.75 <= found.high)
        widths.append(found.high - found.low)
        alone.append(2.0 * student(0.05, 29) * y[:30].std(ddof=1) / np.sqrt(30.0))
    assert np.mean(widths) < widest * np.mean(alone)
    assert np.mean(right) >= 0.93


@pytest.mark.parametrize("value", [1.0, 0.75, 0.5])
def test_labels_that_are_all_equal_leave_room_for_those_that_differ(value):
    rng = np.random.default_rng(7)
    judge = rng.random(500)
    found = corrected(np.full(30, value), judge[:30], judge).corrected
    assert found.value == value
    assert 0.08 < found.high - found.low < 0.2
    nearly = corrected(np.array([value - 0.25, *[value] * 29]), judge[:30], judge).corrected
    assert nearly.high - nearly.low > 0.04


def test_a_judge_that_gives_one_score_leaves_what_the_labels_say():
    labels = np.array([1.0] * 20 + [0.0] * 10)
    found = corrected(labels, np.full(30, 0.5), np.full(900, 0.5))
    assert found.corrected.value == pytest.approx(2 / 3)
    assert (found.correlation, found.saving) == (0.0, 1.0)
    low, high = wilson(20, 30)
    assert found.corrected.high - found.corrected.low == pytest.approx(high - low, rel=0.08)


def test_the_judge_makes_labels_worth_more():
    rng = np.random.default_rng(3)
    labels, verdicts = judged(rng, 5000)
    found = corrected(labels[:400], verdicts[:400], verdicts)
    low, high = wilson(float(labels[:400].sum()), 400)
    assert found.corrected.high - found.corrected.low < 0.75 * (high - low)
    assert found.saving > 1.8
    assert found.raw == verdicts.mean()
    assert 0.6 < found.correlation < 0.9


def test_a_judge_that_makes_things_up_leaves_what_the_labels_say():
    rng = np.random.default_rng(4)
    labels, _ = judged(rng, 2000)
    found = corrected(labels[:300], rng.random(300), rng.random(2000))
    assert found.corrected.value == pytest.approx(labels[:300].mean(), abs=0.01)
    assert found.saving < 1.05


def test_the_plan_gives_the_half_width_it_promises():
    rng = np.random.default_rng(5)
    labels, verdicts = judged(rng, 6000)
    rho = float(np.corrcoef(labels, verdicts)[0, 1])
    n = labels_needed(0.03, sd=float(labels.std()), correlation=rho, n_all=6000)
    found = corrected(labels[:n], verdicts[:n], verdicts).corrected
    assert (found.high - found.low) / 2 == pytest.approx(0.03, rel=0.2)
    assert n < labels_needed(0.03, sd=float(labels.std()))


def test_a_plan_that_cannot_be_is_refused():
    assert labels_needed(0.05, sd=0.36, correlation=1.0) == 100
    with pytest.raises(ValueError, match="too few"):
        labels_needed(0.01, sd=0.5, n_all=500)
    with pytest.raises(ValueError, match="half-width"):
        labels_needed(0.0, sd=0.3)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: wilson(3, 2), "successes"),
        (lambda: wilson(1, 2, alpha=2.0), "alpha"),
        (lambda: rates([True, True], [True, False]), "both kinds"),
        (lambda: corrected([1.0] * 9, [1.0] * 9, np.ones(50)), "at least 10"),
        (lambda: corrected([1.5] * 10, [1.0] * 10, np.ones(50)), "lie in"),
    ],
)
def test_what_cannot_be_is_refused(call, match):
    with pytest.raises(ValueError, match=match):
        call()


NOISES = {
    "normal": lambda rng, n: rng.normal(0.0, 0.06, (n, 2)),
    "steps": lambda rng, n: rng.choice([0.0, 1 / 3, 2 / 3], (n, 2), p=[0.9, 0.08, 0.02]),
    "rare and total": lambda rng, n: (rng.random((n, 2)) < 0.02) * 1.0,
}


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("n", [30, 200])
def test_the_interval_of_a_judges_error_covers_it(noise, n):
    rng = np.random.default_rng(11)
    true = float(NOISES[noise](rng, 200_000)[:, 0].std())
    covered = 0
    for _ in range(200):
        truth = rng.random(n) * 0.2 + 0.4 if noise == "normal" else np.zeros(n)
        pairs = (truth[:, None] + NOISES[noise](rng, n)).clip(0.0, 1.0)
        found = repeatability(("m", "1", "j"), pairs.tolist())
        covered += found.sd.low <= true <= found.sd.high
    assert covered >= 184  # 92 %


def test_a_flip_is_a_pair_of_which_one_score_passes():
    pairs = [(0.7, 0.69), (0.7, 0.71), (0.2, 0.1), (0.69, 0.7)]
    assert repeatability(("m", "1", "j"), pairs, lambda score: score >= 0.7).flipped.value == 0.5
    assert repeatability(("m", "1", "j"), pairs).flipped is None


def test_the_error_of_a_single_score_needs_30_pairs_of_its_metric_version_and_judge():
    few, enough = (repeatability(("m", "1", "j"), [(0.5, 0.7), (0.6, 0.6)] * n) for n in (14, 15))
    assert few.half_width is None
    assert enough.half_width == pytest.approx(1.96 * 0.1, abs=1e-4)

    def scored(metric="m", version="1", judge="j"):
        return Evaluation(sample_id="x", metric=metric, version=version, outcome=Score(0.5), judge=judge)

    assert half_width_of(scored(), [enough]) == enough.half_width
    for other in (scored("n"), scored(version="2"), scored(judge="k"), scored(judge=None)):
        assert half_width_of(other, [enough]) is None


@pytest.mark.parametrize("odd", [0.0, 0.9, 0.99, 0.999])
@pytest.mark.parametrize("n", [30, 100])
def test_one_odd_label_among_ones_does_not_make_the_interval_absurd(n: int, odd: float) -> None:
    labels = [1.0] * (n - 1) + [odd]
    found = corrected_mean(labels, labels, 5_000, x=5_000.0 * float(np.mean(labels))).corrected
    assert found.low > 1.0 - 8.0 / n
    assert found.low < 0.999


def test_the_interval_of_a_share_holds_at_every_look():
    """Eight shares together, as of the slices of a table, looked at again up to 200 values; coins and others."""
    wrong = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        mean = rng.uniform(0.05, 0.95, 8)
        coin = rng.random((200, 8)) < mean
        graded = np.clip(mean, 0.2, 0.8) + rng.uniform(-0.2, 0.2, (200, 8))
        for values, truth in ((coin, mean), (graded, np.clip(mean, 0.2, 0.8))):
            sums = np.cumsum(values, axis=0)
            looks = [(float(sums[n - 1, k]), n) for n in range(1, 201, 20) for k in range(8)]
            looks = [(float(sums[n - 1, k]), n) for n in range(1, 201, 20) for k in range(8)]
            found = [share_at_any_time(total, n, 0.05 / 8) for total, n in looks]
            wrong += any(not one.low <= truth[k % 8] <= one.high for k, one in enumerate(found))
    assert wrong <= 6  # .05 of 120


def test_the_interval_of_a_share_at_its_ends():
    none, every = share_at_any_time(0.0, 20), share_at_any_time(20.0, 20)
    assert (none.low, none.value) == (0.0, 0.0)
    assert none.high == pytest.approx(1.0 - every.low)
    assert 0.2 < none.high < 0.35
    for successes, n in ((1.0, 0), (-1.0, 5), (6.0, 5)):
        with pytest.raises(ValueError, match="successes lie between"):
            share_at_any_time(successes, n)
