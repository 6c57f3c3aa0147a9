"""A mean with its interval, as charts and tables show it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from monitors.statistics.clusters import groups_of
from monitors.statistics.confidence_sequence import MIN_N_EFF, closed_window
from monitors.statistics.weighted_mean import Estimate, hajek


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A mean over `n` scores; `low` and `high` are its 95 % interval, None with too few scores."""

    mean: float
    n: int
    low: float | None = None
    high: float | None = None


class ScoredPoint(Protocol):
    """A score with its inclusion probability and the names of its clusters."""

    @property
    def value(self) -> float | None: ...

    @property
    def rate(self) -> float: ...

    @property
    def cluster(self) -> str | None: ...


def mean_of(points: Sequence[ScoredPoint]) -> Estimate | None:
    """Return the mean of some scores over all traffic, with their clusters; None without scores."""
    if not points:
        return None
    groups = groups_of([point.cluster for point in points])
    return hajek([point.value or 0.0 for point in points], [point.rate for point in points], groups)


def level_of(
    found: Estimate | None, interval: Callable[[Estimate], tuple[float, float]] = closed_window
) -> Level | None:
    """Return a mean with its interval: `closed_window`, or `confidence_sequence` for what is looked at again and again.

    >>> level_of(Estimate(mean=0.8, sd=0.3, n=9, n_eff=9.0)), level_of(None)
    (Level(mean=0.8, n=9, low=None, high=None), None)
    """
    if found is None:
        return None
    low, high = interval(found) if found.n_eff >= MIN_N_EFF else (None, None)
    return Level(mean=min(1.0, max(0.0, found.mean)), n=found.n, low=low, high=high)
