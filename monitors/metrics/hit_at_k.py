"""Hit at k: whether any relevant passage is among the first k."""

from __future__ import annotations

from monitors.metrics.ranking import hit_at, ranking_of
from monitors.records import Sample, Score, Skipped


class HitAtK:
    """1 if one of the first k ids is relevant, else 0; its mean is the hit rate.

    Also called success at k.
    """

    version = "1"
    judge = None

    def __init__(self, *, k: int) -> None:
        self._k = k
        self.name = f"hit@{k}"

    async def score(self, sample: Sample) -> Score | Skipped:
        ranking = ranking_of(sample)
        if isinstance(ranking, Skipped):
            return ranking
        value = hit_at(ranking, self._k)
        return Score(
            value,
            "a relevant passage is" + ("" if value else " not") + f" among the first {self._k}",
            ranking.evidence(self._k),
        )
