"""Clusters of scores: what they are worth, and that bets on them keep the rate of false alarms."""

import numpy as np
import pytest
from cachetools import TTLCache

from monitors.alerting.detectors import Bucket
from monitors.alerting.detectors.baselines import Window
from monitors.alerting.detectors.e_sr import MixtureESR
from monitors.alerting.detectors.recovery import Recovery
from monitors.statistics import clusters as clusters_module
from monitors.statistics.clusters import REMEMBERED_S, Clusters, DesignEffect, IntraclassCorrelation, groups_of
from monitors.statistics.confidence_sequence import MIN_N_EFF, closed_window, confidence_sequence
from monitors.statistics.eprocess import bets, drop_payoffs, expected_means, log_factors
from monitors.statistics.weighted_mean import hajek

MEAN, SIZE, SECONDS = 0.85, 10, 60.0


def random_effects(rng, clusters, size, between):
    """Scores in [0, 1] with mean .85: a cluster is good or weak, its scores are right or wrong."""
    means = np.where(rng.random((clusters, 1)) < 0.5, MEAN - between, MEAN + between)
    return (rng.random((clusters, size)) < means).astype(float)


def bucket_of(clusters, scores, names, index):
    means = clusters.means(scores, [1.0] * len(scores), names, at=SECONDS * index)
    return Bucket.of_clusters(SECONDS * index, SECONDS, means)


