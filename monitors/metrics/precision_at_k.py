"""Precision at k: the share of the first k passages that are relevant."""

from __future__ import annotations

from typing import Literal

from monitors.metrics.ranking import precision_at, ranking_of
from monitors.records import Sample, Score, Skipped


class PrecisionAtK:
    """|relevant ids among the first k| / k.

    A retriever that returns fewer than k cannot reach 1, unless `divide_by="retrieved"`: then only what it returned
    counts. Manning, Raghavan, Schütze: Introduction to Information Retrieval, chapter 8.
    """

    judge = None

    def __init__(self, *, k: int, divide_by: Literal["k", "retrieved"] = "k") -> None:
        self._k = k
        self._of_retrieved = divide_by == "retrieved"
        self.name = f"precision@{k}"
        self.version = "1-retrieved" if self._of_retrieved else "1"

    async def score(self, sample: Sample) -> Score | Skipped:
        ranking = ranking_of(sample)
        if isinstance(ranking, Skipped):
            return ranking
        if self._of_retrieved and not ranking.retrieved:
            return Skipped("no_contexts")
        value = precision_at(ranking, self._k, of_retrieved=self._of_retrieved)
        return Score(value, f"{value:.0%} of the first {self._k} passages are relevant", ranking.evidence(self._k))
