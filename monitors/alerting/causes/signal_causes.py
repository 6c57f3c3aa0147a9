"""Causes of changes of signals: some are the retrieval or the generation by their nature, others compare with those."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from monitors.alerting.causes.judge_changed import MATERIAL
from monitors.alerting.causes.observations import ALPHA, Explanation, Fall, Observation, Words, compare, scores_of
from monitors.alerting.causes.slices import ROOM

OF_RETRIEVAL = ("no_contexts", "contexts_per_answer", "retriever_score")
"""Signals of the retrieval alone."""
_TOOLS = "It is how the model calls tools. Check the model, the prompt, and the tools' descriptions and schemas."
_OF_GENERATION: Mapping[str, str] = {
    "truncated": "Responses reach the token limit, whatever is retrieved. Check `max_tokens`, model and prompt.",
    "tool_invalid": _TOOLS,
    "tool_unknown": _TOOLS,
    "tool_repeated": _TOOLS,
    "slow": "The model or its provider takes longer. Check the upstream's latency, model and length of prompts.",
    "expensive": "Responses use more tokens, or a more expensive model. Check model and length of prompts.",
}
_OF_ANSWERS = ("abstained", "language_mismatch")
_BY_NATURE = 0.9
"""Strength of a cause that the signal itself names: users may ask for something else, which looks the same."""
_BESIDE_STEADY = 0.6
"""Of "generation" beside steady retriever scores: a retriever can be wrong with the same scores."""
_RANKS = 0.1
"""A mean rank has changed materially, or may have, from this difference on."""


def by_nature(drop: Fall, words: Words) -> Explanation | None:
    """Return the cause that a signal names by itself; None for other metrics and signals."""
    what = words.whole(drop)
    if drop.metric in OF_RETRIEVAL:
        check = "The retrieval returns something else than before. Check the index, the retriever and the queries."
        return Explanation(cause="retrieval", detail=f"{what}. {check}", strength=_BY_NATURE, evidence=(drop.metric,))
    if drop.metric == "tool_empty":
        check = "Tools find nothing more often. Check the data behind them and the arguments that the model sends."
        return Explanation(
            cause="retrieval", detail=f"{what}. {check}", strength=_BESIDE_STEADY, evidence=(drop.metric,)
        )
    if (check := _OF_GENERATION.get(drop.metric, "")) != "":
        return Explanation(cause="generation", detail=f"{what}. {check}", strength=_BY_NATURE, evidence=(drop.metric,))
    return None


def changed(
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
        return Explanation(
            cause="retrieval",
            detail=f"{signal.metric} {change} with it (n {n}); {words.whole(drop)}.",
            strength=_BY_NATURE,
            evidence=(signal.metric,),
        )
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
            change = words.change(fall.metric, fall.old, fall.new)
            return Explanation(
                cause="retrieval",
                detail=f"{fall.metric} changed with {drop.metric}, {change}; {what}.",
                strength=_BY_NATURE,
                evidence=(fall.metric,),
            )
    steady = []
    for fall in known:
        low, high = _interval(fall, ALPHA / len(known))
        if max(high, -low) < room.get(fall.metric, _RANKS):
            steady.append(fall)
    if not steady:
        return None
    same = ", ".join(f"{fall.metric} {words.change(fall.metric, fall.old, fall.new)}" for fall in steady)
    names = tuple(fall.metric for fall in steady)
    if len(steady) == len(known) and "retriever_score" in names:
        detail = f"{what}; the retrieval returns about as much as before, with about the same scores: {same}."
        return Explanation(cause="generation", detail=detail, strength=_BESIDE_STEADY, evidence=names)
    detail = f"{what}; of the retrieval this changed little, if at all: {same}."
    return Explanation(cause="unknown", detail=f"{detail} Whether passages are as relevant is not known.")


def _interval(fall: Fall, alpha: float) -> tuple[float, float]:
    return fall.contrast.interval(alpha) if fall.contrast is not None else (0.0, 0.0)
