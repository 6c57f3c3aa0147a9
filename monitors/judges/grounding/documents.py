"""Documents that an answer is checked against: passages joined up to a size that a model reads, the best one counts."""

from __future__ import annotations

import asyncio
import re
from abc import abstractmethod
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any, TypeVar

from msgspec import Struct

from monitors.judges import Judge, JudgeError
from monitors.judges.grounding import Material, Support, TooLongError, Verifier

T = TypeVar("T")
TASK = "grounding"
MAX_DOCUMENTS = 64
MAX_CHECKS = 2_000
"""Sentences times documents of one answer: pairs of texts that a verifier reads."""
_HALVINGS = 4
"""How often a document that the model finds too long is cut in half."""

_BREAK = re.compile(r"(?:[.!?\u2026\u3002\uff01\uff1f]|\n)\s*")


class Document(Struct, frozen=True):
    """Passages, or parts of one, that are checked together; `indexes` are those of the passages in the sample."""

    texts: tuple[str, ...]
    indexes: tuple[int, ...]

    @property
    def text(self) -> str:
        """All texts as one."""
        return "\n".join(self.texts)

    def halves(self) -> tuple[Document, Document] | None:
        """Return two documents of about half the size; None where the text is too short to cut."""
        if len(self.texts) > 1:
            at = len(self.texts) // 2
            return Document(self.texts[:at], self.indexes[:at]), Document(self.texts[at:], self.indexes[at:])
        text = self.texts[0]
        if len(text) < 2:  # noqa: PLR2004 - nothing to cut
            return None
        at = _cut(text, (len(text) + 1) // 2)
        return Document((text[:at],), self.indexes), Document((text[at:],), self.indexes)


def documents(passages: Sequence[str], most: int) -> list[Document]:
    """Join passages in order into documents of at most `most` characters; longer passages are cut between sentences.

    >>> [document.texts for document in documents(["One two.", "Three.", "A first. A second."], 16)]
    [('One two.', 'Three.'), ('A first. ',), ('A second.',)]
    """
    found: list[Document] = []
    texts: list[str] = []
    indexes: list[int] = []
    size = 0
    for index, text in _parts(passages, most):
        if texts and size + len(text) + 1 > most:
            found.append(Document(tuple(texts), tuple(indexes)))
            texts, indexes, size = [], [], 0
        texts.append(text)
        indexes.append(index)
        size += len(text) + 1
    return [*found, Document(tuple(texts), tuple(indexes))] if texts else found


def _parts(passages: Iterable[str], most: int) -> Iterator[tuple[int, str]]:
    for index, passage in enumerate(passages):
        rest = passage
        while len(rest) > most:
            at = _cut(rest, most)
            yield index, rest[:at]
            rest = rest[at:]
        if rest.strip():
            yield index, rest


def _cut(text: str, most: int) -> int:
    """Return where to cut: after the last sentence, else word, within `most` characters, but not in the first half."""
    least = most // 2
    if (ends := [match.end() for match in _BREAK.finditer(text, max(0, least - 2), most)]) and ends[-1] > least:
        return ends[-1]
    space = text.rfind(" ", least, most)
    return space + 1 if space >= 0 else most


class DocumentVerifier(Verifier):
    """Checks an answer against each document of at most `most` characters; the document that supports best counts.

    The passages are joined as far as `most` allows. A document that the model finds too long is cut in half, up to
    four times. `version` is that of the question to the model.
    """

    def __init__(self, judge: Judge, *, version: str, most: int) -> None:
        self._judge = judge
        self._version = version
        self._most = most

    @property
    def model(self) -> str:
        return self._judge.model

    @property
    def version(self) -> str:
        return f"{self._version}-{self._most}"

    async def verify(self, material: Material) -> tuple[Support, ...]:
        read = documents(material.passages, self._most)
        if len(read) > MAX_DOCUMENTS or len(read) * len(material.sentences) > MAX_CHECKS:
            raise TooLongError(f"{len(material.sentences)} sentences and {len(read)} documents are too many")
        parts = self._parts(material)
        checks = await together(self._supports(part, document, _HALVINGS) for part in parts for document in read)
        rows = (checks[len(read) * at : len(read) * (at + 1)] for at in range(len(parts)))
        return tuple(support for row in rows for support in _best(row))

    async def aclose(self) -> None:
        await self._judge.aclose()

    def _parts(self, material: Material) -> Sequence[Material]:
        """Return what the model is asked about at a time: by default all sentences together."""
        return [material]

    @abstractmethod
    async def _checked(self, material: Material, document: Document) -> tuple[Support, ...]:
        """Return the support of each sentence by one document. Raises JudgeError."""

    async def _supports(self, material: Material, document: Document, halvings: int) -> tuple[Support, ...]:
        try:
            return await self._checked(material, document)
        except JudgeError as error:
            if error.kind != "context_overflow":
                raise
            halves = document.halves() if halvings else None
            if halves is None:
                # Too long, though cut: the failure names the key to lower.
                detail = f"{error.detail}; lower judge.grounding.max_document_chars"
                raise JudgeError(error.kind, detail) from None
            return _best([await self._supports(material, half, halvings - 1) for half in halves])


def _best(rows: Sequence[tuple[Support, ...]]) -> tuple[Support, ...]:
    """Return, for each sentence, the support of the document that supports it best."""
    return tuple(max(column, key=lambda support: support.score) for column in zip(*rows, strict=True))


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
