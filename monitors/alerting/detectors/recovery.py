"""Detection of the end of a drop: the mean has come back."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from monitors.alerting.detectors import Bucket
from monitors.alerting.detectors.e_sr import checked_mean
from monitors.statistics import eprocess
from monitors.statistics.eprocess import Array

THRESHOLD = 10_000.0
"""Likelihood ratio of "back" to "still low" at which a drop is over."""
LEAST_DEPTH = 0.02
DEPTH_SHARE = 0.6
"""Of a finding's depth: it is 20 to 30 % too large at the median, 150 % at the 90th percentile, because the onset was
chosen by the scores. With the whole of it the midpoint would often lie at or below the mean of the drop."""
FEWEST = 10
"""Scores since the recovery began that the end needs; half of those since the onset, if more."""
_WINDOW = 4
"""The mean that has to be back is one of at most so many times `FEWEST` scores, or their like: scores of the drop that
were taken for the recovery's first would keep an alert open for long."""
_NOT_OVER = 0.99
_PRIOR_WEIGHT = 4.0
_DEPTH_WEIGHT = 10.0
_SUMS = 5


class Recovery:
    """A CUSUM of the likelihood ratio of the mean m0 to the mean m0 - depth, and a mean that is back at m0.

    For scores x_i with weights w_i of a bucket, the midpoint h = m0 - depth/2 and the variance v of earlier scores::

        S <- max(S, 0) + sum_i depth (sum w/sum w^2) w_i (x_i - h)/v     over: S >= ln 10,000 and mean + se >= m0

    where mean and se are those of the scores since S last was 0. The ratio is that of normal means: unlike the alarm,
    the end is no test with a proven error rate, but about as fast as the alarm where the mean comes back to exactly m0
    (benchmarks/detection/recovery.py has the rates). A mean that stays between m0 - depth and m0 does not end the
    alert, because of the second condition. `depth` is how far below m0 the finding has the mean, `n` its number of
    scores.

    Reference: Page, "Continuous inspection schemes", Biometrika 41 (1954).

    >>> recovery = Recovery(depth=0.1)
    >>> back = (Bucket(start=60.0 * i, seconds=60.0, scores=(0.9, 0.7) * 3, weights=(1.0,) * 6) for i in range(100))
    >>> next(i for i, bucket in enumerate(back) if recovery.update(bucket, 0.8))
    18
    """

    def __init__(self, *, depth: float = 0.0, n: int = 0) -> None:
        self._fewest = max(FEWEST, n // 2)
        self._depth = max(LEAST_DEPTH, DEPTH_SHARE * depth)
        self._log_ratio = 0.0
        self._all, self._own = np.zeros(_SUMS), np.zeros(_SUMS)
        self._n = 0
        self._since: float | None = None

    @property
    def since(self) -> float | None:
        """When the evidence that is there began to grow, Unix seconds; None without any."""
        return self._since if self._log_ratio > 0.0 else None

    @property
    def progress(self) -> float:
        """The share of what the end needs, in [0, 1): of the evidence, on the scale of its logarithm, and of scores."""
        evidence = max(0.0, self._log_ratio / math.log(THRESHOLD))
        return min(evidence, self._n / self._fewest if evidence else 0.0, _NOT_OVER)

    def update(self, bucket: Bucket, m0: float | None) -> bool:
        """Take the next bucket; return whether the drop is over. Raises ValueError like the detector."""
        scores, weights = eprocess.checked(bucket.scores, bucket.weights)
        mean = checked_mean(m0)
        if not scores.size:
            return False
        if self._log_ratio <= 0.0:
            self._own, self._n, self._since = np.zeros(_SUMS), 0, bucket.start
        depth = min(self._depth_of(mean), mean)
        expected = eprocess.expected_means(mean - depth / 2.0, bucket.earlier, bucket.shrinkage)
        above = scores - (mean - depth / 2.0 if expected is None else expected)
        new = _sums(scores, weights)
        known = self._all + new
        slope = depth * known[0] / known[2] / self._variance(known, mean)
        self._log_ratio = max(self._log_ratio, 0.0) + float(slope * (weights * above).sum())
        self._all += new
        self._own += new
        self._n += bucket.count
        if self._log_ratio < math.log(THRESHOLD) or self._n < self._fewest:
            return False
        if self._is_back(mean):
            return True
        if self._n >= _WINDOW * self._fewest:
            self._own, self._n = np.zeros(_SUMS), 0
        return False

    def _depth_of(self, m0: float) -> float:
        """How far below m0 the mean is: by the scores from the alarm to the recovery, where few by that of the drop.

        The drop's own mean is too low, because its onset was chosen by the scores.
        """
        w, wx, ww = (self._all - self._own)[:3].tolist()
        n = w * w / ww if ww > 0.0 else 0.0
        seen = n * (m0 - wx / w) if n else 0.0
        return float(max(LEAST_DEPTH, (_DEPTH_WEIGHT * self._depth + seen) / (_DEPTH_WEIGHT + n)))

    @staticmethod
    def _variance(known: Array, mean: float) -> float:
        """Of a score, from all since the alarm; where these are few drawn to the largest that a score can have."""
        n = float(known[0] ** 2 / known[2])
        return float((_PRIOR_WEIGHT * mean * (1.0 - mean) + n * _variance(known)) / (_PRIOR_WEIGHT + n))

    def _is_back(self, m0: float) -> bool:
        """Whether the mean of the scores since the recovery began is m0 within one standard error."""
        w, wx, ww = self._own[:3].tolist()
        return bool(wx / w + math.sqrt(_variance(self._own) * ww) / w >= m0)

    def dumps(self) -> str:
        state = {"log_ratio": self._log_ratio, "depth": self._depth, "since": self._since}
        state |= {"n": self._n, "fewest": self._fewest}
        return json.dumps(state | {"all": self._all.tolist(), "own": self._own.tolist()})

    def loads(self, state: str) -> None:
        saved: dict[str, Any] = json.loads(state)
        self._log_ratio, self._depth, self._since = saved["log_ratio"], saved["depth"], saved["since"]
        self._fewest = saved["fewest"]
        self._n, self._all, self._own = saved["n"], np.array(saved["all"]), np.array(saved["own"])


def _sums(x: Array, w: Array) -> Array:
    ww = w * w
    return np.array([w.sum(), (w * x).sum(), ww.sum(), (ww * x).sum(), (ww * x * x).sum()])


def _variance(sums: Array) -> float:
    """Of one score, from the sums of w, w x, w^2, w^2 x, w^2 x^2."""
    w, wx, ww, wwx, wwxx = sums.tolist()
    if not ww:
        return 0.0
    mean = wx / w
    return float(max(0.0, (wwxx - 2.0 * mean * wwx + mean * mean * ww) / ww))
