"""The verifier: the port to a small model that checks an answer against its passages, cheap enough for all traffic."""

from __future__ import annotations

from abc import ABC, abstractmethod

from msgspec import Struct

CONTRADICTION = "contradiction"
"""The category of a span that conflicts with the passages; other categories are only unsupported."""


class TooLongError(ValueError):
    """The answer or its passages need more checks than one answer may cause."""


class Material(Struct, frozen=True, kw_only=True):
    """An answer to verify. `sentences` are its checked parts as (start, end) in characters."""

    question: str
    passages: tuple[str, ...]
    answer: str
    sentences: tuple[tuple[int, int], ...]


class Span(Struct, frozen=True):
    """Characters `start` to `end` of the answer that the passages do not support, with probability `score`.

    `category` and `subcategory` say how, where the verifier types its spans.
    """

    start: int
    end: int
    score: float
    category: str = ""
    subcategory: str = ""


class Support(Struct, frozen=True, kw_only=True):
    """How well the passages support one sentence, in [0, 1].

    `passages` are the indexes of the passages in the document that supports it best; `spans` what is unsupported in it.
    """

    score: float
    passages: tuple[int, ...] = ()
    spans: tuple[Span, ...] = ()


class Verifier(ABC):
    """The port to a verifier."""

    @property
    @abstractmethod
    def model(self) -> str:
        """The model's name, recorded with every score."""

    @property
    @abstractmethod
    def version(self) -> str:
        """Changes whenever the same answer could get another score from the same model."""

    @abstractmethod
    async def verify(self, material: Material) -> tuple[Support, ...]:
        """Return the support of each sentence, in order. Raises JudgeError, and TooLongError before any call."""

    @abstractmethod
    async def aclose(self) -> None:
        """Release connections."""
