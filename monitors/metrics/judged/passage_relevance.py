"""The relevance of single passages, from the evidence of a metric that rates the retrieval."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gaugeway.records import Context

_BEST_RATING = 2


def relevances(contexts: Sequence[Context], evidence: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, float]]:
    """Yield the index and the relevance, in [0, 1], of each passage that a metric judged separately."""
    for item in evidence:
        place = item.get("context")
        if not isinstance(place, int) or not 0 <= place < len(contexts):
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
