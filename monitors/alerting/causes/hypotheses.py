"""What may have lowered several metrics at once, weighed by how well it predicts the size of each fall.

Means alone do not identify a cause: harder questions lower the relevance of the passages and the answers, as a broken
retrieval does. What differs is how large the falls are, and in what proportion. Each hypothesis states that in advance
as a prior distribution of the falls; its weight is the probability it gave to the falls that were seen, and the
posterior compares the weights (R. E. Kass & A. E. Raftery (1995), Bayes factors, JASA 90). The priors are stated
assumptions, not estimates; docs/explanation/causes.md lists them, and how often the result is right in simulations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Hypothesis: TypeAlias = Literal[
    "retrieval", "generation", "questions", "judge", "judge on one metric", "judge and generation"
]

PRIORS: Mapping[Hypothesis, float] = {
    "retrieval": 1.0,
    "generation": 1.0,
    "questions": 1.0,
    "judge": 0.75,
    "judge on one metric": 0.3,
    "judge and generation": 0.3,
}
"""Prior odds. A judge changes unnoticed more rarely than an app does; on one metric alone, or with it, still more."""
JUDGES: tuple[Hypothesis, ...] = ("judge", "judge on one metric", "judge and generation")
BROKEN = 0.8
"""A broken retrieval or generation costs a part of a metric's mean: Beta(1, 2), a third on average, with this
probability, else anything from nothing to all."""
PASSED_ON = 1.1
"""At most this multiple of the relative fall of the relevance is passed on to the answers."""
SLIPPED = 0.25
"""Worse answers may take the relevance along by this part of their fall, as one judge sees both; mostly by nothing."""
HARDEST = 0.6
"""Harder questions lose at most this part of a metric's mean."""
SILENT = 4.0
"""The share of new questions that no stratum shows is Beta(1, 4): a fifth on average, 95 % below .53."""
STRICTER = 0.1
"""Mean of the exponential prior of a judge's shift."""
UNEQUAL = 0.3, 1.7
"""A stricter judge lowers each metric by its shift times a number in this range."""
UNMOVED = 0.25
"""The prior probability that a metric does not move although the hypothesis says it may."""
DRIFT, INFLATION = 0.01, 1.2
"""Differences this small happen without a cause; scores of one exchange are alike, so errors are somewhat larger."""
STRONG, MODERATE = 0.95, 0.8
"""Probabilities from which on a cause is called strong, or moderate; below it is weak."""
_GRID: Array = (np.arange(100, dtype=np.float64) + 0.5) / np.float64(100.0)
_erf = np.vectorize(math.erf, otypes=[np.float64])


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """One metric: its mean before (`level`, in (0, 1]), its `fall` with standard error `se`, and what it measures.

    `main` is the metric of the alert, which did fall.
    """

    level: float
    fall: float
    se: float
    retrieval: bool
    judged: bool
    main: bool = False


def posterior(
    moved: Sequence[Moved], factors: Mapping[Hypothesis, float] | None = None, *, one_source: bool = False
) -> Mapping[Hypothesis, float]:
    """Return the posterior probability of each hypothesis; `factors` multiply the prior odds.

    `moved` has at most one retrieval metric. `one_source`: only exchanges with one source fell. Its passage may be
    wrong and partly relevant, which costs the whole answer, so half of the prior of "retrieval" lets the answers lose
    anything.

    >>> falls = [
    ...     Moved(level=0.8, fall=0.25, se=0.02, retrieval=True, judged=True),
    ...     Moved(level=0.85, fall=0.12, se=0.02, retrieval=False, judged=True, main=True),
    ...     Moved(level=0.7, fall=0.10, se=0.02, retrieval=False, judged=False),
    ... ]
    >>> round(posterior(falls)["retrieval"], 1)
    1.0
    >>> less = [
    ...     Moved(level=0.8, fall=0.05, se=0.01, retrieval=True, judged=True),
    ...     Moved(level=0.85, fall=0.06, se=0.01, retrieval=False, judged=True, main=True),
    ... ]
    >>> max(posterior(less).values()) < 0.8
    True
    """
    limits = (PASSED_ON, math.inf) if one_source else (PASSED_ON,)
    weight = {
        "retrieval": sum(_retrieval(moved, limit) for limit in limits) / len(limits),
        "generation": _generation(moved),
        "questions": _questions(moved),
        "judge": _judge(moved, answers=False),
        "judge on one metric": _judge_alone(moved),
        "judge and generation": _judge(moved, answers=True),
    }
    known = factors or {}
    odds: dict[Hypothesis, float] = {name: PRIORS[name] * known.get(name, 1.0) * weight[name] for name in PRIORS}
    total = sum(odds.values())
    if not total > 0.0:
        return {name: 1.0 / len(odds) for name in odds}
    return {name: value / total for name, value in odds.items()}


