"""NDCG at k: how near the ranking is to the best one there could be."""

from __future__ import annotations

from monitors.metrics.ranking import ndcg_at, ranking_of
from monitors.records import Sample, Score, Skipped


class NdcgAtK:
    """DCG / ideal DCG, DCG = sum over ranks i <= k of relevant(i) / log2(i + 1).

    The ideal has min(k, number of relevant ids) relevant passages at the top, whether they were retrieved or not.
    Järvelin and Kekäläinen: Cumulated gain-based evaluation of IR techniques (2002), with gains of 0 and 1.
    """

    version = "1"
    judge = None

    def __init__(self, *, k: int) -> None:
        self._k = k
        self.name = f"ndcg@{k}"

    async def score(self, sample: Sample) -> Score | Skipped:
        ranking = ranking_of(sample)
        if isinstance(ranking, Skipped):
            return ranking
        value = ndcg_at(ranking, self._k)
        return Score(value, f"{value:.4f} of the best possible ranking up to rank {self._k}", ranking.evidence(self._k))
