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
from typing import Literal, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from monitors.alerting.causes.observations import ALPHA, Explanation, Fall, JudgeEvidence, Words, percent
from monitors.alerting.causes.retrieval_or_generation import Evidence, is_retrieval, order
from monitors.alerting.causes.traffic import ROOM, Slice
from monitors.statistics.decomposition import LEAST_N_EFF, Contrast

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
_GRID: Array = (np.arange(100, dtype=np.float64) + 0.5) / np.float64(100.0)
_erf = np.vectorize(math.erf, otypes=[np.float64])


class Moved(Struct, frozen=True, kw_only=True):
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


NAMED = 0.6
"""A cause is named from this probability on."""
_UNLIKELY = 0.05
"""The factor of a hypothesis that separate evidence speaks against: error rates of 5 %."""
WITHOUT_ANCHORS = 0.94
"""The largest strength of "generation" where a judge scored and no anchors show that it stayed: never strong."""
_LEAST_LEVEL, _LIKELY = 0.05, 0.1
_NO_TOPIC = 1 / 3
"""Topics show two thirds of the changes of the questions (simulated), so that none moved leaves a third."""
_SAID: dict[Hypothesis, str] = {
    "retrieval": "retrieval",
    "generation": "generation",
    "questions": "harder questions",
    "judge": "a stricter judge",
    "judge on one metric": "a judge that is stricter on this metric alone",
    "judge and generation": "a stricter judge and worse answers at once",
}


def weighed(
    found: Explanation,
    evidence: Evidence,
    words: Words,
    *,
    judge: JudgeEvidence | None,
    place: Slice | None,
    document: str | None = None,
) -> Explanation:
    """Return the cause with its strength, or "unknown" with the alternatives if it is not likely enough.

    `found` is "retrieval" or "generation"; `evidence` is of the traffic it was found in. `document` is the one that
    most of the drop is confined to, if there is one.
    """
    if found.strength is not None:
        return found
    name: Hypothesis = "retrieval" if found.cause == "retrieval" else "generation"
    main = _main(evidence)
    factors, rests = _factors(evidence, judge, place, document)
    when = order(main, evidence.drop)[0] if main is not None and main.clear(ALPHA) else "together"
    if main is not None and when != "together":
        factors |= dict.fromkeys(("questions", *JUDGES), _UNLIKELY)
        rests.append(f"{main.metric} fell {when}")
    if when == "later":
        main, factors["retrieval"] = None, _UNLIKELY
    used = ([main] if main is not None else []) + [fall for fall in evidence.answers if fall.contrast is not None]
    by_source = document is not None and name == "retrieval"
    if by_source:  # what writes the answers is the same for all documents, and leaves the relevance alone
        factors["generation"] = _UNLIKELY
    odds = posterior([_moved(fall, evidence.drop) for fall in used], factors, one_source=by_source)
    metrics = ", ".join(fall.metric for fall in used)
    likely = odds[name] + (odds["judge and generation"] if name == "generation" else 0.0)
    if likely >= NAMED:
        if name == "generation" and (judge is None or judge.pending) and any(metric.judged for metric in used):
            likely = min(likely, WITHOUT_ANCHORS)
        return replace(found, strength=likely, evidence=(f"sizes of the falls of {metrics}", *rests))
    ranked = sorted(odds, key=lambda cause: -odds[cause])
    said = _SAID if document is None else _SAID | {"generation": "worse answers, with that source only"}
    some = [f"{said[cause]} ({percent(odds[cause])})" for cause in ranked if odds[cause] >= _LIKELY][:3]
    what = words.whole(evidence.drop)
    if main is not None:
        what += f"; {main.metric}: {words.change(main)}"
    return Explanation(
        cause="unknown", detail=f"{what}. The sizes of the falls fit {', '.join(some)}.", slice=found.slice
    )


