"""Ports of detectors and baselines. Implementations are pure and sequential; their state is a short JSON text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gaugeway.extensions import load, registered
from gaugeway.records import Finding
from monitors.statistics.clusters import ClusterMean
from monitors.statistics.hourly_forecast import Forecast

FLOOR_LOG10 = -300.0
"""`evidence_log10` without evidence: gauges need a finite number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """The scores of the exchanges that started in [start, start + seconds); higher is better, the order is irrelevant.

    `weights` are the smallest sampling rate of the stream over each score's own rate, in (0, 1]. Where clusters are
    known (`monitors.statistics.clusters`) a score is the mean of one cluster's, `n` counts the scores behind all of
    them, and `earlier` and `shrinkage` have for each what its cluster's earlier scores say.

    `design_effect` says how much less the scores are worth than independent ones, because they are alike though nothing
    names what they share; at least 1. `m0_variance` is that of the m0 they are compared with, as a forecast of the mean
    of their hour.
    """

    start: float
    seconds: float
    scores: tuple[float, ...]
    weights: tuple[float, ...]
    earlier: tuple[float, ...] = ()
    shrinkage: tuple[float, ...] = ()
    n: int | None = None
    design_effect: float = 1.0
    m0_variance: float = 0.0

    @classmethod
    def of_clusters(
        cls, start: float, seconds: float, means: Sequence[ClusterMean], design_effect: float = 1.0
    ) -> Bucket:
        """Return the bucket of these cluster means."""
        return cls(
            start=start,
            seconds=seconds,
            scores=tuple(mean.score for mean in means),
            weights=tuple(mean.weight for mean in means),
            earlier=tuple(mean.earlier for mean in means),
            shrinkage=tuple(mean.shrinkage for mean in means),
            n=sum(mean.n for mean in means),
            design_effect=design_effect,
        )

    @property
    def count(self) -> int:
        """How many scores there are, clusters or not."""
        return len(self.scores) if self.n is None else self.n


class Detector(Protocol):
    """Detects a drop in one stream of scores. The constructor takes `budget_per_s` and the detector's options."""

    @property
    def evidence_log10(self) -> float:
        """log10 of the evidence over the alarm threshold, so an alarm is at 0; at least `FLOOR_LOG10`."""

    def update(self, bucket: Bucket, m0: float | None = None) -> Finding | None:
        """Take the next bucket, in the order of time; on an alarm return the finding and reset.

        `m0` is the lowest mean that is not a drop, fixed before the bucket's scores were seen.
        """

    def current(self) -> Finding:
        """Return the finding of an alarm now, whether there is one or not."""

    def reset(self) -> None:
        """Reset to the initial state."""

    def dumps(self) -> str:
        """Return the state as JSON, under 1 kB."""

    def loads(self, state: str) -> None:
        """Restore a state from `dumps`. Raises ValueError, without a change, for another detector's state."""


class Baseline(Protocol):
    """The baseline of a stream: the mean below which there is a drop, configured or learned."""

    @property
    def tolerance(self) -> float:
        """How far the mean may fall below what was learned before it is a drop."""

    def m0(self, at: float) -> float | None:
        """Return the lowest mean that is not a drop for scores at Unix time `at`, in (0, 1); None while learning."""

    def expected(self, at: float) -> Forecast | None:
        """Return the forecast of the mean at Unix time `at`; None without one."""

    def variance(self, at: float) -> float:
        """Return the variance of that forecast; 0 without one."""

    def update(self, bucket: Bucket) -> None:
        """Learn from a bucket after the detector took it. Not called while an alert fires."""

    def hold(self, bucket: Bucket) -> None:
        """Take a bucket while an alert fires: nothing is learned from it yet."""

    def release(self) -> None:
        """Learn from what was held, if the alert that is over was short."""

    def progress(self) -> tuple[int, int]:
        """Return (scores or days seen, number needed)."""

    def rebaseline(self) -> None:
        """Discard what was learned and start again."""

    def dumps(self) -> str:
        """Return the state as JSON, under 10 kB."""

    def loads(self, state: str) -> None:
        """Restore a state from `dumps`. Raises ValueError, without a change, for another baseline's state."""


def build(name: str, options: Mapping[str, Any], budget_per_s: float) -> Detector:
    """Build the detector `name`, a registered one or `package.module:Name`.

    `budget_per_s` is its budget of false alarms per second. Raises ValueError for an unknown name, ValueError or
    TypeError for options that the detector does not take.
    """
    detector: Detector = load(name, registered("detectors"))(budget_per_s=budget_per_s, **options)
    return detector
