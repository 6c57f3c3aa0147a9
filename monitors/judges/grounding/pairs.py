"""Verification by pairs: each sentence against each document; the document that supports it best counts."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable, Sequence
from hashlib import sha256
from typing import Any, TypeVar

import msgspec

from monitors.judges import Judge, JudgeError, Prompt
from monitors.judges.grounding import Material, Support, TooLongError, Verifier
from monitors.judges.grounding.documents import MAX_CHECKS, MAX_DOCUMENTS, Document, documents

T = TypeVar("T")
TASK = "grounding"
HALVINGS = 4
"""How often a document that the model finds too long is cut in half."""


class PairSupport(msgspec.Struct, frozen=True):
    """The probability, in [0, 1], that a document supports a claim."""

    support: float


def pair_prompt(document: str, claim: str, version: str) -> Prompt:
    """Return a pair as a prompt: the document takes the place of the system text."""
    return Prompt(task=TASK, version=version, system=document, user=claim, frozen=True)


class PairScorer(ABC):
    """The port to a model that reads one document and one claim."""

    @property
    @abstractmethod
    def model(self) -> str:
        """The model's name."""

    @property
    @abstractmethod
    def version(self) -> str:
        """Changes whenever the same pair could get another score from the same model."""

    @abstractmethod
    async def support(self, document: str, claim: str) -> float:
        """Return the probability, in [0, 1], that the document supports the claim. Raises JudgeError."""

    @abstractmethod
    async def aclose(self) -> None:
        """Release connections."""


class JudgedPairs(PairScorer):
    """Asks a judge that answers pairs (see `pair_prompt`) with `PairSupport`."""

    def __init__(self, judge: Judge, version: str) -> None:
        self._judge = judge
        self._version = version

    @property
    def model(self) -> str:
        return self._judge.model

    @property
    def version(self) -> str:
        return self._version

    async def support(self, document: str, claim: str) -> float:
        return (await self._judge.ask(pair_prompt(document, claim, self._version), PairSupport)).support

    async def aclose(self) -> None:
        await self._judge.aclose()


class PairVerifier(Verifier):
    """Scores every sentence against every document of at most `most` characters, and takes the greatest.

    So a sentence must be supported by one document: the passages are joined as far as `most` allows. A document that
    the model finds too long is cut in half, up to four times. This is how MiniCheck reads long documents.

    Reference: L. Tang, P. Laban, G. Durrett (2024), MiniCheck: Efficient Fact-Checking of LLMs on Grounding Documents.
    """

    def __init__(self, scorer: PairScorer, *, most: int) -> None:
        self._scorer = scorer
        self._most = most

    @property
    def model(self) -> str:
        return self._scorer.model

    @property
    def version(self) -> str:
        return f"{self._scorer.version}-{self._most}"

    async def verify(self, material: Material) -> tuple[Support, ...]:
        read = fitting(material, self._most)
        claims = [material.answer[start:end] for start, end in material.sentences]
        found = await together(self._support(document, claim, HALVINGS) for claim in claims for document in read)
        rows = [found[at : at + len(read)] for at in range(0, len(found), len(read))]
        return tuple(max(row, key=lambda support: support.score) for row in rows)

    async def aclose(self) -> None:
        await self._scorer.aclose()

    async def _support(self, document: Document, claim: str, halvings: int) -> Support:
        try:
            score = await self._scorer.support(document.text, claim)
        except JudgeError as error:
            halves = document.halves() if halvings and error.kind == "context_overflow" else None
            if halves is None:
                raise too_long(error) from None
            both = [await self._support(half, claim, halvings - 1) for half in halves]
            return max(both, key=lambda support: support.score)
        return Support(score=score, passages=document.indexes)


def fitting(material: Material, most: int) -> list[Document]:
    """Return the documents of an answer. Raises TooLongError when there are too many, or too many checks."""
    read = documents(material.passages, most)
    if len(read) > MAX_DOCUMENTS or len(read) * len(material.sentences) > MAX_CHECKS:
        raise TooLongError(f"{len(material.sentences)} sentences and {len(read)} documents are too many")
    return read


def too_long(error: JudgeError) -> JudgeError:
    """Return a failure as it is shown: one of a text that is too long, though cut, with the key to lower."""
    if error.kind != "context_overflow":
        return error
    return JudgeError(error.kind, f"{error.detail}; lower judge.grounding.max_document_chars")


def digest(*texts: str) -> str:
    """Return a short hash of wordings, for a version."""
    return sha256("\0".join(texts).encode()).hexdigest()[:8]


async def together(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run calls side by side and return their results in order; the first failure cancels the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except BaseExceptionGroup as failures:
        first: BaseException = failures
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None
    return [task.result() for task in tasks]


def whole(texts: Sequence[str]) -> tuple[str, ...]:
    """Return texts without half surrogate pairs, which cannot be sent."""
    return tuple(text.encode("utf-8", "replace").decode() for text in texts)