def _main(evidence: Evidence) -> Fall | None:
    """Return the retrieval metric that moved most."""
    known = [fall for fall in evidence.retrieval if fall.contrast is not None]
    return max(known, key=lambda fall: fall.contrast.value / fall.contrast.se if fall.contrast else 0.0, default=None)


def _moved(fall: Fall, drop: Fall) -> Moved:
    return Moved(
        level=max(_LEAST_LEVEL, fall.old.mean if fall.old is not None else 1.0),
        fall=fall.contrast.value if fall.contrast is not None else 0.0,
        se=fall.contrast.se if fall.contrast is not None else 1.0,
        retrieval=is_retrieval(fall.metric),
        judged=fall.judged,
        main=fall.metric == drop.metric,
    )


def _factors(
    evidence: Evidence, judge: JudgeEvidence | None, place: Slice | None, document: str | None
) -> tuple[dict[Hypothesis, float], list[str]]:
    """Return what separate evidence says of each hypothesis, and the names of that evidence."""
    factors: dict[Hypothesis, float] = {}
    rests: list[str] = []
    if judge is not None and not judge.pending and not judge.drifted:
        factors |= dict.fromkeys(JUDGES, _UNLIKELY)
        rests.append("anchors that stayed")
    if place is not None:
        factors |= dict.fromkeys(JUDGES, _UNLIKELY)
        rests.append(f"only {place.name} fell")
        if place.new:
            factors["questions"] = _UNLIKELY
            if place.key in ("model", "prompt"):
                factors["retrieval"] = _UNLIKELY
    if document is not None:  # the judge is the same for all documents
        factors |= dict.fromkeys(JUDGES, _UNLIKELY)
        rests.append(f"low scores with the source {document}")
    again = repeated(evidence.drop)
    if again is not None and evidence.drop.contrast is not None:
        half = ROOM * evidence.drop.contrast.value
        if again.clear(ALPHA) and again.value >= half:
            factors["questions"] = min(_UNLIKELY, factors.get("questions", 1.0))
            rests.append("questions that recur fell as well")
        elif again.interval(ALPHA)[1] < half:
            factors |= {name: _UNLIKELY for name in PRIORS if name != "questions"}
            rests.append("questions that recur did not fall")
    elif any("topic" in observation.strata for observation in evidence.drop.since):
        factors["questions"] = min(_NO_TOPIC, factors.get("questions", 1.0))
        rests.append("the topics do not explain it")
    return factors, rests


def repeated(drop: Fall) -> Contrast | None:
    """Return the fall among questions that were asked before and since; None with fewer than 10 scores on a side.

    The mean of the questions' own falls, weighted by the smaller number of scores of each.
    """
    old, new = _by_question(drop, before=True), _by_question(drop, before=False)
    both = [name for name in old if name in new]
    n = [sum(len(side[name]) for name in both) for side in (old, new)]
    weights = {name: min(len(old[name]), len(new[name])) for name in both}
    total = sum(weights.values())
    if min(n, default=0) < LEAST_N_EFF or total < LEAST_N_EFF:
        return None
    value = sum(weights[name] * (_mean(old[name]) - _mean(new[name])) for name in both) / total
    variance = max(_pooled(side, both) for side in (old, new))
    spread = sum((weights[name] / total) ** 2 * (1.0 / len(old[name]) + 1.0 / len(new[name])) for name in both)
    return Contrast(value=value, se=math.sqrt(variance * spread))


def _by_question(drop: Fall, *, before: bool) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for observation in drop.before if before else drop.since:
        if observation.question and observation.value is not None:
            found.setdefault(observation.question, []).append(observation.value)
    return found


def _pooled(side: Mapping[str, Sequence[float]], names: Sequence[str]) -> float:
    """Return the variance of all scores of these questions, shrunk towards 1/4 by one score."""
    values = [value for name in names for value in side[name]]
    mean = _mean(values)
    return (0.25 + sum((value - mean) ** 2 for value in values)) / (len(values) + 1.0)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