def count_alarms(scores, names, *, grouped, budget):
    clusters, detector, alarms = Clusters(), MixtureESR(m0=MEAN, budget_per_s=budget), 0
    for index in range(len(scores) // SIZE):
        part = slice(index * SIZE, (index + 1) * SIZE)
        known = names[part] if grouped else [None] * SIZE
        alarms += detector.update(bucket_of(clusters, scores[part], known, index)) is not None
    return alarms


@pytest.mark.parametrize("between", [0.05, 0.1, 0.15])
def test_correlation_is_estimated(between):
    rng = np.random.default_rng(1)
    known = IntraclassCorrelation()
    for row in random_effects(rng, 4_000, 5, between):
        known.add(row[:2].tolist(), earlier=None)
        known.add(row[2:].tolist(), earlier=float(row[:2].mean()))
    true = between**2 / (MEAN * (1 - MEAN))
    assert true - 0.06 < known.lower < true + 0.02


def test_independent_scores_have_no_correlation():
    known = IntraclassCorrelation()
    for row in (np.random.default_rng(2).random((5_000, 4)) < MEAN).astype(float):
        known.add(row.tolist(), earlier=None)
    assert known.lower < 0.02


def test_a_state_goes_on():
    one, other = IntraclassCorrelation(), IntraclassCorrelation()
    for _ in range(100):
        one.add([1.0, 0.8], earlier=None)
        one.add([0.1, 0.3], earlier=None)
    other.state = one.state
    assert other.lower == one.lower > 0.5


def test_scores_without_a_cluster_are_bets_of_their_own():
    plain = Bucket(start=0.0, seconds=60.0, scores=(0.5, 0.9), weights=(1.0, 0.5))
    means = Clusters().means(plain.scores, plain.weights, [None, None], at=0.0)
    assert [(one.score, one.weight, one.n, one.shrinkage) for one in means] == [(0.5, 1.0, 1, 0.0), (0.9, 0.5, 1, 0.0)]


def test_a_cluster_is_forgotten_after_an_hour_of_silence():
    clusters = Clusters()
    for index in range(100):
        clusters.means([1.0, 1.0, 0.0, 0.0], [1.0] * 4, [f"a{index}", f"a{index}", f"b{index}", f"b{index}"], at=0.0)
    clusters.means([0.2], [1.0], ["c"], at=0.0)
    (soon,) = clusters.means([0.2], [1.0], ["c"], at=60.0)
    (late,) = clusters.means([0.2], [1.0], ["c"], at=61.0 + REMEMBERED_S)
    assert soon.earlier == 0.2
    assert soon.shrinkage > 0.5
    assert late.shrinkage == 0.0


def test_of_more_clusters_than_are_remembered_the_one_silent_longest_is_forgotten(monkeypatch):
    monkeypatch.setattr(clusters_module, "MAX_CLUSTERS", 3)
    clusters = Clusters()
    for names in (["a", "b", "c"], ["a"], ["d"]):
        clusters.means([0.2] * len(names), [1.0] * len(names), names, at=0.0)
    found = clusters.means([0.2] * 3, [1.0] * 3, ["a", "b", "d"], at=1.0)
    assert [one.earlier for one in found] == [0.2, 0.0, 0.2]


def test_what_is_remembered_is_what_a_cache_with_a_time_to_live_remembers(monkeypatch):
    monkeypatch.setattr(clusters_module, "MAX_CLUSTERS", 20)
    rng, clusters, now = np.random.default_rng(5), Clusters(), 0.0
    expected = TTLCache(20, REMEMBERED_S, timer=lambda: now)
    for _ in range(2000):
        now += float(rng.choice([1.0, 60.0, 700.0]))
        name = f"s:{rng.integers(30)}"
        (found,) = clusters.means([0.5], [1.0], [name], at=now)
        assert (found.earlier > 0.0) == (name in expected)
        expected[name] = True


@pytest.mark.parametrize("m0", [0.05, 0.5, 0.95])
def test_no_bet_can_lose_more_than_its_stake(m0):
    rng = np.random.default_rng(3)
    scores, earlier, c = rng.integers(0, 2, 500).astype(float), rng.random(500), rng.random(500) * 0.95
    expected = expected_means(m0, earlier.tolist(), c.tolist())
    won = drop_payoffs(scores, np.ones(500), m0, expected)
    assert won.min() >= -1.0 - 1e-12
    assert np.isfinite(log_factors(won, bets())).all()


@pytest.mark.full
@pytest.mark.parametrize("apart", [False, True])
def test_sessions_keep_the_rate_of_false_alarms(apart):
    """Sessions of five at a correlation of .18, in one bucket or a turn every ten sessions; budget: 2 per 100,000."""
    budget = SIZE / SECONDS / 5e4
    before = after = 0
    for run in range(6):
        rows = random_effects(np.random.default_rng(10 + run), 6_000, 5, 0.15)
        places = sorted((i + (10 * j if apart else 0), i, j) for i in range(len(rows)) for j in range(5))
        scores, names = [rows[i, j] for _, i, j in places], [f"s{i}" for _, i, _ in places]
        before += count_alarms(scores, names, grouped=False, budget=budget)
        after += count_alarms(scores, names, grouped=True, budget=budget)
    assert before > 3.6  # of 180,000 scores: the promise is broken without clusters
    assert after <= 3.6


def test_a_drop_is_found_through_clusters_and_its_end_too():
    rng = np.random.default_rng(4)
    clusters, detector, recovery = Clusters(), MixtureESR(m0=MEAN, budget_per_s=1e-6), Recovery()
    good, bad = random_effects(rng, 2_000, 5, 0.1), random_effects(rng, 400, 5, 0.1) * (rng.random((400, 5)) > 0.25)
    found = over = None
    for index, row in enumerate(np.concatenate([good[:400], bad, good[400:]]).reshape(-1, SIZE)):
        bucket = bucket_of(clusters, row.tolist(), [f"s{2 * index + i // 5}" for i in range(SIZE)], index)
        found = found or detector.update(bucket)
        if index >= 400 and over is None and recovery.update(bucket, MEAN - 0.05):
            over = index
    assert found is not None
    assert 200 * SECONDS <= found.onset <= 230 * SECONDS
    assert over is not None
    assert over < 600


@pytest.mark.full
def test_a_learned_baseline_is_below_the_mean_of_clustered_scores():
    wrong = 0
    for run in range(20):
        baseline, clusters = Window(n0=500), Clusters()
        rows = random_effects(np.random.default_rng(run), 3_000, 5, 0.15)
        for index, row in enumerate(rows.reshape(-1, SIZE)):
            names = [f"s{2 * index + i // 5}" for i in range(SIZE)]
            baseline.update(bucket_of(clusters, row.tolist(), names, index))
        wrong += baseline.m0(SECONDS * len(rows)) > MEAN
    assert wrong <= 2


@pytest.mark.parametrize("apart", [False, True])
def test_the_design_effect_of_sessions_is_that_of_their_correlation(apart):
    x = random_effects(np.random.default_rng(5), 1_000, 5, 0.15)
    order = [(i + (10.0 * j if apart else 0.0), i, j) for i in range(len(x)) for j in range(5)]
    clusters = Clusters()
    turns = sorted(order)
    for index in range(len(turns) // SIZE):
        part = turns[index * SIZE : (index + 1) * SIZE]
        bucket_of(clusters, [x[i, j] for _, i, j in part], [f"s:{i}" for _, i, _ in part], index)
    correlation = 0.15**2 / (MEAN * (1.0 - MEAN))
    assert clusters.effect.value == pytest.approx(1.0 + 4.0 * correlation, rel=0.15)
    again = Clusters()
    again.state = clusters.state
    assert again.effect.value == clusters.effect.value


def test_scores_that_are_not_alike_have_hardly_a_design_effect():
    effect, rng = DesignEffect(), np.random.default_rng(6)
    assert effect.value == 1.0
    for _ in range(1_000):
        effect.add(rng.normal(0.0, 0.3, 5).tolist(), earlier=0.0)
    assert 1.0 <= effect.value < 1.15


def test_a_new_stream_of_sessions_has_an_assumed_design_effect_that_fades():
    def after(scores, rng):
        effect = DesignEffect()
        for _ in range(scores // 5):
            effect.add(rng.normal(0.0, 0.3, 5).tolist(), earlier=0.0)
        return effect.value

    early, later, late = (
        np.mean([after(n, np.random.default_rng(8 + i)) for i in range(40)]) for n in (20, 200, 4_000)
    )
    assert 3.0 < early < 4.2
    assert 1.3 < later < 2.0
    assert late < 1.1
    single = DesignEffect()
    for x in np.random.default_rng(9).normal(0.0, 0.3, 20):
        single.add([float(x)], earlier=0.0)
    assert single.value == 1.0


def test_sessions_in_turns_have_the_companions_of_sessions_in_one_go():
    whole, turns = DesignEffect(), DesignEffect()
    whole.add([0.1, 0.2, -0.1], earlier=0.0)
    so_far = turns.add([0.1], earlier=0.0)
    so_far = turns.add([0.2], earlier=so_far, before=1)
    turns.add([-0.1], earlier=so_far, before=2)
    assert turns.state == pytest.approx(whole.state, rel=1e-3)


def test_the_first_interval_of_a_cold_stream_of_correlated_sessions_is_not_too_narrow():
    rng, wrong = np.random.default_rng(10), 0
    for _ in range(60):
        clusters, x = Clusters(), np.repeat(rng.random((60, 1)) < MEAN, 10, axis=1).astype(float)
        turns = [(i, j) for start in range(0, 60, 5) for j in range(10) for i in range(start, start + 5)]
        seen: list[float] = []
        missed = False
        for index in range(0, len(turns), SIZE):
            part = turns[index : index + SIZE]
            seen += [x[i, j] for i, j in part]
            bucket_of(clusters, seen[-len(part) :], [f"s:{i}" for i, _ in part], index // SIZE)
            estimate = hajek(seen, [1.0] * len(seen)).widened(clusters.effect.value)
            low, high = confidence_sequence(estimate)
            missed |= estimate.n_eff >= MIN_N_EFF and not low <= MEAN <= high
        wrong += missed
    assert wrong <= 4  # .07 of the runs; 27 with the measured design effect alone


@pytest.mark.parametrize(("n", "least"), [(30, 0.93), (100, 0.93), (1_000, 0.93)])
def test_an_interval_of_clustered_scores_covers_the_mean(n, least):
    rng, hits = np.random.default_rng(7), 0
    groups = np.repeat(np.arange(n // 5), 5).tolist()
    for _ in range(400):
        low, high = closed_window(hajek(random_effects(rng, n // 5, 5, 0.15).ravel(), [1.0] * n, groups))
        hits += low <= MEAN <= high
    assert hits / 400 >= least


def burst(clusters, index, bad):
    """A bucket of `bad` scores of one user beside half as many of others."""
    names = ["u:z"] * bad + [f"u:{index}-{i}" for i in range(bad // 2)]
    return bucket_of(clusters, [0.0] * bad + [1.0] * (bad // 2), names, index)


def test_the_burst_of_one_user_stays_one_cluster_however_large_it_is():
    clusters, detector = Clusters(), MixtureESR(m0=MEAN, budget_per_s=2e-5 / SECONDS)
    for index in range(30):
        scores = [1.0] * 9 + [0.0]
        assert detector.update(bucket_of(clusters, scores, [f"u:{index}-{i}" for i in range(10)], index)) is None
    found = [burst(clusters, 30 + index, 16) for index in range(10)]
    assert all(len(one.scores) == 9 for one in found)  # z, and eight others
    assert not any(detector.update(one) for one in found)


def test_a_name_that_lasts_becomes_a_part_of_the_traffic():
    clusters = Clusters()
    state = [len(burst(clusters, index, 16).scores) for index in range(80)]
    assert state[10:30] == [9] * 20
    assert state[-1] == 24
    again = Clusters()
    again.state = clusters.state
    assert len(burst(again, 100, 16).scores) == 24
    young = Clusters()
    [burst(young, index, 16) for index in range(20)]
    again.state = young.state
    assert len(burst(again, 100, 16).scores) == 9


def test_a_name_that_all_scores_have_from_the_start_is_no_cluster():
    clusters = Clusters()
    sizes = [len(bucket_of(clusters, [1.0] * 10, ["k:all"] * 10, index).scores) for index in range(40)]
    assert sizes[-1] == 10
    assert sizes.index(10) <= 21


def test_names_that_most_scores_have_are_no_groups():
    names = [f"s:{i // 2} k:all" for i in range(40)]
    assert groups_of(names) == [i // 2 * 2 for i in range(40)]
    assert groups_of(["k:all"] * 40) == list(range(40))
    assert groups_of([None, None, "q:rare"] + ["u:a"] * 2) == [0, 1, 2, 3, 3]


def test_scores_without_names_count_as_scores_of_clusters_that_have_no_others():
    rng = np.random.default_rng(5)
    unnamed, named = Clusters(), Clusters()
    for index in range(50):
        scores = rng.random(SIZE).tolist()
        alone = unnamed.means(scores, [0.5] * SIZE, [None] * SIZE, at=SECONDS * index)
        apart = named.means(scores, [0.5] * SIZE, [f"s:{index}-{k}" for k in range(SIZE)], at=SECONDS * index)
        assert alone == apart
    # those of a bucket are forgotten together, as those of a cluster are; of the first bucket no mean is known
    assert unnamed.correlation.state == pytest.approx(named.correlation.state, rel=0.01)
    assert unnamed.effect.state == pytest.approx(named.effect.state, rel=0.05)
