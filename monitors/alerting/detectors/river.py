"""Adapter for drift detectors of the river library, or any class with its `update` and `drift_detected`."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from gaugeway.extensions import load
from gaugeway.records import Finding
from monitors.alerting.detectors import FLOOR_LOG10, Bucket
from monitors.statistics import eprocess

PER_LEVEL = 8


class RiverDetector:
    """Feeds `detector` (an import string; `options` are its constructor's) score by score; only drops are alarms.

    Such a detector reports a change of the mean without its direction. The scores since the last change are split where
    the means differ most, in standard errors: it is a drop if the later mean is lower, and the split is the onset. The
    detector is reset after any change, up or down.

    River detectors take no weights: scores sampled with unequal rates are thinned with probability w, which restores a
    uniform sample. The draws depend only on the bucket's start.

    There is no guarantee about false alarms: `budget_per_s` and m0 are ignored. The library's state is not saved, so
    after a restart the mean is learned again.

    >>> class Below:  # a stand-in for river.drift.ADWIN
    ...     drift_detected = False
    ...     def update(self, x):
    ...         self.drift_detected = x < 0.5
    >>> detector = RiverDetector(detector=Below)
    >>> scores = [0.9, 0.8, 0.9, 0.6, 0.6, 0.4]
    >>> buckets = [Bucket(start=float(i), seconds=1.0, scores=(x,), weights=(1.0,)) for i, x in enumerate(scores)]
    >>> finding = [detector.update(bucket) for bucket in buckets][-1]
    >>> finding.onset, finding.n
    (3.0, 3)
    """

    def __init__(
        self,
        budget_per_s: float = 0.0,  # noqa: ARG002 - part of the port; river detectors cannot use it
        *,
        detector: Any = "river.drift:ADWIN",
        **options: Any,
    ) -> None:
        self.name = detector if isinstance(detector, str) else f"{detector.__module__}:{detector.__qualname__}"
        self.options = options
        try:
            self._make = load(detector, {}) if isinstance(detector, str) else detector
        except ValueError as error:
            raise ValueError(f"{error} (river is a separate package: pip install river)") from error
        self.reset()

    def reset(self) -> None:
        """Reset to the initial state."""
        self._detector = self._make(**self.options)
        # [start of its first bucket, scores, sum of scores, how often it was merged]
        self._blocks: list[tuple[float, int, float, int]] = []

    @property
    def evidence_log10(self) -> float:
        """Always the floor: the detector has no graded evidence."""
        return FLOOR_LOG10

    def current(self) -> Finding:
        """Return the current split, with the mean before it as the baseline."""
        cut = self._cut()
        before, after = self._blocks[:cut], self._blocks[cut:]
        return Finding(
            evidence_log10=FLOOR_LOG10,
            baseline=_mean(before or after),
            onset=after[0][0] if after else 0.0,
            n=sum(block[1] for block in after),
        )

    def update(self, bucket: Bucket, m0: float | None = None) -> Finding | None:
        """Take the next bucket. Raises ValueError, without a change, for scores or weights outside their ranges."""
        del m0
        scores, weights = eprocess.checked(bucket.scores, bucket.weights)
        if weights.size and weights.min() < 1.0:
            scores = scores[np.random.default_rng(hash(bucket.start) % 2**32).random(scores.size) < weights]
        if not scores.size:
            return None
        changed = False
        for score in scores.tolist():
            self._detector.update(score)
            changed = changed or bool(self._detector.drift_detected)
        self._add((bucket.start, scores.size, float(scores.sum()), 0))
        if not changed:
            return None
        cut = self._cut()
        found = None
        if cut and _mean(self._blocks[cut:]) < _mean(self._blocks[:cut]):
            current = self.current()
            found = Finding(evidence_log10=0.0, baseline=current.baseline, onset=current.onset, n=current.n)
        self.reset()
        return found

    def dumps(self) -> str:
        return json.dumps(self._identity())

    def loads(self, state: str) -> None:
        if json.loads(state) != self._identity():
            raise ValueError(f"this state belongs to another detector than {self._identity()}")
        self.reset()

    def _identity(self) -> dict[str, Any]:
        return {"detector": self.name, "options": {key: repr(value) for key, value in sorted(self.options.items())}}

    def _add(self, block: tuple[float, int, float, int]) -> None:
        """Add a block; merge the two oldest of a level above `PER_LEVEL`, so that the number of blocks stays small."""
        self._blocks.append(block)
        level = 0
        while True:
            same = [index for index, block in enumerate(self._blocks) if block[3] == level]
            if len(same) <= PER_LEVEL:
                return
            first, second = self._blocks[same[0]], self._blocks[same[1]]
            merged = (first[0], first[1] + second[1], first[2] + second[2], level + 1)
            self._blocks[same[0] : same[1] + 1] = [merged]
            level += 1

    def _cut(self) -> int:
        """Return the number of blocks before the change."""
        if len(self._blocks) < 2:  # noqa: PLR2004 - one block has no inside
            return 0
        counts = np.cumsum([block[1] for block in self._blocks])
        sums = np.cumsum([block[2] for block in self._blocks])
        deviations = np.abs(sums - counts * (sums[-1] / counts[-1]))[:-1]
        return int(np.argmax(deviations / np.sqrt(counts[:-1] * (counts[-1] - counts[:-1])))) + 1


def _mean(blocks: list[tuple[float, int, float, int]]) -> float:
    return sum(block[2] for block in blocks) / n if (n := sum(block[1] for block in blocks)) else 0.0
