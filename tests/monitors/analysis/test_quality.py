"""The estimate of a window: Hajek's, or a more precise one with the help of a cheap metric on all traffic."""

from __future__ import annotations

import numpy as np
import pytest

from gaugeway.storage.stores import PairedSums, Spent, Summary
from monitors.analysis.quality import Quality, estimate, two_tiers, with_spend
from monitors.analysis.quality import helped as helps
from monitors.statistics.control_variate import fitted, sums

N = 20_000


def summary(values, rates):
    w = 1.0 / rates
    return Summary(
        app="shop", metric="faithfulness", n=len(values), failed=0,
        w=w.sum(), wx=(w * values).sum(), w2=(w**2).sum(), w2x=(w**2 * values).sum(), w2x2=(w**2 * values**2).sum(),
    )  # fmt: skip


def traffic(seed, noise, rate=0.1):
    rng = np.random.default_rng(seed)
    dear = rng.beta(6, 2, N)
    cheap = np.clip(dear + rng.normal(0.0, noise, N), 0, 1)
    judged = rng.random(N) < rate
    found = sums(cheap, np.where(judged, dear, np.nan), np.full(N, rate))
    return dear, summary(dear[judged], np.full(judged.sum(), rate)), found


def paired(found, alone=0, missing=0):
    return PairedSums(app="shop", metric="faithfulness", sums=found, alone=alone, missing=missing)


def test_a_cheap_score_that_knows_something_narrows_the_interval_around_the_truth():
    dear, one, found = traffic(1, noise=0.05)
    (alone,), (helped,) = estimate([one]), estimate([one], helps([paired(found)]))
    assert (alone.method, helped.method) == ("hajek", "powered")
    assert helped.ci_high - helped.ci_low < 0.7 * (alone.ci_high - alone.ci_low)
    assert helped.ci_low < dear.mean() < helped.ci_high
    assert helped.correlation > 0.8
    assert helped.saving > 2.0
    assert helped.n == alone.n
    assert (helped.alone_low, helped.alone_mean, helped.alone_high) == (alone.ci_low, alone.mean, alone.ci_high)
    assert (alone.alone_low, alone.alone_mean, alone.alone_high) == (None, None, None), "it is that one itself"
    _, _, earlier = traffic(2, noise=0.05)
    (fixed,) = estimate([one], helps([paired(found)], {("shop", "faithfulness"): fitted(earlier)}))
    assert fixed.mean == pytest.approx(helped.mean, abs=0.005)


def test_a_cheap_score_that_knows_nothing_does_no_harm():
    _, one, found = traffic(3, noise=50.0)
    (alone,), (helped,) = estimate([one]), estimate([one], helps([paired(found)]))
    assert helped.ci_high - helped.ci_low <= 1.02 * (alone.ci_high - alone.ci_low)


@pytest.mark.parametrize("wrong", [{"alone": 500}, {"missing": 500}])
def test_a_cheap_score_of_other_exchanges_is_not_used(wrong):
    _, one, found = traffic(4, noise=0.05)
    assert estimate([one], helps([paired(found, **wrong)])) == estimate([one])


def test_few_judged_scores_are_no_basis_whatever_stands_beside_them():
    _, one, found = traffic(5, noise=0.05, rate=0.003)
    (few,) = estimate([one], helps([paired(found)]))
    assert few.n < 100
    assert few.method == "hajek"  # the covariate's coefficient would be estimated from too few
    assert few.ci_low < few.mean < few.ci_high
    assert few.ci_high - few.ci_low > 0.1


def test_a_handful_of_scores_is_no_basis_for_a_number():
    _, one, _ = traffic(5, noise=0.05, rate=0.0004)
    (few,) = estimate([one], {})
    assert 0 < few.n_eff < 10
    assert few.mean is few.ci_low is few.ci_high is None


def test_scores_that_are_alike_widen_the_interval_and_lower_the_effective_number():
    one = summary(np.tile([0.0, 1.0], 200), np.ones(400))
    (plain,) = estimate([one])
    (alike,) = estimate([one], effects={(one.app, one.metric, one.slice): 4.0})
    assert (alike.n, alike.n_eff, alike.design_effect) == (400, plain.n_eff / 4.0, 4.0)
    assert plain.design_effect == 1.0
    assert alike.mean == plain.mean
    assert 1.7 < (alike.ci_high - alike.ci_low) / (plain.ci_high - plain.ci_low) < 2.3


def quality(metric, app="shop", slice_=""):
    return Quality(app=app, metric=metric, n=1, n_eff=1.0, coverage_ratio=1.0, slice=slice_)


def test_what_a_tier_cost_is_divided_among_its_metrics_by_their_scores():
    """The first metric paid for all; the anchor's part includes what the disagreement paid."""
    tiers = two_tiers(["a", "b", "c", "a~anchor", "b~anchor", "a~disagreement", "b~disagreement"])
    assert tiers == ["a", "b"]
    spent = [
        *(Spent("shop", "a", 0.3, 100), Spent("shop", "b", 0.0, 50), Spent("desk", "a", 9.0, 10)),
        *(
            Spent("shop", "a~anchor", 2.0, 10),
            Spent("shop", "b~anchor", 0.0, 10),
            Spent("shop", "a~disagreement", 1.0, 9),
        ),
        *(Spent("shop", "c", 5.0, 10), Spent("shop", "a~gpt-9", 7.0, 10), Spent("shop", "b~disagreement", 0.0, 0)),
    ]
    names = ["a", "b", "c", "a~anchor", "b~anchor", "a~disagreement", "a~gpt-9"]
    found = with_spend([*map(quality, names), quality("a", slice_="m-1"), quality("a", app="none")], spent, tiers)
    shown = [(row.usd_window, row.usd_per_1000) for row in found]
    assert shown[:2] == [pytest.approx((0.2, 2.0)), pytest.approx((0.1, 2.0))]
    assert shown[3:5] == [pytest.approx((1.5, 150.0))] * 2
    assert {shown[2], *shown[5:]} == {(None, None)}, "other metrics, slices and apps have no spend of a tier"


def test_a_judge_without_a_price_has_no_spend_rather_than_0():
    (row,) = with_spend([quality("a")], [Spent("shop", "a", 0.0, 100)], ["a"])
    assert (row.usd_window, row.usd_per_1000) == (None, None)
