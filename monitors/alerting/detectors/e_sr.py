"""The default detector: a mixture e-Shiryaev-Roberts procedure that alarms when the mean falls below m0."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from gaugeway.records import Finding
from monitors.alerting.detectors import FLOOR_LOG10, Bucket
from monitors.statistics import eprocess
from monitors.statistics.eprocess import Array

ONE_IN_30_DAYS = 1.0 / (30 * 86_400.0)
_LOG10 = math.log(10.0)
_HOUR_S = 3600.0
_DIGITS = 6
"""Of the saved sums, which are for the estimate only."""


class MixtureESR:
    """Tests H0: E[score | past] >= m0, for any law and dependence of scores in [0, 1].

    See docs/explanation/alerts.md#how-it-decides.

    For each bucket with scores x_i and weights w_i, and each bet g_k (`eprocess.bets`), with a = g_k/(1 - m0)::

        M_k <- prod_i (1 + a w_i (m0 - x_i))^(1/d) exp(-(a/d)^2 V ((N + n)^2 - N^2)/2) (M_k + budget_per_s * seconds)

    and an alarm where mean_k M_k >= 1. After an alarm M is 0 again.

    With d = 1 and V = 0 (independent given the past, m0 known) E[false alarms in T seconds] <= budget_per_s * T. Proof:
    under H0 mean_k M_k minus the sum W of the start weights is a supermartingale, so E[M at an alarm] <= E[W then];
    with M >= 1 at each alarm and a restart from 0, E[alarms up to T] <= E[W_T] <= budget_per_s * T.

    d is the design effect of the bucket, for scores that are alike though nothing names what they share. If every
    d-th score is independent of those before, the product is a geometric mean of d products that each are as above,
    and by the inequality of the means no larger than theirs on average; a design effect stands for such a d. V is the
    variance of m0 as a forecast, n and N the weights of the bucket and of its hour before: for an hour whose mean is
    normal around the forecast, the second factor is what makes the mean of the hour's product 1 at its end. For both,
    the rate of false alarms is measured (benchmarks/detection/seasons.py, clusters.py).

    A bucket without scores changes nothing; in particular it adds no start weight, or M would reach 1 by the clock
    alone after 1/budget_per_s seconds without any data. The bound stays: leaving weights out only lowers W, and
    whether scores arrived is known before their values are, given which H0 says E[score | past] >= m0.

    The onset is the last renewal of the CUSUM of the same bets, for the bet with the most evidence. The finding's
    estimate is the weighted mean of the scores since then; it is too low on average, because the onset is chosen by
    the scores.

    `update` takes the m0 of its bucket, by default the constructor's. It may differ between buckets as long as it is
    fixed before the bucket's scores are seen: the proof needs each factor's mean to be <= 1 given the past. H0 is then
    that the mean was never below the m0 of its time.

    `loads` rejects (ValueError, without a change) a state with another m0, budget or set of bets: evidence against one
    hypothesis is none against another.

    Reference: Shin, Ramdas & Rinaldo, arXiv 2203.03532 (e-detectors); the bound with start weights is derived in
    docs/explanation/alerts.md#how-it-decides.

    >>> detector = MixtureESR(m0=0.8, budget_per_s=1 / 86_400)
    >>> good = [Bucket(start=60.0 * i, seconds=60.0, scores=(0.9,) * 5, weights=(1.0,) * 5) for i in range(100)]
    >>> [detector.update(bucket) for bucket in good] == [None] * 100
    True
    >>> bad = (Bucket(start=60.0 * i, seconds=60.0, scores=(0.5,) * 5, weights=(1.0,) * 5) for i in range(100, 200))
    >>> finding = next(found for bucket in bad if (found := detector.update(bucket)))
    >>> finding.onset, finding.n, finding.estimate
    (6000.0, 15, 0.5)
    """

    def __init__(self, m0: float | None = None, budget_per_s: float = ONE_IN_30_DAYS) -> None:
        if not (budget_per_s > 0.0 and math.isfinite(budget_per_s)):
            raise ValueError(f"the budget is a positive number of false alarms a second, got {budget_per_s!r}")
        self.m0 = None if m0 is None else checked_mean(m0)
        self.budget_per_s = budget_per_s
        self._bets = eprocess.bets()
        self._hour, self._in_hour = 0, 0.0  # of the bucket before, and the weight of the hour's scores so far
        self.reset()

    def reset(self) -> None:
        """Reset the evidence. The weight of the hour's scores stays: the rest of the hour has the same forecast."""
        k = len(self._bets)
        self._log_m = np.full(k, eprocess.EMPTY)
        self._log_c = np.zeros(k)
        self._onset = np.zeros(k)
        self._n = np.zeros(k, dtype=np.int64)
        self._w, self._wx = np.zeros(k), np.zeros(k)
        self._log_mean = eprocess.EMPTY
        self._last_m0 = self.m0 or 0.0

    @property
    def evidence_log10(self) -> float:
        """log10 of mean_k M_k; the alarm is at 0."""
        return max(FLOOR_LOG10, self._log_mean / _LOG10)

    def current(self) -> Finding:
        """Return the finding of an alarm now, whether there is one or not; `onset` is 0 before the first score."""
        best = int(np.argmax(self._log_m))
        return Finding(
            evidence_log10=self.evidence_log10,
            baseline=self._last_m0,
            onset=float(self._onset[best]),
            n=int(self._n[best]),
            estimate=float(self._wx[best] / self._w[best]) if self._w[best] else None,
        )

    def update(self, bucket: Bucket, m0: float | None = None) -> Finding | None:
        """Take in the next bucket; return the finding of an alarm.

        Raises ValueError, without a change of state, for scores or m0 outside their ranges or an empty time span.
        """
        if not bucket.seconds > 0.0:
            raise ValueError(f"the length of a bucket is positive, got {bucket.seconds!r}")
        scores, weights = eprocess.checked(bucket.scores, bucket.weights)
        mean = checked_mean(self.m0 if m0 is None else m0)
        if not scores.size:
            return None
        # a sum over the bucket: the order of its scores does not matter
        expected = eprocess.expected_means(mean, bucket.earlier, bucket.shrinkage)
        payoffs = eprocess.drop_payoffs(scores, weights, mean, expected)
        increments = eprocess.log_factors(payoffs, self._bets).sum(axis=0) / bucket.design_effect
        increments -= self._cost_of_forecast(bucket, mean, weights)
        renewed = self._log_c <= 0.0
        self._onset[renewed] = bucket.start
        self._n[renewed], self._w[renewed], self._wx[renewed] = 0, 0.0, 0.0
        self._n += bucket.count
        self._w += weights.sum()
        self._wx += (weights * scores).sum()
        self._last_m0 = mean
        self._log_c = eprocess.cusum(self._log_c, increments)
        self._log_m = eprocess.shiryaev_roberts(self._log_m, increments, math.log(self.budget_per_s * bucket.seconds))
        self._log_mean = float(eprocess.log_mean(self._log_m))
        if self._log_mean < 0.0:
            return None
        finding = self.current()
        self.reset()
        return finding

    def _cost_of_forecast(self, bucket: Bucket, m0: float, weights: Array) -> Array | float:
        """Return what each bet pays because m0 is a forecast, in logs; take in the weight of the hour's scores."""
        hour = math.floor(bucket.start / _HOUR_S)
        before = self._in_hour if hour == self._hour else 0.0
        after = before + float((weights * (1.0 - np.array(bucket.shrinkage or 0.0))).sum())
        self._hour, self._in_hour = hour, after
        if not bucket.m0_variance:
            return 0.0
        slopes = self._bets / (1.0 - m0) / bucket.design_effect
        cost: Array = slopes * slopes * (bucket.m0_variance * (after * after - before * before) / 2.0)
        return cost

    def dumps(self) -> str:
        return json.dumps(
            self._identity()
            | {
                "log_m": [value if math.isfinite(value) else None for value in self._log_m.tolist()],
                "log_c": self._log_c.tolist(),
                "onset": self._onset.tolist(),
                "n": self._n.tolist(),
                "w": self._w.round(_DIGITS).tolist(),
                "wx": self._wx.round(_DIGITS).tolist(),
                "last_m0": self._last_m0,
                "hour": [self._hour, round(self._in_hour, _DIGITS)],
            }
        )

    def loads(self, state: str) -> None:
        saved: dict[str, Any] = json.loads(state)
        if any(saved.get(key) != value for key, value in self._identity().items()):
            raise ValueError(f"this state belongs to another detector than {self._identity()}")
        self._log_m = np.array([eprocess.EMPTY if value is None else value for value in saved["log_m"]])
        self._log_c = np.array(saved["log_c"])
        self._onset = np.array(saved["onset"])
        self._n = np.array(saved["n"], dtype=np.int64)
        self._w, self._wx = np.array(saved["w"]), np.array(saved["wx"])
        self._log_mean = float(eprocess.log_mean(self._log_m))
        self._last_m0 = float(saved["last_m0"])
        self._hour, self._in_hour = saved.get("hour", (0, 0.0))

    def _identity(self) -> dict[str, Any]:
        grid = [eprocess.FIRST_BET, eprocess.LAST_BET, eprocess.BETS]
        return {"m0": self.m0, "budget_per_s": self.budget_per_s, "bets": grid}


def checked_mean(m0: float | None) -> float:
    """Return `m0`. Raises ValueError for None or a value outside (0, 1).

    >>> checked_mean(0.8)
    0.8
    """
    if m0 is None or not 0.0 < m0 < 1.0:
        raise ValueError(f"m0 lies in (0, 1), got {m0!r}")
    return m0
