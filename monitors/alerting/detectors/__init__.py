"""Detectors and the baselines they compare with: pure, sequential, their state is a short JSON text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from monitors.records import Finding
from monitors.runtime.plugins import load

BUILT_IN = {
    "esr": "monitors.alerting.detectors.e_sr:MixtureESR",
    "threshold": "monitors.alerting.detectors.threshold:Threshold",
    "river": "monitors.alerting.detectors.river:RiverDetector",
}
FLOOR_LOG10 = -300.0
"""What `evidence_log10` says when there is none: gauges want a finite number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """The scores of the exchanges that started in [start, start + seconds), higher is better, order without meaning.

    `weights` are the smallest sampling rate of the stream over each score's own rate, in (0, 1]. Where clusters are
    known (`monitors.statistics.clusters`) a score is the mean of one cluster's, `n` counts the scores behind all of
    them, and `earlier` and `shrinkage` have for each what its cluster's earlier scores say.
    """

    start: float
    seconds: float
    scores: tuple[float, ...]
    weights: tuple[float, ...]
    earlier: tuple[float, ...] = ()
    shrinkage: tuple[float, ...] = ()
    n: int | None = None

    @property
    def count(self) -> int:
        """How many scores there are, clusters or not."""
        return len(self.scores) if self.n is None else self.n


class Detector(Protocol):
    """Watches one stream of scores for a drop; the constructor takes `budget_per_s` and its own options."""

    @property
    def evidence_log10(self) -> float:
        """log10 of the evidence over what an alarm needs, so that the alarm is at 0; at least `FLOOR_LOG10`."""

    def update(self, bucket: Bucket, m0: float | None = None) -> Finding | None:
        """Take in the next bucket, in the order of time; on an alarm return the finding and start afresh.

        `m0` is the lowest mean that is no drop, as it was known before the bucket's scores were.
        """

    def current(self) -> Finding:
        """What the detector would say now, alarm or not."""

    def reset(self) -> None:
        """Forget everything seen."""

    def dumps(self) -> str:
        """The whole state as JSON, under 1 kB."""

    def loads(self, state: str) -> None:
        """Continue from a state that `dumps` gave. Raises ValueError, unchanged, for another detector's."""


class Baseline(Protocol):
    """What is known of the mean of a stream while all is well."""

    def m0(self, at: float) -> float | None:
        """The lowest mean that is no drop for scores from Unix time `at` on, in (0, 1); None while learning."""

    def update(self, bucket: Bucket) -> None:
        """Learn from a bucket that the detector has taken in, while no alert fires."""

    def progress(self) -> tuple[int, int]:
        """How much was seen, and how much it takes to know the mean."""

    def rebaseline(self) -> None:
        """Forget what was learned and learn afresh."""

    def dumps(self) -> str:
        """The whole state as JSON, under 4 kB."""

    def loads(self, state: str) -> None:
        """Continue from a state that `dumps` gave. Raises ValueError, unchanged, for another baseline's."""


def build(name: str, options: Mapping[str, Any], budget_per_s: float) -> Detector:
    """Make the detector that `name` (a key of `BUILT_IN`, or `package.module:Name`) stands for.

    `budget_per_s` is the false alarms a second that it may give. Raises ValueError for a name that stands for nothing,
    ValueError or TypeError for options that it does not take.
    """
    detector: Detector = load(name, BUILT_IN)(budget_per_s=budget_per_s, **options)
    return detector
