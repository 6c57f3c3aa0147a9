"""Causes in the app: retrieval or generation, by metrics and by the signals of the retrieval."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from gaugeway.records import grouped
from monitors.alerting.causes.judge_changed import MATERIAL
from monitors.alerting.causes.observations import (
    ALPHA,
    Explanation,
    Fall,
    Observation,
    Words,
    compare,
    duration,
    percent,
    scores_of,
    share,
    values_of,
)
from monitors.alerting.causes.traffic import ROOM, Slice
from monitors.metrics.registry import declared, names
from monitors.statistics import decomposition
from monitors.statistics.decomposition import Onset, onset
from monitors.statistics.weighted_mean import Estimate

NO_CONTEXTS = "no_contexts"
CONTEXTS_MISSING = 0.9
"""The strength of fewer exchanges with contexts: more small talk, which needs none, looks the same."""
_QUARTER = 0.25
"""A retrieval metric explains a drop only if it fell by at least this part of it."""
_RECENT = 200


def is_retrieval(metric: str) -> bool:
    """Return whether a metric is about the retrieval alone; `context_utilization` depends on the answer.

    >>> is_retrieval("ndcg@10"), is_retrieval("context_utilization")
    (True, False)
    """
    return bool(declared(metric, "measures") == "retrieval")


def _of_answers() -> list[str]:
    return [name for name in names() if declared(name, "measures") == "answer"]


class Evidence:
    """All metrics and signals of the retrieval on both sides, limited to scores by the same version and judge."""

    def __init__(self, drop: Fall, before: Sequence[Observation], since: Sequence[Observation]) -> None:
        self.drop = drop
        old, new = _by_metric(before), _by_metric(since)
        falls = {name: _alike(name, old[name], new[name]) for name in old if name in new and name != drop.metric}
        self.retrieval = [fall for name, fall in falls.items() if is_retrieval(name)]
        self.answers = [falls[name] for name in _of_answers() if name in falls]
        self.signals = [falls[name] for name in OF_RETRIEVAL if name in falls]
        if is_retrieval(drop.metric):
            self.retrieval.append(drop)
        else:
            self.answers.insert(0, drop)
        self.found = _found(before, since), _found(since, before)

    @property
    def comparisons(self) -> int:
        """The number of comparisons of means."""
        return len(self.retrieval) + len(self.answers) + len(self.signals) + 1

    def torn(self, alpha: float) -> Fall | None:
        """Return a steady metric without a judge, while every judged metric fell, of answers and of retrieval.

        Steady: it fell by less than half of the drop, if at all.
        A stricter judge looks like that, and so does a retrieval of irrelevant passages that answers still copy from.
        """
        everything = [fall for fall in (*self.retrieval, *self.answers) if fall.contrast is not None]
        judged = [fall for fall in everything if fall.judged]
        apart = [fall for fall in everything if not fall.judged and fall.at_most(ALPHA) < ROOM * _size(self.drop)]
        both = len({is_retrieval(fall.metric) for fall in judged}) > 1
        return apart[0] if apart and both and all(fall.clear(alpha) for fall in judged) else None

    def together(self, alpha: float) -> Fall | None:
        """Return a metric of the other kind (retrieval or answers) that fell too; None unless the judge scored both."""
        others = self.answers if is_retrieval(self.drop.metric) else self.retrieval
        return next((fall for fall in others if self.drop.judged and fall.judged and fall.clear(alpha)), None)


def blamed(evidence: Evidence, alpha: float, words: Words, place: Slice | None) -> Explanation | None:
    """Return the cause "retrieval" or "generation"; None if the scores do not distinguish them."""
    return _retrieval(evidence, alpha, words) or _generation(evidence, alpha, words, place)


def doubt(evidence: Evidence, words: Words) -> str:
    """Return why neither is named."""
    drop = evidence.drop
    known = [fall for fall in evidence.retrieval if fall.contrast is not None]
    if not known:
        thin = next(iter(evidence.retrieval), None)
        why = (
            f"{thin.metric} has too few scores (n {thin.new.n if thin.new is not None else 0})"
            if thin is not None
            else "no metric of the retrieval (context_relevancy) was scored on both sides"
        )
        return f"{words.whole(drop)}; {why}, so retrieval and generation cannot be told apart."
    level = ALPHA / len(known)
    widest = max(known, key=lambda fall: fall.at_most(level))
    change = words.change(widest)
    room = widest.at_most(level)
    return f"{words.whole(drop)}; {widest.metric}, {change}, leaves room for a fall of {room:.2f}."


def torn(drop: Fall, calm: Fall, words: Words) -> str:
    """Return why it may be the retrieval or the judge."""
    return (
        f"{words.whole(drop)}, and so did all else the judge scores; "
        f"{words.beside(calm, ', which asks no judge,')}. It is the retrieval or the judge; anchors would tell."
    )


def pending(drop: Fall, other: Fall, words: Words) -> str:
    """Return why it may still be the judge."""
    change = words.change(other)
    return (
        f"{words.whole(drop)}, and so did {other.metric}, {change}. "
        "It is the retrieval or the judge, whose anchors are being judged."
    )


def _retrieval(evidence: Evidence, alpha: float, words: Words) -> Explanation | None:
    drop = evidence.drop
    if is_retrieval(drop.metric):
        return Explanation(cause="retrieval", detail=f"{words.whole(drop)}.")
    old, new = evidence.found
    rarer = decomposition.fall(old, new)
    if old is not None and new is not None and rarer is not None and rarer.clear(alpha) and rarer.value >= MATERIAL:
        detail = f"Contexts came with {percent(new.mean)} of the exchanges, with {percent(old.mean)} before (n {new.n})"
        return Explanation(
            cause="retrieval",
            detail=f"{detail}; {words.whole(drop)}.",
            strength=CONTEXTS_MISSING,
            evidence=("share of exchanges with contexts",),
        )
    large = _QUARTER * _size(drop)
    fallen = [fall for fall in evidence.retrieval if fall.clear(alpha) and _size(fall) >= large]
    for fall in sorted(fallen, key=_size, reverse=True):
        which, gap = order(fall, drop)
        if which == "later":
            continue
        what = words.change(fall)
        if which == "first":
            detail = f"{fall.metric} fell first, {what}; {drop.metric} followed {duration(gap)} later"
        else:
            detail = f"{fall.metric} fell with {drop.metric}, {what}"
        return Explanation(
            cause="retrieval",
            detail=f"{detail} ({words.mean(drop.metric, drop.old)} to {words.mean(drop.metric, drop.new)}).",
        )
    return None


def _generation(evidence: Evidence, alpha: float, words: Words, place: Slice | None) -> Explanation | None:
    """Return "generation" if an answer metric fell and no known retrieval metric fell by half of that.

    Without retrieval metrics, a drop confined to one new model or prompt beside old ones is enough: all of them got the
    same contexts.
    """
    fallen = [fall for fall in evidence.answers if fall.clear(alpha)]
    known = [fall for fall in evidence.retrieval if fall.contrast is not None]
    if not fallen:
        return None
    worst = max(fallen, key=_size)
    if not known:
        if place is None or not place.new or place.key not in ("model", "prompt"):
            return None
        return Explanation(cause="generation", detail=f"{words.whole(worst)}.")
    steady = [fall for fall in known if fall.at_most(ALPHA / len(known)) < ROOM * _size(worst)]
    rest = [fall for fall in known if fall not in steady]
    late = [fall for fall in rest if fall.clear(alpha) and order(fall, evidence.drop)[0] == "later"]
    if len(steady) + len(late) < len(known):
        return None
    others = ", ".join(words.beside(fall) for fall in steady[:2])
    others = others or f"{late[0].metric} only later, {words.change(late[0])}"
    return Explanation(cause="generation", detail=f"{words.whole(worst)}; {others}.")


def order(fall: Fall, drop: Fall) -> tuple[str, float]:
    """Return "first", "later" or "together" (not distinguishable), and the time between the onsets."""
    ours, theirs = _dated(fall), _dated(drop)
    if ours is None or theirs is None:
        return "together", 0.0
    if ours.latest < theirs.earliest:
        return "first", theirs.at - ours.at
    if ours.earliest > theirs.latest:
        return "later", ours.at - theirs.at
    return "together", 0.0


def _dated(fall: Fall) -> Onset | None:
    """Date the fall of a metric, in the scores since the onset and as many before."""
    recent = sorted(fall.before, key=lambda old: old.started_at)[-max(_RECENT, len(fall.since)) :]
    scores = [*recent, *fall.since]
    return onset([score.started_at for score in scores], values_of(scores), [score.rate for score in scores])


def _size(fall: Fall) -> float:
    return fall.contrast.value if fall.contrast is not None else 0.0


def _by_metric(observations: Iterable[Observation]) -> dict[str, list[Observation]]:
    found = grouped((observation.metric, observation) for observation in observations)
    known = {*_of_answers(), *OF_RETRIEVAL}
    wanted = [metric for metric in found if metric in known or is_retrieval(metric)]
    return {metric: scores_of(metric, found[metric]) for metric in wanted}


def _alike(metric: str, before: Sequence[Observation], since: Sequence[Observation]) -> Fall:
    """Compare the scores by versions and judges present on both sides; others are not comparable."""
    makers = {observation.maker for observation in before} & {observation.maker for observation in since}
    old, new = ([observation for observation in side if observation.maker in makers] for side in (before, since))
    return compare(metric, old, new)


def _found(side: Sequence[Observation], other: Sequence[Observation]) -> Estimate | None:
    """Return the share of exchanges with contexts, from metrics that were ever skipped for lack of contexts."""
    wanting = {observation.metric for observation in (*side, *other) if observation.reason == NO_CONTEXTS}
    return share(_flags(side, wanting))


def _flags(side: Iterable[Observation], wanting: set[str]) -> Iterator[tuple[bool, float]]:
    """Yield one (has contexts, rate) pair per exchange, with the largest rate of its evaluations."""
    flags: dict[str, tuple[bool, float]] = {}
    for observation in side:
        if observation.metric not in wanting or (
            observation.outcome == "skipped" and observation.reason != NO_CONTEXTS
        ):
            continue
        there, rate = flags.get(observation.sample_id, (True, 0.0))
        flags[observation.sample_id] = there and observation.reason != NO_CONTEXTS, max(rate, observation.rate)
    yield from flags.values()


OF_RETRIEVAL = ("no_contexts", "contexts_per_answer", "retriever_score")
"""Signals of the retrieval alone."""
_TOOLS = "It is how the model calls tools. Check the model, the prompt, and the tools' descriptions and schemas."
_CHECKS: Mapping[str, str] = {
    **dict.fromkeys(
        OF_RETRIEVAL,
        "The retrieval returns something else than before. Check the index, the retriever and the queries.",
    ),
    "tool_empty": "Tools find nothing more often. Check the data behind them and the arguments that the model sends.",
    **dict.fromkeys(("tool_invalid", "tool_unknown", "tool_repeated"), _TOOLS),
    "truncated": "Responses reach the token limit, whatever is retrieved. Check `max_tokens`, model and prompt.",
    "slow": "The model or its provider takes longer. Check the upstream's latency, model and length of prompts.",
    "expensive": "Responses use more tokens, or a more expensive model. Check model and length of prompts.",
}
"""What to check where a signal names its cause: the first four the retrieval, the others the generation."""
_OF_ANSWERS = ("abstained", "language_mismatch")
_BY_NATURE = 0.9
"""Strength of a cause that the signal itself names: users may ask for something else, which looks the same."""
_BESIDE_STEADY = 0.6
"""Of "generation" beside steady retriever scores: a retriever can be wrong with the same scores."""
_RANKS = 0.1
"""A mean rank has changed materially, or may have, from this difference on."""


def by_nature(drop: Fall, words: Words) -> Explanation | None:
    """Return the cause that a signal names by itself; None for other metrics and signals."""
    if (check := _CHECKS.get(drop.metric)) is None:
        return None
    empty = drop.metric == "tool_empty"
    return Explanation(
        cause="retrieval" if empty or drop.metric in OF_RETRIEVAL else "generation",
        detail=f"{words.whole(drop)}. {check}",
        strength=_BESIDE_STEADY if empty else _BY_NATURE,
        evidence=(drop.metric,),
    )


def signal_changed(
    drop: Fall, signals: Sequence[Fall], alpha: float, words: Words, passages: tuple[float, float] | None = None
) -> Explanation | None:
    """Return the cause "retrieval" if a signal of it clearly changed where `drop` is; None without.

    The number of passages may change either way: fewer can be more relevant and still lack what the answers need. The
    share of answers without any counts if it rose, retriever scores if they fell. `passages` are the mean numbers of
    passages before and since, where they were read. Changes of the answers' own signals compare in `beside_retrieval`.
    """
    for signal in () if drop.metric in _OF_ANSWERS else signals:
        if signal.contrast is None:
            continue
        fall = signal.contrast.value
        least = MATERIAL if signal.metric == "no_contexts" else _RANKS
        low, high = _interval(signal, alpha)
        either_way = signal.metric == "contexts_per_answer"
        if not ((low > 0.0 and fall >= least) or (either_way and high < 0.0 and -fall >= least)):
            continue
        n = signal.new.n if signal.new is not None else 0
        went = "rose" if fall < 0.0 else words.fell(signal.metric)
        if either_way and passages is not None:
            change = f"{went} from {passages[0]:.1f} to {passages[1]:.1f}"
        else:
            change = f"{went} from {words.mean(signal.metric, signal.old)} to {words.mean(signal.metric, signal.new)}"
            change += "" if signal.metric == "no_contexts" else " (0.5 is usual)"
        return _of_retrieval(signal, f"{signal.metric} {change} with it (n {n}); {words.whole(drop)}.")
    return None


def beside(found: Explanation, signal: Explanation | None) -> Explanation:
    """Return the cause that a signal of the retrieval shows, unless the metrics show the same at least as strongly."""
    if signal is None or found.cause != "retrieval" or (found.strength or 0.0) < (signal.strength or 0.0):
        return signal or found
    return replace(found, detail=f"{found.detail} {signal.detail}", evidence=(*found.evidence, *signal.evidence))


def beside_retrieval(
    drop: Fall, before: Sequence[Observation], since: Sequence[Observation], alpha: float, words: Words
) -> Explanation | None:
    """Return the cause of a change of the answers by the signals of the retrieval; None without such signals.

    "retrieval" if one of them clearly changed, in whatever direction; "generation" if retriever scores are among them
    and none changed; else "unknown", with what is known.
    """
    if drop.metric not in _OF_ANSWERS or drop.contrast is None:
        return None
    falls = [compare(name, scores_of(name, before), scores_of(name, since)) for name in OF_RETRIEVAL]
    known = [fall for fall in falls if fall.contrast is not None]
    if not known:
        return None
    room = {"no_contexts": ROOM * drop.contrast.value}
    what = words.whole(drop)
    for fall in known:
        low, high = _interval(fall, alpha / len(known))
        if (low > 0.0 or high < 0.0) and max(high, -low) > room.get(fall.metric, _RANKS):
            return _of_retrieval(fall, f"{fall.metric} changed with {drop.metric}, {words.change(fall)}; {what}.")
    bounds = [(fall, *_interval(fall, ALPHA / len(known))) for fall in known]
    steady = [fall for fall, low, high in bounds if max(high, -low) < room.get(fall.metric, _RANKS)]
    if not steady:
        return None
    same = ", ".join(f"{fall.metric} {words.change(fall)}" for fall in steady)
    names = tuple(fall.metric for fall in steady)
    if len(steady) == len(known) and "retriever_score" in names:
        detail = f"{what}; the retrieval returns about as much as before, with about the same scores: {same}."
        return Explanation(cause="generation", detail=detail, strength=_BESIDE_STEADY, evidence=names)
    detail = f"{what}; of the retrieval this changed little, if at all: {same}."
    return Explanation(cause="unknown", detail=f"{detail} Whether passages are as relevant is not known.")


def _of_retrieval(signal: Fall, detail: str) -> Explanation:
    return Explanation(cause="retrieval", detail=detail, strength=_BY_NATURE, evidence=(signal.metric,))


def _interval(fall: Fall, alpha: float) -> tuple[float, float]:
    return fall.contrast.interval(alpha) if fall.contrast is not None else (0.0, 0.0)
