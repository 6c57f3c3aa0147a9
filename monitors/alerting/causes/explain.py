"""Why a metric dropped: the instrument first, then the traffic, then the parts of the app."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from monitors.alerting.causes import judge_changed as instrument
from monitors.alerting.causes import retrieval_or_generation as parts
from monitors.alerting.causes import slices
from monitors.alerting.causes import traffic_mix as mix
from monitors.alerting.causes.observations import (
    ALPHA,
    Explanation,
    Fall,
    JudgeEvidence,
    Observation,
    Words,
    compare,
    scores_of,
)


def explain(
    metric: str,
    before: Sequence[Observation],
    since: Sequence[Observation],
    *,
    judge: JudgeEvidence | None = None,
    lower_is_better: Callable[[str], bool] = lambda _: False,
) -> Explanation:
    """Say why `metric` is lower `since` an onset than `before` it, from the evaluations of all metrics on both sides.

    The first that applies, of: "judge" (its anchors drifted, evaluations clearly fail more, another version or judge
    made the scores), "traffic_mix" (the shares of a stratum as before remove at least 60 % of the drop, and what is
    left may be chance), "retrieval" (a metric of the retrieval, or the share of exchanges with contexts, clearly fell),
    "generation" (answers clearly fell, and no metric of the retrieval has room for half as much), else "unknown". The
    last three are sought in the one slice that the drop is confined to, when there is one. Without anchors (`judge` is
    None) a drop of everything that a judge scores, and of nothing else, stays "unknown"; and so does, while the anchors
    are being judged, one of answers and retrieval together.

    Means are Hajek's, intervals ordinary ones (both sides are over and looked at once), and their level is shared out
    over everything compared, so that all of them together are wrong in 5 % of cases if scores are independent.
    `lower_is_better` only decides how numbers are told.
    """
    words = Words(lower_is_better)
    if (found := instrument.drifted(judge)) is not None:
        return found
    drop = compare(metric, scores_of(metric, before), scores_of(metric, since))
    keys = mix.keys_of((*drop.before, *drop.since))
    some = slices.slices_of(drop, keys)
    evidence = parts.Evidence(drop, before, since)
    alpha = ALPHA / (2 + len(keys) + len(some) + evidence.comparisons)
    if (found := instrument.failing(before, since, alpha)) is not None:
        return found
    if drop.contrast is None or not drop.clear(ALPHA):
        return Explanation(cause="unknown", detail=_no_drop(drop, words))
    if (found := instrument.replaced(drop, alpha, words) or mix.shifted(drop, keys, alpha, words)) is not None:
        return found
    place = slices.confined(some, drop.contrast, alpha)
    if (detail := _undecided(judge, evidence, alpha, words, place)) is not None:
        return Explanation(cause="unknown", detail=detail)
    if place is not None:
        inside = parts.Evidence(
            place.fall,
            before if place.new else [one for one in before if place.contains(one)],
            [one for one in since if place.contains(one)],
        )
        found = parts.blamed(inside, alpha, words, place)
    found = found or parts.blamed(evidence, alpha, words, place)
    found = found or Explanation(cause="unknown", detail=parts.doubt(evidence, words))
    return _placed(found, place, slices.arrived(some), words)


def _undecided(
    judge: JudgeEvidence | None, evidence: parts.Evidence, alpha: float, words: Words, place: slices.Slice | None
) -> str | None:
    """Why it may be the judge as well as the app; None when it may not."""
    if judge is None:
        calm = evidence.torn(alpha)
        return None if calm is None else parts.torn(evidence.drop, calm, words)
    other = evidence.together(alpha) if judge.pending and place is None else None
    return None if other is None else parts.pending(evidence.drop, other, words)


def _placed(found: Explanation, place: slices.Slice | None, new: Sequence[slices.Slice], words: Words) -> Explanation:
    """Add where it happened, and what was new at the time."""
    if place is not None:
        return replace(found, detail=f"{found.detail} {place.told(words, alone=True)}", slice=place.name)
    if new:
        told = " ".join(one.told(words, alone=False) for one in new)
        return replace(found, detail=f"{found.detail} {told}", slice=new[0].name)
    return found


def _no_drop(drop: Fall, words: Words) -> str:
    """Why there is nothing to explain."""
    if drop.contrast is None:
        n = [len(side) for side in (drop.before, drop.since)]
        return f"Too few scores of {drop.metric} to compare ({n[0]} before, {n[1]} since)."
    return f"{drop.metric} did not clearly change, {words.change(drop.metric, drop.old, drop.new)}."
