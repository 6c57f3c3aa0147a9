"""The search for a cause: judge changes first, then the traffic mix, then retrieval and generation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from monitors.alerting.causes import documents, judge_changed, retrieval_or_generation, traffic, weighing
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
from monitors.alerting.causes.traffic import Slice
from monitors.statistics.weighted_mean import Estimate


def explain(
    metric: str,
    before: Sequence[Observation],
    since: Sequence[Observation],
    *,
    judge: JudgeEvidence | None = None,
    passages: Mapping[str, documents.Passages] | None = None,
    lower_is_better: Callable[[str], bool] = lambda _: False,
) -> Explanation:
    """Explain why `metric` is lower `since` an onset than `before` it, from the evaluations of all metrics.

    The cause is the first that applies of: "judge" (its anchors drifted, evaluations clearly fail more, another version
    or judge made the scores), "traffic_mix" (the shares of a stratum as before remove at least 60 % of the drop and the
    rest may be chance), "retrieval" (a retrieval metric, or the share of exchanges with contexts, fell, or a signal of
    the retrieval clearly changed), "generation" (answers clearly fell, and no retrieval metric fell by half as much),
    else "unknown". If the drop is confined to one slice, the last three are sought in that slice. Without anchors
    (`judge` is None) a drop of every judged metric and of nothing else stays "unknown"; so does a drop of answers and
    retrieval together while the anchors are being judged. "retrieval" and "generation" must also be likely beside their
    alternatives (`weighing`), and a drop confined to exchanges that got one document, with contradictions or where the
    document was in use before, is "retrieval" (`passages`, by sample id).

    Means are Hajek's with normal intervals (both sides are closed). The level is split over all comparisons, so that
    together they are wrong in 5 % of cases if scores are independent. `lower_is_better` only affects the wording.
    """
    words = Words(lower_is_better)
    if (found := judge_changed.of_two(metric) or judge_changed.drifted(judge)) is not None:
        return found
    drop = compare(metric, scores_of(metric, before), scores_of(metric, since))
    keys = traffic.keys_of((*drop.before, *drop.since))
    some = traffic.slices_of(drop, keys)
    evidence = retrieval_or_generation.Evidence(drop, before, since)
    alpha = ALPHA / (2 + len(keys) + len(some) + evidence.comparisons)
    if (found := judge_changed.failing(before, since, alpha)) is not None:
        return found
    if drop.contrast is None or not drop.clear(ALPHA):
        return Explanation(cause="unknown", detail=_no_drop(drop, words))
    if (found := judge_changed.replaced(drop, alpha, words) or traffic.shifted(drop, keys, alpha, words)) is not None:
        return found
    place = traffic.confined(some, drop.contrast, alpha)
    named = retrieval_or_generation.by_nature(drop, words)
    inside = evidence if place is None else _inside(place, before, since)
    seen = _Documents(inside.drop, passages or {}, drop, words=words, part="" if place is None else place.name)
    signal = retrieval_or_generation.signal_changed(inside.drop, inside.signals, alpha, words, seen.counts)
    open_question = named is None and signal is None and seen.source is None and seen.blamed is None
    if open_question and (detail := _undecided(judge, evidence, alpha, words, place)) is not None:
        return _placed(Explanation(cause="unknown", detail=detail), place, (), words)
    found = named or seen.blamed
    if found is None:
        app = _in_app(inside, evidence, alpha=alpha, words=words, place=place, judge=judge, seen=seen)
        found = retrieval_or_generation.beside(app, signal)
    if found.cause == "unknown":
        found = retrieval_or_generation.beside_retrieval(drop, before, since, alpha, words) or found
    return found if found.slice else _placed(found, place, traffic.arrived(some), words)


class _Documents:
    """The documents of a drop: the one to blame, if any, and the one that most of the drop is confined to."""

    def __init__(
        self, drop: Fall, passages: Mapping[str, documents.Passages], whole: Fall, *, words: Words, part: str
    ) -> None:
        self.suspects = documents.suspects(drop, passages, whole, part)
        self.blamed = documents.blamed(drop, self.suspects, words)
        self.source = documents.confined_to(self.suspects)
        self.count = sum(observation.sample_id in passages for observation in drop.since)
        numbers = [_mean_count(side, passages) for side in (drop.before, drop.since)]
        self.counts = None if numbers[0] is None or numbers[1] is None else (numbers[0], numbers[1])


def _mean_count(side: Sequence[Observation], passages: Mapping[str, documents.Passages]) -> float | None:
    """Return the mean number of passages of the exchanges whose passages were read; None without."""
    read = [passages[score.sample_id] for score in side if score.sample_id in passages]
    counts = [found.count for found in read if found.count is not None]
    return sum(counts) / len(counts) if counts else None


def _in_app(
    inside: retrieval_or_generation.Evidence,
    evidence: retrieval_or_generation.Evidence,
    *,
    alpha: float,
    words: Words,
    place: Slice | None,
    judge: JudgeEvidence | None,
    seen: _Documents,
) -> Explanation:
    """Return the cause in the slice, or else in the app: the retrieval, the generation, or "unknown"."""
    document = None if seen.source is None else documents.shortened(seen.source.name)
    found = Explanation(cause="unknown", detail=retrieval_or_generation.doubt(evidence, words))
    for part in dict.fromkeys((inside, evidence)):
        if (known := retrieval_or_generation.blamed(part, alpha, words, place)) is not None:
            found = weighing.weighed(known, part, words, judge=judge, place=place, document=document)
            if seen.source is None:
                found = documents.doubted(found, seen.suspects, inside.drop, words, seen=seen.count)
            break
    return documents.placed(found, seen.source)


def _inside(
    place: Slice, before: Sequence[Observation], since: Sequence[Observation]
) -> retrieval_or_generation.Evidence:
    """Return the evidence within a slice."""
    return retrieval_or_generation.Evidence(
        place.inside,
        before if place.new else [observation for observation in before if place.contains(observation)],
        [observation for observation in since if place.contains(observation)],
    )


def _undecided(
    judge: JudgeEvidence | None,
    evidence: retrieval_or_generation.Evidence,
    alpha: float,
    words: Words,
    place: Slice | None,
) -> str | None:
    """Return why the judge may be the cause as well as the app; None if it cannot be."""
    if judge is None:
        calm = evidence.torn(alpha)
        return None if calm is None else retrieval_or_generation.torn(evidence.drop, calm, words)
    other = evidence.together(alpha) if judge.pending and place is None else None
    return None if other is None else retrieval_or_generation.pending(evidence.drop, other, words)


def _placed(found: Explanation, place: Slice | None, new: Sequence[Slice], words: Words) -> Explanation:
    """Add the slice where it happened, and what was new at the time."""
    if place is not None:
        detail = f"{found.detail} {place.sentence(words, alone=True)}"
        return replace(found, detail=detail, slice=place.name, place=place)
    if new:
        sentences = " ".join(slice_.sentence(words, alone=False) for slice_ in new)
        return replace(found, detail=f"{found.detail} {sentences}", slice=new[0].name)
    return found


def _no_drop(drop: Fall, words: Words) -> str:
    """Return why there is nothing to explain."""
    if drop.contrast is None:
        old, new = (
            _effective(len(side), estimate) for side, estimate in ((drop.before, drop.old), (drop.since, drop.new))
        )
        if not drop.before and drop.since:
            return f"No scores of {drop.metric} before the onset to compare with ({new} since)."
        return f"Too few scores of {drop.metric} to compare ({old} before, {new} since)."
    return f"{drop.metric} did not clearly change, {words.change(drop)}."


def _effective(n: int, found: Estimate | None) -> str:
    """Return the number of scores, with the effective number where unequal weights make it much smaller."""
    if found is None or found.n_eff >= 0.5 * n:
        return str(n)
    return f"{n}, as informative as {found.n_eff:.0f} equally weighted ones,"
