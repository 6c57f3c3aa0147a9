"""Embeddings: the port to a model that turns texts into vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class MinimalEmbeddings(Protocol):
    """What embeddings of a user's own must have; `adapted` gives them the rest of `Embeddings`."""

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return an array of shape (len(texts), dimension), one row a text, not necessarily normalised.

        Raises JudgeError like a judge.
        """


class Embeddings(ABC):
    """The port to an embedding model. An adapter needs only `embed`; the rest has defaults."""

    @abstractmethod
    async def embed(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return an array of shape (len(texts), dimension), one row a text, not necessarily normalised.

        Raises JudgeError like a judge.
        """

    @property
    def model(self) -> str | None:
        """The embedding model's name; None, the default, when it is not known."""
        return None

    async def aclose(self) -> None:  # noqa: B027 - a default, not an abstract method
        """Release connections; nothing by default."""


class _OwnEmbeddings(Embeddings):
    """A user's embeddings behind the whole port."""

    def __init__(self, own: MinimalEmbeddings) -> None:
        self._own = own

    @property
    def model(self) -> str | None:
        model = getattr(self._own, "model", None)
        return None if model is None else str(model)

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float64]:
        return await self._own.embed(texts)

    async def aclose(self) -> None:
        await getattr(self._own, "aclose", super().aclose)()


def adapted(embeddings: MinimalEmbeddings) -> Embeddings:
    """Return embeddings as `Embeddings`; for where they come from users, whose classes need only `embed`."""
    return embeddings if isinstance(embeddings, Embeddings) else _OwnEmbeddings(embeddings)
