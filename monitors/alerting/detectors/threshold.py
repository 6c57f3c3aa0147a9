"""A fixed threshold on a moving mean, as in other tools. It has no guarantee about false alarms."""

from __future__ import annotations

import json
import math
from typing import Any

from gaugeway.records import Finding
from monitors.alerting.detectors import FLOOR_LOG10, Bucket
from monitors.statistics import eprocess
from monitors.statistics.eprocess import Array

BLOCKS = 10
_END, _N, _WEIGHT, _WEIGHTED = 1, 2, 3, 4


class Threshold:
    """Alarms when the mean of the last `n` scores, or of those of the last `seconds`, is below m0.

    The mean is weighted (Hajek). Scores are kept in blocks of a tenth of the window, so that the state stays small: the
    window is up to a tenth, or one bucket, longer than configured. It is not evaluated before it is full, nor with
    fewer than `least` scores; an alarm empties it. The rate of false alarms depends on the scatter of the scores
    (docs/explanation/detection.md); `budget_per_s` is ignored.

    >>> detector = Threshold(m0=0.8, n=20)
    >>> found = None
    >>> for i in range(20):
    ...     bucket = Bucket(start=60.0 * i, seconds=60.0, scores=(0.9 - i / 100,) * 5, weights=(1.0,) * 5)
    ...     found = found or detector.update(bucket)
    >>> found.onset, found.n
    (540.0, 20)
    """

    def __init__(
        self,
        budget_per_s: float = 0.0,  # noqa: ARG002 - part of the port; a threshold cannot use it
        *,
        m0: float | None = None,
        n: int | None = None,
        seconds: float | None = None,
        least: int = 30,
    ) -> None:
        if n is None and seconds is None:
            n = 100
        if (n is not None and seconds is not None) or not (n or seconds or 0.0) > 0.0:
            raise ValueError("give the window as `n` scores or as `seconds`, greater than 0")
        self.m0, self.n, self.seconds = m0, n, seconds
        self.least = least if n is None else n
        self.reset()

    def reset(self) -> None:
        """Reset to the initial state."""
        # [start of its first bucket, end of its last, scores, sum of weights, sum of weights x scores]
        self._blocks: list[list[float]] = []
        self._last_m0 = self.m0 or 0.0
        self._since: float | None = None

    @property
    def evidence_log10(self) -> float:
        """0 while the mean is below the threshold, else the floor: a threshold has no graded evidence."""
        return 0.0 if self._below() else FLOOR_LOG10

    def current(self) -> Finding:
        """Return the current finding; `onset` is the start of the window."""
        return Finding(
            evidence_log10=self.evidence_log10,
            baseline=self._last_m0,
            onset=self._blocks[0][0] if self._blocks else 0.0,
            n=int(self._sum(_N)),
        )

    def update(self, bucket: Bucket, m0: float | None = None) -> Finding | None:
        """Take the next bucket. Raises ValueError, without a change, for scores or weights outside their ranges."""
        scores, weights = eprocess.checked(bucket.scores, bucket.weights)
        threshold = self.m0 if m0 is None else m0
        if threshold is None:
            raise ValueError("a threshold needs m0")
        if not scores.size:
            return None
        self._last_m0 = threshold
        self._since = bucket.start if self._since is None else self._since
        self._add(bucket.start, bucket.start + bucket.seconds, weights, scores)
        while self._outside(self._blocks[0]):
            del self._blocks[0]
        if not self._below():
            return None
        finding = self.current()
        self.reset()
        return finding

    def dumps(self) -> str:
        return json.dumps(self._identity() | {"since": self._since, "last_m0": self._last_m0, "blocks": self._blocks})

    def loads(self, state: str) -> None:
        saved: dict[str, Any] = json.loads(state)
        if any(saved.get(key, math.nan) != value for key, value in self._identity().items()):
            raise ValueError(f"this state belongs to another detector than {self._identity()}")
        self._blocks = [[float(value) for value in block] for block in saved["blocks"]]
        self._since, self._last_m0 = saved["since"], saved["last_m0"]

    def _add(self, start: float, end: float, weights: Array, scores: Array) -> None:
        """Add a bucket to the last block, or start another when that is a tenth of the window."""
        # nine decimals are more than enough, and shorter in the state
        added = [float(scores.size), round(float(weights.sum()), 9), round(float((weights * scores).sum()), 9)]
        if self._blocks:
            first, _, *sums = self._blocks[-1]
            room = sums[0] * BLOCKS < self.n if self.n else (end - first) * BLOCKS <= (self.seconds or 0.0)
            if room:
                added = [round(a + b, 9) for a, b in zip(sums, added, strict=True)]
                self._blocks[-1] = [first, end, *added]
                return
        self._blocks.append([start, end, *added])

    def _outside(self, block: list[float]) -> bool:
        """Return whether the oldest block has left the window."""
        if self.n is not None:
            return self._sum(_N) - block[_N] >= self.n
        return block[_END] <= self._blocks[-1][_END] - (self.seconds or 0.0)

    def _below(self) -> bool:
        if self._since is None or self._sum(_N) < self.least:
            return False
        if self.seconds is not None and self._blocks[-1][_END] - self._since < self.seconds:
            return False
        return self._sum(_WEIGHTED) / self._sum(_WEIGHT) < self._last_m0

    def _sum(self, column: int) -> float:
        return sum(block[column] for block in self._blocks)

    def _identity(self) -> dict[str, Any]:
        return {"m0": self.m0, "window": self.n, "window_s": self.seconds, "least": self.least}
