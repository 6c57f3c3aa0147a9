"""Recall at k: the share of the relevant passages that are among the first k."""

from __future__ import annotations

from monitors.metrics.ranking import ranking_of, recall_at
from monitors.records import Sample, Score, Skipped


class RecallAtK:
    """|relevant ids among the first k| / |relevant ids|.

    Manning, Raghavan, Schütze: Introduction to Information Retrieval, chapter 8.
    """

    version = "1"
    judge = None

    def __init__(self, *, k: int) -> None:
        self._k = k
        self.name = f"recall@{k}"

    async def score(self, sample: Sample) -> Score | Skipped:
        ranking = ranking_of(sample)
        if isinstance(ranking, Skipped):
            return ranking
        value = recall_at(ranking, self._k)
        return Score(
            value,
            f"{value:.0%} of {len(ranking.relevant)} relevant passages among the first {self._k}",
            ranking.evidence(self._k),
        )
