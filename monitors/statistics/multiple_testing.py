"""Many slices of the traffic, each with a detector: which of them fell, and how the false-alarm budget is shared."""

from __future__ import annotations

import math
from collections.abc import Mapping


def affected(log_evidence: Mapping[str, float], alpha: float = 0.1) -> tuple[str, ...]:
    """The slices that fell, the clearest first: the e-BH procedure on e-detectors, under any dependence of slices.

    With S slices and M_(1) >= M_(2) >= ... their statistics, those up to the last k with M_(k) >= S/(alpha k).

    `log_evidence` are natural logarithms of M. How many of those listed are wrong follows from how M was made. M an
    e-value (its mean is <= 1 under H0, as that of an e-process begun at a time chosen without looking): the expected
    share of wrong ones is <= alpha. M an e-Shiryaev-Roberts statistic: <= alpha times the sum of its start weights so
    far, as E[M] is below that sum; so divide by the start weight of the time that alpha is meant for (`per_period`).
    That share grows with time; it is for listing slices in an alert, not for deciding whether to raise one.

    References: Wang & Ramdas, arXiv 2009.02824 (e-BH); arXiv 2501.04130 (on e-detectors); STATISTICS 1.5. Raises
    ValueError for an alpha outside (0, 1) or evidence that is no number.

    >>> affected({"model=a": 5.0, "model=b": 3.8, "model=c": 0.0, "model=d": -9.0}, alpha=0.1)
    ('model=a', 'model=b')
    >>> affected({"model=b": 3.8, "model=c": 2.0, "model=d": -9.0, "model=e": 0.0}, alpha=0.05)
    ()
    """
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha lies in (0, 1), got {alpha!r}")
    if any(math.isnan(value) for value in log_evidence.values()):
        raise ValueError("evidence is a number")
    ranked = sorted(log_evidence, key=lambda name: (-log_evidence[name], name))
    needed = math.log(len(ranked) / alpha) if ranked else 0.0
    kept = (k for k, name in enumerate(ranked, 1) if log_evidence[name] >= needed - math.log(k))
    return tuple(ranked[: max(kept, default=0)])


def per_period(evidence_log10: float, budget_per_s: float, period_s: float) -> float:
    """Turn a detector's evidence (log10 of M over its threshold) into the `log_evidence` that `affected` takes.

    With it the share of wrong slices in a list is <= alpha for each `period_s` that the detectors have run. A detector
    that adds up start weights of `budget_per_s` has collected budget_per_s * period_s of them in a period; M divided
    by that has a mean <= 1 for each period that passed.

    >>> round(per_period(0.0, budget_per_s=1 / 86_400, period_s=864.0), 6) == round(math.log(100.0), 6)
    True
    """
    if not (budget_per_s > 0.0 and period_s > 0.0 and math.isfinite(budget_per_s * period_s)):
        raise ValueError("a budget and a period are positive numbers")
    return evidence_log10 * math.log(10.0) - math.log(budget_per_s * period_s)


def share(order: int) -> float:
    """The part of a budget for the slice discovered as number `order` (from 0), for good: 1/((order + 1)(order + 2)).

    The sum over n slices is 1 - 1/(n + 1), below 1 however many turn up, and nobody's part changes when one does.

    >>> [round(share(order), 3) for order in range(3)], sum(map(share, range(10_000))) < 1
    ([0.5, 0.167, 0.083], True)
    """
    if order < 0:
        raise ValueError(f"slices are counted from 0, got {order!r}")
    return 1.0 / ((order + 1) * (order + 2))
