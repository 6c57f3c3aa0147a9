"""MRR: how early the first relevant passage comes."""

from __future__ import annotations

from monitors.metrics.ranking import ranking_of, reciprocal_rank
from monitors.records import Sample, Score, Skipped


class Mrr:
    """1 / rank of the first relevant id, 0 without one; the mean over samples is the mean reciprocal rank.

    Voorhees: The TREC-8 question answering track report (1999).
    """

    name = "mrr"
    version = "1"
    judge = None

    async def score(self, sample: Sample) -> Score | Skipped:
        ranking = ranking_of(sample)
        if isinstance(ranking, Skipped):
            return ranking
        value = reciprocal_rank(ranking)
        reason = f"the first relevant passage has rank {round(1 / value)}" if value else "no relevant passage"
        return Score(value, reason, ranking.evidence())
