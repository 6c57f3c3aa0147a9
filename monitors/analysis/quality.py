"""How good the answers are now: per app and metric, the window's mean with its interval."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from monitors.statistics.confidence_sequence import MIN_N_EFF, confidence_sequence
from monitors.statistics.control_variate import Fit, Powered, powered
from monitors.statistics.weighted_mean import Estimate, WeightedSums
from monitors.storage.stores import PairedSums, Summary

CHEAP = "lexical_groundedness"
"""The metric that costs nothing: its scores of all traffic make those of a judged sample worth more."""
MAX_STREAMS = 5000
"""Apps and metrics, with or without slices, that are estimated and shown: those with the most scores."""
_MAY_MISS = 0.05
Fits = Mapping[tuple[str, str], Fit]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """One app's mean of one metric over a window (of one slice of it, if named), on the metric's own scale.

    `mean`, `ci_low`, `ci_high` are None below an effective sample size of 100: that is no basis for a number.
    `coverage_ratio` is the share of the samples the metric applies to that got a score (the others failed). With
    `method` "powered" the scores of a cheap metric on all traffic made the estimate more precise: `correlation` is
    that of the two scores, `saving` how many times as many judge calls the same interval would cost without.
    """

    app: str
    metric: str
    n: int
    n_eff: float
    coverage_ratio: float
    slice: str = ""
    mean: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    method: Literal["hajek", "powered"] = "hajek"
    correlation: float | None = None
    saving: float | None = None


def estimate(
    summaries: Iterable[Summary], paired: Iterable[PairedSums] = (), fits: Fits | None = None
) -> list[Quality]:
    """Estimate from a window's summaries, sorted by app, metric and slice.

    `paired` are the scores beside the cheap metric's, `fits` what an earlier window taught about them.
    """
    better = {(one.app, one.metric): found for one in paired if (found := _powered(one, fits or {})) is not None}
    ordered = sorted(summaries, key=lambda one: (one.app, one.metric, one.slice))
    return [_quality(one, None if one.slice else better.get((one.app, one.metric))) for one in ordered]


def largest(summaries: Sequence[Summary], most: int = MAX_STREAMS) -> Sequence[Summary]:
    """Return the summaries of the most scores; clients may name as many apps as they like."""
    if len(summaries) <= most:
        return summaries
    return heapq.nlargest(most, summaries, key=lambda one: one.n + one.failed)


def comparable(one: PairedSums) -> bool:
    """Whether the cheap metric's exchanges are those the other metric is about.

    Where many scores have no cheap one beside them, or many of the chosen have no score, the mean over the cheap
    metric's exchanges would be another one than that of the scores.
    """
    n = one.sums.n
    return n > 0 and one.alone <= _MAY_MISS * n and one.missing <= _MAY_MISS * (n + one.missing)


def _powered(one: PairedSums, fits: Fits) -> Powered | None:
    if not comparable(one):
        return None
    fit = fits.get((one.app, one.metric))
    try:
        found = powered([one.sums], None if fit is None else [fit])
    except ValueError:
        return None
    return found if found.enough else None


def _quality(one: Summary, better: Powered | None) -> Quality:
    covered = one.n / (one.n + one.failed) if one.n or one.failed else 0.0
    found = WeightedSums(one.n, one.w, one.wx, one.w2, one.w2x, one.w2x2).estimate()
    use = better if better is not None and found is not None and better.n_eff > found.n_eff else None
    known = use.estimate() if use is not None else found
    low, mean, high = _interval(known)
    return Quality(
        app=one.app,
        metric=one.metric,
        slice=one.slice,
        n=one.n,
        n_eff=known.n_eff if known is not None else 0.0,
        coverage_ratio=covered,
        mean=mean,
        ci_low=low,
        ci_high=high,
        method="powered" if use is not None else "hajek",
        correlation=better.correlation if better is not None else None,
        saving=better.saving if better is not None else None,
    )


def _interval(found: Estimate | None) -> tuple[float | None, float | None, float | None]:
    """Low end, mean and high end; None where there is no basis for them."""
    if found is None or found.n_eff < MIN_N_EFF:
        return None, None, None
    low, high = confidence_sequence(found)
    return low, min(1.0, max(0.0, found.mean)), high
