"""Cosines between the embeddings of texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from monitors.judges import JudgeError
from monitors.metrics.embeddings import Embeddings


async def cosines_with_first(embeddings: Embeddings, texts: Sequence[str]) -> NDArray[np.float64]:
    """The cosines of all texts but the first with the first, in one batch. Raises JudgeError where there is none."""
    vectors = await embeddings.embed(texts)
    norms = np.linalg.norm(vectors, axis=1)
    if not (np.isfinite(norms).all() and norms.all()):
        raise JudgeError("unreadable", "an embedding has no direction")
    unit = vectors / norms[:, None]
    cosines: NDArray[np.float64] = unit[1:] @ unit[0]
    return cosines


def clipped(cosine: float) -> float:
    """A cosine as a score: nothing below 0, no rounding error above 1."""
    return min(1.0, max(0.0, float(cosine)))
