"""Answer similarity: how near the response's meaning is to the reference's."""

from __future__ import annotations

from typing import Annotated

import msgspec

from monitors.metrics.embeddings import MinimalEmbeddings, adapted
from monitors.metrics.judged.texts import unanswered
from monitors.metrics.reference.similarity import clipped, cosines_with_first
from monitors.records import Sample, Score, Skipped


class AnswerSimilarity:
    """cos(embedding(response), embedding(reference)), clipped to [0, 1]; with a `threshold`, 1 from there on, else 0.

    The semantic similarity of RAGAS (https://docs.ragas.io) and of Risch et al.: Semantic Answer Similarity
    (arXiv 2108.06130), with two separate embeddings.
    """

    name = "answer_similarity"

    def __init__(
        self, embeddings: MinimalEmbeddings, *, threshold: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] | None = None
    ) -> None:
        self._embeddings = adapted(embeddings)
        self._threshold = threshold
        self.judge = self._embeddings.model
        self.version = "1" if threshold is None else f"1-{threshold:g}"

    async def score(self, sample: Sample) -> Score | Skipped:
        reference = sample.reference or ""
        if (skipped := unanswered(sample, "response", "reference")) is not None:
            return skipped
        cosine = float((await cosines_with_first(self._embeddings, [sample.response, reference]))[0])
        if self._threshold is None:
            return Score(clipped(cosine), "cosine of response and reference", ({"cosine": cosine},))
        passed = cosine >= self._threshold
        reason = f"cosine {cosine:.4f}, {'at least' if passed else 'below'} {self._threshold:g}"
        return Score(float(passed), reason, ({"cosine": cosine, "threshold": self._threshold},))
