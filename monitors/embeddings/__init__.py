"""Embeddings for the metrics that compare meanings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Embeddings(Protocol):
    """Turns texts into vectors."""

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return an array of shape (len(texts), dimension), one row a text, not necessarily normalised.

        Raises JudgeError like a judge.
        """
