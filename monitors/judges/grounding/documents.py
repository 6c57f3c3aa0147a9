"""The documents that sentences are checked against: passages joined up to a size that the model can read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

MAX_DOCUMENTS = 64
MAX_CHECKS = 2_000
"""Sentences times documents of one answer: pairs of texts that a verifier reads."""

_BREAK = re.compile(r"(?:[.!?\u2026\u3002\uff01\uff1f]|\n)\s*")


@dataclass(frozen=True, slots=True)
class Document:
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
    ends = [match.end() for match in _BREAK.finditer(text, max(0, least - 2), most)]
    if ends and ends[-1] > least:
        return ends[-1]
    space = text.rfind(" ", least, most)
    return space + 1 if space >= 0 else most
