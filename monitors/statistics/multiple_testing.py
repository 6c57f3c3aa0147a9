"""Multiple testing over slices: which ones fell (e-BH), and how the false-alarm budget is shared."""

from __future__ import annotations

import math
from collections.abc import Mapping


def affected(log_evidence: Mapping[str, float], alpha: float = 0.1) -> tuple[str, ...]:
    """Return the slices that fell, the strongest first: the e-BH procedure, valid under any dependence of slices.

    With S slices and M_(1) >= M_(2) >= ... their statistics, those up to the last k with M_(k) >= S/(alpha k).

    `log_evidence` are natural logarithms of M. If M is an e-value (its mean is <= 1 under H0, as for an e-process begun
    at a time chosen without looking), the expected share of wrong slices is <= alpha. If M is an e-Shiryaev-Roberts
    statistic, it is <= alpha times the sum of its start weights so far, as E[M] is below that sum; divide by the start
    weight of the period that alpha is meant for (`per_period`). That share grows with time: use it to list slices in an
    alert, not to decide whether to raise one.

    References: Wang & Ramdas, arXiv 2009.02824 (e-BH); arXiv 2501.04130 (on e-detectors);
    docs/explanation/alerts.md#slices. Raises ValueError for an alpha outside (0, 1) or evidence that is NaN.

    >>> affected({"model=a": 5.0, "model=b": 3.8, "model=c": 0.0, "model=d": -9.0}, alpha=0.1)
    ('model=a', 'model=b')
    >>> affected({"model=b": 3.8, "model=c": 2.0, "model=d": -9.0, "model=e": 0.0}, alpha=0.05)
    ()
    """
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha lies in (0, 1), got {alpha!r}")
    if any(math.isnan(value) for value in log_evidence.values()):
        raise ValueError("the evidence is NaN")
    ranked = sorted(log_evidence, key=lambda name: (-log_evidence[name], name))
    needed = math.log(len(ranked) / alpha) if ranked else 0.0
    kept = (k for k, name in enumerate(ranked, 1) if log_evidence[name] >= needed - math.log(k))
    return tuple(ranked[: max(kept, default=0)])


def per_period(evidence_log10: float, budget_per_s: float, period_s: float) -> float:
    """Convert a detector's evidence (log10 of M over its threshold) to the `log_evidence` of `affected`.

    With it the share of wrong slices in a list is <= alpha per `period_s` of running time. A detector with start
    weights of `budget_per_s` collects budget_per_s * period_s of them in a period; M divided by that has a mean <= 1
    per period.

    >>> round(per_period(0.0, budget_per_s=1 / 86_400, period_s=864.0), 6) == round(math.log(100.0), 6)
    True
    """
    if not (budget_per_s > 0.0 and period_s > 0.0 and math.isfinite(budget_per_s * period_s)):
        raise ValueError("the budget and the period must be positive numbers")
    return evidence_log10 * math.log(10.0) - math.log(budget_per_s * period_s)


def share(order: int) -> float:
    """Return the share of a budget for the slice found as number `order` (from 0): 1/((order + 1)(order + 2)).

    The sum over n slices is 1 - 1/(n + 1), always below 1, and a new slice does not change the other shares.

    >>> [round(share(order), 3) for order in range(3)], sum(map(share, range(10_000))) < 1
    ([0.5, 0.167, 0.083], True)
    """
    if order < 0:
        raise ValueError(f"slices are counted from 0; got {order!r}")
    return 1.0 / ((order + 1) * (order + 2))
