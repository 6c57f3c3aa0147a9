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


class Observer(Protocol):
    """Is told what embedding costs and saves, so that somebody can count it."""

    def embedded(self, model: str, texts: int, seconds: float, tokens: int, usd: float) -> None:
        """One request for this many texts was answered; a local model uses no tokens and costs nothing."""

    def embedding_failed(self, model: str, kind: str) -> None:
        """One request ended with the JudgeError of this kind."""

    def embeddings_looked_up(self, model: str, hits: int, misses: int) -> None:
        """So many texts were in the cache, so many were not."""
