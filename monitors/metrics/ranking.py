"""Ranking metrics: hit, precision, recall and NDCG at k, MRR, and average precision."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from gaugeway.records import Sample, Score, Skipped


class Ranking(Struct, frozen=True, kw_only=True):
    """The ids retrieved, best first (None for a passage without one), and the relevant ids; both without duplicates."""

    retrieved: tuple[str | None, ...]
    relevant: frozenset[str]

    @property
    def hits(self) -> NDArray[np.float64]:
        """Return 1.0 for each retrieved item that is relevant, 0.0 for the others."""
        return np.array([context_id in self.relevant for context_id in self.retrieved], dtype=np.float64)

    def evidence(self, k: int | None = None) -> tuple[dict[str, object], ...]:
        """Return the first k ranks, and the relevant ids that are not among them."""
        ranked = self.retrieved[:k]
        shown: list[dict[str, object]] = [
            {"rank": rank, "id": context_id, "relevant": context_id in self.relevant}
            for rank, context_id in enumerate(ranked, 1)
        ]
        return (*shown, {"missed": sorted(self.relevant - set(ranked))})


def ranking_of(sample: Sample) -> Ranking | Skipped:
    """Return the ranking of a sample's contexts; a repeated id takes no second rank.

    A context without an id takes a rank and is not relevant. Retrieval that found nothing is a ranking, of nothing;
    without retrieval there is none.
    """
    relevant = frozenset(sample_id for sample_id in sample.reference_context_ids if sample_id.strip())
    if not relevant:
        return Skipped("no_relevant_ids")
    if not sample.contexts and sample.context_source == "none":
        return Skipped("no_contexts")
    ids = [context.id or None for context in sample.contexts]
    if ids and not any(ids):
        return Skipped("no_context_ids")
    seen: set[str] = set()
    retrieved = []
    for sample_id in ids:
        if sample_id is None or sample_id not in seen:
            retrieved.append(sample_id)
        if sample_id is not None:
            seen.add(sample_id)
    return Ranking(retrieved=tuple(retrieved), relevant=relevant)


def average_precision(verdicts: Sequence[bool]) -> float:
    """Return the average precision: the mean of the precision at each relevant rank; 0 when none is relevant.

    >>> round(average_precision([True, True, False, True, False]), 5)
    0.91667
    >>> average_precision([False, True]), average_precision([True, True]), average_precision([False])
    (0.5, 1.0, 0.0)
    """
    relevant = np.asarray(verdicts, dtype=bool)
    if not relevant.any():
        return 0.0
    precision = np.cumsum(relevant) / np.arange(1, len(relevant) + 1)
    return float(precision[relevant].mean())


def precision_at(ranking: Ranking, k: int, *, of_retrieved: bool = False) -> float:
    """Return relevant items among the first k / k, or / the items retrieved up to rank k."""
    return float(ranking.hits[:k].sum() / (min(k, len(ranking.retrieved)) if of_retrieved else k))


def recall_at(ranking: Ranking, k: int) -> float:
    """Return relevant items among the first k / all relevant items."""
    return float(ranking.hits[:k].sum() / len(ranking.relevant))


def hit_at(ranking: Ranking, k: int) -> float:
    """Return 1.0 if there is a relevant item among the first k, else 0.0."""
    return float(ranking.hits[:k].any())


def reciprocal_rank(ranking: Ranking) -> float:
    """Return 1 / rank of the first relevant item; 0 without one."""
    ranks = np.flatnonzero(ranking.hits)
    return float(1.0 / (ranks[0] + 1)) if ranks.size else 0.0


def ndcg_at(ranking: Ranking, k: int) -> float:
    """Return DCG / ideal DCG at k; the ideal ranking has min(k, relevant items) relevant items at the top.

    >>> ranking = Ranking(retrieved=("a",), relevant=frozenset("abcdefghij"))
    >>> round(ndcg_at(ranking, 10), 4)
    0.2201
    """
    discounts = 1.0 / np.log2(np.arange(2, k + 2))
    hits = ranking.hits[:k]
    ideal = discounts[: len(ranking.relevant)].sum()
    # The sums run over the same numbers for a perfect ranking; others may not exceed it by a rounding error.
    return float(min(1.0, (hits * discounts[: len(hits)]).sum() / ideal))


class _OfRanking(ABC):
    """What the metrics of a ranking share."""

    measures = "retrieval"
    version = "1"
    judge = None

    async def score(self, sample: Sample) -> Score | Skipped:
        ranking = ranking_of(sample)
        return ranking if isinstance(ranking, Skipped) else self._score(ranking)

    @abstractmethod
    def _score(self, ranking: Ranking) -> Score | Skipped:
        """Return the score of a ranking."""


class _AtRank(_OfRanking):
    """A metric of the first `k` passages; `family` is the name before the rank."""

    family = ""

    def __init__(self, *, k: int) -> None:
        self._k = k
        self.name = f"{self.family}@{k}"


class HitAtK(_AtRank):
    """1 if one of the first k ids is relevant, else 0; its mean is the hit rate.

    Also called success at k.
    """

    family = "hit"

    def _score(self, ranking: Ranking) -> Score:
        value = hit_at(ranking, self._k)
        reason = "a relevant passage is" + ("" if value else " not") + f" among the first {self._k}"
        return Score(value, reason, ranking.evidence(self._k))


class Mrr(_OfRanking):
    """1 / rank of the first relevant id, 0 without one; the mean over samples is the mean reciprocal rank.

    Voorhees: The TREC-8 question answering track report (1999).
    """

    name = "mrr"

    def _score(self, ranking: Ranking) -> Score:
        value = reciprocal_rank(ranking)
        reason = f"the first relevant passage has rank {round(1 / value)}" if value else "no relevant passage"
        return Score(value, reason, ranking.evidence())


class NdcgAtK(_AtRank):
    """DCG / ideal DCG, DCG = sum over ranks i <= k of relevant(i) / log2(i + 1).

    The ideal has min(k, number of relevant ids) relevant passages at the top, whether they were retrieved or not.
    Järvelin and Kekäläinen: Cumulated gain-based evaluation of IR techniques (2002), with gains of 0 and 1.
    """

    family = "ndcg"

    def _score(self, ranking: Ranking) -> Score:
        value = ndcg_at(ranking, self._k)
        return Score(value, f"{value:.4f} of the best possible ranking up to rank {self._k}", ranking.evidence(self._k))


class PrecisionAtK(_AtRank):
    """|relevant ids among the first k| / k.

    A retriever that returns fewer than k cannot reach 1, unless `divide_by="retrieved"`: then only what it returned
    counts. Manning, Raghavan, Schütze: Introduction to Information Retrieval, chapter 8.
    """

    family = "precision"

    def __init__(self, *, k: int, divide_by: Literal["k", "retrieved"] = "k") -> None:
        super().__init__(k=k)
        self._of_retrieved = divide_by == "retrieved"
        self.version = "1-retrieved" if self._of_retrieved else "1"

    def _score(self, ranking: Ranking) -> Score | Skipped:
        if self._of_retrieved and not ranking.retrieved:
            return Skipped("no_contexts")
        value = precision_at(ranking, self._k, of_retrieved=self._of_retrieved)
        return Score(value, f"{value:.0%} of the first {self._k} passages are relevant", ranking.evidence(self._k))


class RecallAtK(_AtRank):
    """|relevant ids among the first k| / |relevant ids|.

    Manning, Raghavan, Schütze: Introduction to Information Retrieval, chapter 8.
    """

    family = "recall"

    def _score(self, ranking: Ranking) -> Score:
        value = recall_at(ranking, self._k)
        reason = f"{value:.0%} of {len(ranking.relevant)} relevant passages among the first {self._k}"
        return Score(value, reason, ranking.evidence(self._k))