def strength_word(probability: float) -> str:
    """Return what a strength is called, as it is shown: with two decimals.

    >>> [strength_word(share) for share in (0.97, 0.9, 0.7999, 0.7)]
    ['strong', 'moderate', 'moderate', 'weak']
    """
    shown = round(probability, 2)
    return "strong" if shown >= STRONG else "moderate" if shown >= MODERATE else "weak"


def from_p_value(p: float) -> float:
    """Return an upper bound of the posterior of an effect at even prior odds, from the p-value of its absence.

    T. Sellke, M. J. Bayarri & J. O. Berger (2001), Calibration of p values, Am. Stat. 55: B >= -e p ln p.

    >>> round(from_p_value(0.05), 2), round(from_p_value(0.0001), 3), from_p_value(0.5)
    (0.71, 0.997, 0.5)
    """
    if p >= 1.0 / math.e:
        return 0.5
    if p <= 0.0:
        return 1.0
    return 1.0 / (1.0 - math.e * p * math.log(p))


def _broken(part: Array) -> Array:
    return BROKEN * 2.0 * (1.0 - part) + (1.0 - BROKEN)


def _retrieval(moved: Sequence[Moved], passed_on: float) -> float:
    lost = _GRID
    weight = _broken(lost)
    for metric in moved:
        if metric.retrieval:
            weight = weight * _at(metric, lost * metric.level)
        else:
            weight = weight * _within(metric, 0.0 * lost, np.minimum(1.0, passed_on * lost) * metric.level)
    return float(weight.mean())


def _generation(moved: Sequence[Moved]) -> float:
    worse = _GRID
    weight = _broken(worse)
    for metric in moved:
        most = (SLIPPED if metric.retrieval else 1.0) * worse * metric.level
        moves = UNMOVED if metric.retrieval else 1.0 - UNMOVED
        weight = weight * _within(metric, 0.0 * worse, most, moves)
    return float(weight.mean())


def _questions(moved: Sequence[Moved]) -> float:
    share = _GRID
    weight = SILENT * (1.0 - share) ** (SILENT - 1.0)
    for metric in moved:
        bounds = 0.0 * share, HARDEST * share * metric.level
        weight = weight * (_spread(metric, *bounds) if metric.retrieval else _within(metric, *bounds))
    return float(weight.mean())


def _judge(moved: Sequence[Moved], *, answers: bool) -> float:
    """Return the weight of a stricter judge; with `answers`, the app's answers got worse as well."""
    if not any(metric.judged for metric in moved):
        return 0.0
    stricter: Array = -STRICTER * np.log1p(-_GRID)
    weight = np.ones_like(stricter)
    for metric in moved:
        low, high = ((bound * stricter if metric.judged else 0.0 * stricter) for bound in UNEQUAL)
        if answers and not metric.retrieval:
            weight = weight * _within(metric, low, np.maximum(high, metric.level))
        elif metric.judged:
            weight = weight * _spread(metric, low, np.maximum(high, low + 1e-6))
        else:
            weight = weight * _at(metric, low)
    return float(weight.mean())


def _judge_alone(moved: Sequence[Moved]) -> float:
    """Return the weight of a judge that is stricter on the metric of the alert and on no other."""
    if not any(metric.main and metric.judged for metric in moved):
        return 0.0
    stricter: Array = -STRICTER * np.log1p(-_GRID)
    weight = np.ones_like(stricter)
    for metric in moved:
        weight = weight * _at(metric, stricter if metric.main else 0.0 * stricter)
    return float(weight.mean())


def _within(metric: Moved, low: Array, high: Array, moves: float = 1.0 - UNMOVED) -> Array:
    """Return the density of the seen fall if the true one is uniform with probability `moves`, else `low`.

    The metric of the alert did move.
    """
    spread = _spread(metric, low, np.maximum(high, low + 1e-6))
    return spread if metric.main else (1.0 - moves) * _at(metric, low) + moves * spread


def _spread(metric: Moved, low: Array, high: Array) -> Array:
    scale = _error(metric) * math.sqrt(2.0)
    between: Array = 0.5 * (_erf((high - metric.fall) / scale) - _erf((low - metric.fall) / scale))
    return np.maximum(between, 1e-300) / (high - low)


def _at(metric: Moved, fall: Array) -> Array:
    error = _error(metric)
    density: Array = np.exp(-0.5 * ((metric.fall - fall) / error) ** 2) / (error * math.sqrt(2.0 * math.pi))
    return density


def _error(metric: Moved) -> float:
    return math.hypot(INFLATION * metric.se, DRIFT)
