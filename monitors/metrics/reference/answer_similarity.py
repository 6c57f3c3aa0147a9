"""Answer similarity: the semantic similarity of response and reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gaugeway.records import Sample, Score, Skipped
from monitors.judges import JudgeError
from monitors.metrics.embeddings import Embeddings, MinimalEmbeddings, adapted
from monitors.metrics.judged.items import unanswered


class AnswerSimilarity:
    """cos(embedding(response), embedding(reference)), clipped to [0, 1]; with a `threshold`, 1 from there on, else 0.

    The semantic similarity of RAGAS (https://docs.ragas.io) and of Risch et al.: Semantic Answer Similarity
    (arXiv 2108.06130), with two separate embeddings.
    """

    name = "answer_similarity"

    @staticmethod
    def without_embeddings(options: Mapping[str, Any]) -> None:
        """Return that it cannot run where no embeddings are configured."""

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


async def cosines_with_first(embeddings: Embeddings, texts: Sequence[str]) -> NDArray[np.float64]:
    """Return the cosine of each other text with the first, from one batch. Raises JudgeError for a zero vector."""
    vectors = await embeddings.embed(texts)
    norms = np.linalg.norm(vectors, axis=1)
    if not (np.isfinite(norms).all() and norms.all()):
        raise JudgeError("unreadable", "an embedding has no direction")
    unit = vectors / norms[:, None]
    cosines: NDArray[np.float64] = unit[1:] @ unit[0]
    return cosines


def clipped(cosine: float) -> float:
    """Clip a cosine to [0, 1]."""
    return min(1.0, max(0.0, float(cosine)))
