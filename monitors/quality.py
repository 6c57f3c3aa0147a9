"""How good the answers are now: per app and metric, the window's mean with its interval."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from monitors.statistics.estimators import hajek
from monitors.statistics.intervals import MIN_N_EFF, confidence_sequence
from monitors.stores import Point


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


def estimate(points: Sequence[Point]) -> list[Quality]:
    """Estimate from a window's points, sorted by app and metric."""
    groups: dict[tuple[str, str], list[Point]] = defaultdict(list)
    for point in points:
        groups[point.app, point.metric].append(point)
    return [_quality(app, metric, group) for (app, metric), group in sorted(groups.items())]


def _quality(app: str, metric: str, points: Sequence[Point]) -> Quality:
    scored = [(point.value, point.rate) for point in points if point.value is not None]
    failed = sum(point.outcome == "failed" for point in points)
    covered = len(scored) / (len(scored) + failed) if scored or failed else 0.0
    if not scored:
        return Quality(app=app, metric=metric, n=0, n_eff=0.0, coverage_ratio=covered)
    found = hajek([value for value, _ in scored], [rate for _, rate in scored])
    if found.n_eff < MIN_N_EFF:
        return Quality(app=app, metric=metric, n=found.n, n_eff=found.n_eff, coverage_ratio=covered)
    low, high = confidence_sequence(found)
    return Quality(
        app=app,
        metric=metric,
        n=found.n,
        n_eff=found.n_eff,
        coverage_ratio=covered,
        mean=found.mean,
        ci_low=low,
        ci_high=high,
    )
