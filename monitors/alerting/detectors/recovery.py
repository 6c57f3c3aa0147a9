"""Detection of the end of a drop: evidence that the mean is above m0 again."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from monitors.alerting.detectors import Bucket
from monitors.alerting.detectors.e_sr import checked_mean
from monitors.statistics import eprocess

THRESHOLD = 100.0


class Recovery:
    """The mirrored e-CUSUM, H0: E[score | past] <= m0 (STATISTICS 5.2): over at evidence >= 100.

    For each bucket and bet g_k::

        C_k <- prod_i (1 + g_k w_i (x_i - m0)/m0) * max(C_k, 1)     over: mean_k C_k >= 100

    Under H0 the expected number of buckets (with scores) until it is wrongly over is at least 100 (e-CUSUM <= e-SR,
    STATISTICS 1.3); a mean clearly below m0 makes it far more. The m0 of a bucket is the one that `update` is given, by
    default the constructor's. `loads` refuses (ValueError) a state made for another m0 of the constructor or set of
    bets.

    >>> recovery = Recovery(m0=0.8)
    >>> back = (Bucket(start=60.0 * i, seconds=60.0, scores=(0.95,) * 5, weights=(1.0,) * 5) for i in range(100))
    >>> next(i for i, bucket in enumerate(back) if recovery.update(bucket))
    9
    """

    def __init__(self, m0: float | None = None) -> None:
        self.m0 = None if m0 is None else checked_mean(m0)
        self._bets = eprocess.bets()
        self._log_c = np.zeros(len(self._bets))

    @property
    def evidence_log10(self) -> float:
        """log10 of mean_k C_k / 100; it is over at 0."""
        return float(eprocess.log_mean(self._log_c)) / math.log(10.0) - math.log10(THRESHOLD)

    def update(self, bucket: Bucket, m0: float | None = None) -> bool:
        """Take the next bucket; return whether the drop is over. Raises ValueError like the detector."""
        scores, weights = eprocess.checked(bucket.scores, bucket.weights)
        mean = checked_mean(self.m0 if m0 is None else m0)
        if not scores.size:
            return False
        expected = eprocess.expected_means(mean, bucket.earlier, bucket.shrinkage)
        payoffs = eprocess.rise_payoffs(scores, weights, mean, expected)
        increments = eprocess.log_factors(payoffs, self._bets).sum(axis=0)
        self._log_c = eprocess.cusum(self._log_c, increments)
        return self.evidence_log10 >= 0.0

    def dumps(self) -> str:
        return json.dumps(self._identity() | {"log_c": self._log_c.tolist()})

    def loads(self, state: str) -> None:
        saved: dict[str, Any] = json.loads(state)
        if any(saved.get(key) != value for key, value in self._identity().items()):
            raise ValueError(f"this state belongs to another detector than {self._identity()}")
        self._log_c = np.array(saved["log_c"])

    def _identity(self) -> dict[str, Any]:
        return {"m0": self.m0, "bets": [eprocess.FIRST_BET, eprocess.LAST_BET, eprocess.BETS]}
