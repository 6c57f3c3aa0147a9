"""How good the answers are now: per app and metric, the window's mean with its interval."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from monitors.statistics.estimators import hajek_from_sums
from monitors.statistics.intervals import MIN_N_EFF, confidence_sequence
from monitors.stores import Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """One app's mean of one metric over a window, on the metric's own scale.

    `mean`, `ci_low`, `ci_high` are None below an effective sample size of 100: that is no basis for a number.
    `coverage_ratio` is the share of the samples the metric applies to that got a score (the others failed).
    """

    app: str
    metric: str
    n: int
    n_eff: float
    coverage_ratio: float
    mean: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None


def estimate(summaries: Iterable[Summary]) -> list[Quality]:
    """Estimate from a window's summaries, sorted by app and metric."""
    return [_quality(one) for one in sorted(summaries, key=lambda one: (one.app, one.metric))]


def _quality(one: Summary) -> Quality:
    covered = one.n / (one.n + one.failed) if one.n or one.failed else 0.0
    if not one.n:
        return Quality(app=one.app, metric=one.metric, n=0, n_eff=0.0, coverage_ratio=covered)
    found = hajek_from_sums(n=one.n, w=one.w, wx=one.wx, w2=one.w2, w2x=one.w2x, w2x2=one.w2x2)
    if found.n_eff < MIN_N_EFF:
        return Quality(app=one.app, metric=one.metric, n=found.n, n_eff=found.n_eff, coverage_ratio=covered)
    low, high = confidence_sequence(found)
    return Quality(
        app=one.app,
        metric=one.metric,
        n=found.n,
        n_eff=found.n_eff,
        coverage_ratio=covered,
        mean=found.mean,
        ci_low=low,
        ci_high=high,
    )
