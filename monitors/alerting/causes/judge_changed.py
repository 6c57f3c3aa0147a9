"""Causes in the judge: drifted anchors, failures, a changed judge or metric version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from monitors.alerting.causes.observations import (
    ALPHA,
    Explanation,
    Fall,
    JudgeEvidence,
    Observation,
    Words,
    from_p_value,
    percent,
    share,
    values_of,
)
from monitors.alerting.causes.traffic import CARRIED
from monitors.metrics import DISAGREEMENT
from monitors.statistics.decomposition import Grouped, decompose, fall
from monitors.statistics.weighted_mean import Estimate

MATERIAL = 0.05
"""Smaller changes of a share are not named as a cause, however significant they are."""
KNOWN = 0.95
"""The strength where a change of the judge is a fact, and something else would have to have changed with it."""
_REPLACED, _OF_TWO = 0.9, 0.5
MOVED = ("anchors that moved",)
"""The evidence of a round of anchors that began after the alarm."""
_MOVED_BEFORE = ("anchors that moved before the alarm",)


def drifted(judge: JudgeEvidence | None) -> Explanation | None:
    """Return the cause "judge" if the anchors drifted: only the judge can move them."""
    if judge is None or not judge.drifted:
        return None
    return Explanation(
        cause="judge",
        detail=judge.detail or "The judge scores its anchors differently than expected.",
        strength=KNOWN,
        evidence=_MOVED_BEFORE if judge.pending else MOVED,
    )


def of_two(metric: str) -> Explanation | None:
    """Return the cause "judge" of a change in how two judges score the same exchanges."""
    if not metric.endswith(DISAGREEMENT):
        return None
    detail = "One of the two judges changed, or the traffic has more of what they judge differently."
    return Explanation(cause="judge", detail=detail, strength=_OF_TWO, evidence=("both judges on the same exchanges",))


def failing(before: Sequence[Observation], since: Sequence[Observation], alpha: float) -> Explanation | None:
    """Return the cause "judge" if evaluations clearly fail more often, over the metrics that ever fail."""
    metrics = {observation.metric for observation in (*before, *since) if observation.outcome == "failed"}
    old, new = _failures(before, metrics), _failures(since, metrics)
    more = fall(new, old)  # with the sides swapped: a rise
    if old is None or new is None or more is None or not more.clear(alpha) or more.value < MATERIAL:
        return None
    words = _counted(observation.reason for observation in since if observation.outcome == "failed")
    return Explanation(
        cause="judge",
        detail=f"{percent(new.mean)} of the evaluations failed ({words}), {percent(old.mean)} before (n {new.n}).",
        strength=from_p_value(more.p_value * ALPHA / alpha),
        evidence=("share of failed evaluations",),
    )


def replaced(drop: Fall, alpha: float, words: Words) -> Explanation | None:
    """Return the cause "judge" if scores are by another version or judge, and those made as before did not fall."""
    makers = sorted({observation.maker for observation in (*drop.before, *drop.since)})
    if len(makers) == 1:
        return None
    groups = {maker: index for index, maker in enumerate(makers)}
    sides = [
        Grouped(
            values=values_of(side),
            rates=[observation.rate for observation in side],
            groups=[groups[observation.maker] for observation in side],
        )
        for side in (drop.before, drop.since)
    ]
    known = {observation.maker for observation in drop.before}
    new = share((observation.maker not in known, observation.rate) for observation in drop.since)
    parts = decompose(*sides)
    explained = parts is not None and (
        parts.mix.clear(alpha) and parts.mix.value >= CARRIED * parts.total.value and not parts.within.clear(ALPHA)
    )
    if not explained and (new is None or new.mean < _REPLACED):
        return None
    old_maker, new_maker = _usual(drop.before), _usual(drop.since)
    made = f"Scores of {drop.metric} are by {_maker(*new_maker)} since, by {_maker(*old_maker)} before"
    if old_maker == new_maker:
        made = f"More scores of {drop.metric} are by another version or judge than before"
    return Explanation(
        cause="judge",
        detail=f"{made}; {words.change(drop)} compares the two, not the answers.",
        strength=KNOWN if parts is None or not explained else from_p_value(parts.mix.p_value * ALPHA / alpha),
        evidence=("version and judge model of the scores",),
    )


def _failures(side: Iterable[Observation], metrics: set[str]) -> Estimate | None:
    return share(
        (observation.outcome == "failed", observation.rate)
        for observation in side
        if observation.metric in metrics and observation.outcome != "skipped"
    )


def _counted(reasons: Iterable[str]) -> str:
    counts = Counter(reasons)
    return ", ".join(sorted(counts, key=lambda reason: (-counts[reason], reason))[:2])


def _usual(scores: Iterable[Observation]) -> tuple[str, str]:
    counts = Counter(observation.maker for observation in scores)
    return max(sorted(counts), key=counts.__getitem__)


def _maker(version: str, judge: str) -> str:
    return f"{judge} (version {version})" if judge else f"version {version}"
