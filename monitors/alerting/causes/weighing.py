"""Whether "retrieval" or "generation" is likely enough to be named, given what else could have lowered the scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from monitors.alerting.causes.hypotheses import JUDGES, PRIORS, Hypothesis, Moved, posterior
from monitors.alerting.causes.observations import ALPHA, Explanation, Fall, JudgeEvidence, Words, percent
from monitors.alerting.causes.retrieval_or_generation import Evidence, is_retrieval, order
from monitors.alerting.causes.slices import ROOM, Slice
from monitors.statistics.decomposition import LEAST_N_EFF, Contrast

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
        what += f"; {main.metric}: {words.change(main.metric, main.old, main.new)}"
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
