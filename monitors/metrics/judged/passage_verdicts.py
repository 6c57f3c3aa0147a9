"""What the evidence of judged metrics says of single passages: their relevance, and the claims about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gaugeway.records import Context, Evaluation, Score

CLAIM_METRICS = ("faithfulness", "hallucination")
"""Metrics whose evidence has verdicts on passages."""


class PassageVerdicts(Struct, frozen=True, kw_only=True):
    """Indexes of the passages that supported claims cite, and of those that contradict the answer, or it them.

    `cited` is None if no metric asked which passages the claims rest on. `any_contradiction` also counts contradicted
    claims that name no passage.
    """

    cited: frozenset[int] | None
    contradicted: frozenset[int]
    any_contradiction: bool


def passage_verdicts(evaluations: Iterable[Evaluation]) -> PassageVerdicts | None:
    """Return the verdicts on an exchange's passages; None if no evidence of them is stored."""
    judged = False
    cited: set[int] | None = None
    contradicted: set[int] = set()
    conflict = False
    for evaluation in evaluations:
        if evaluation.metric not in CLAIM_METRICS or not isinstance(evaluation.outcome, Score):
            continue
        for item in evaluation.outcome.evidence:
            verdict = item.get("verdict")
            judged = judged or verdict is not None or "contradicted" in item
            if verdict is not None and "contexts" in item:
                cited = set() if cited is None else cited
            if verdict == "supported" and cited is not None:
                cited.update(places(item))
            elif verdict == "contradicted" or item.get("contradicted") is True:
                conflict = True
                contradicted.update(places(item))
    if not judged:
        return None
    return PassageVerdicts(
        cited=None if cited is None else frozenset(cited),
        contradicted=frozenset(contradicted),
        any_contradiction=conflict,
    )


def places(item: Mapping[str, Any]) -> list[int]:
    """Return the passages that a piece of evidence names: of a claim its `contexts`, of a passage its `context`."""
    listed = item.get("contexts")
    found = listed if isinstance(listed, list | tuple) else [item.get("context")]
    return [index for index in found if isinstance(index, int) and not isinstance(index, bool)]


_BEST_RATING = 2


def relevances(contexts: Sequence[Context], evidence: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, float]]:
    """Yield the index and the relevance, in [0, 1], of each passage that a metric judged separately."""
    for item in evidence:
        if not isinstance(place := item.get("context"), int) or not 0 <= place < len(contexts):
            continue
        ratings = item.get("ratings")
        if isinstance(item.get("useful"), bool):
            yield place, float(item["useful"])
        elif isinstance(item.get("ratio"), int | float):
            yield place, float(item["ratio"])
        elif isinstance(ratings, list) and ratings:
            yield place, sum(ratings) / len(ratings) / _BEST_RATING


def by_step(
    contexts: Sequence[Context], rated: Iterable[tuple[int, float]]
) -> dict[tuple[int | None, str | None], list[float]]:
    """Return the relevance of passages by the hop and the tool that retrieved them, of those that have either."""
    found: dict[tuple[int | None, str | None], list[float]] = {}
    for index, relevance in rated:
        if contexts[index].hop is not None or contexts[index].tool is not None:
            found.setdefault((contexts[index].hop, contexts[index].tool), []).append(relevance)
    return found
