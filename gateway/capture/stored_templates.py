"""Conversion between learned and stored prompt templates, with redaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from gaugeway.prompts.learning.judge_marks import Marked
from gaugeway.prompts.learning.model import LearnedTemplate
from gaugeway.storage.templates import ASKED, StoredTemplate

Form: TypeAlias = Callable[[LearnedTemplate], StoredTemplate | None]
"""Returns the storable form of a template; None if it must not be stored."""
Private: TypeAlias = Callable[[str], Iterable[tuple[int, int]]]
"""Returns the spans of a text that must not be stored. Raises TimeoutError when detection takes too long."""


def stored_of(template: LearnedTemplate, private: Private) -> StoredTemplate | None:
    """Return the storable form of a template, or None if it must not be stored.

    A private span of a constant text, for example an address, is replaced by an ignored slot: the template matches the
    same requests, and the span is not stored. That is impossible next to another slot and in the text between passages:
    such a template is not stored.
    """
    how, slots, literals = template.split, list(template.slots), list(template.literals)
    try:
        if any(any(private(text)) for text in (how.words, *how.header, *how.trailer)):
            return None
        for place in range(len(literals) - 1, -1, -1):
            if not (spans := list(private(literals[place]))):
                continue
            if not all(pieces := _around(literals[place], spans)):
                return None
            literals[place : place + 1] = pieces
            slots[place:place] = ["other"] * (len(pieces) - 1)
    except TimeoutError:
        return None
    found: LearnedTemplate = msgspec.structs.replace(template, literals=tuple(literals), slots=tuple(slots))
    return plain(found)


def plain(template: LearnedTemplate) -> StoredTemplate:
    """Return the unredacted template with the stored types. Raises ValueError for a lone surrogate."""
    return msgspec.json.decode(msgspec.json.encode(template), type=StoredTemplate)


def asked_of(template: LearnedTemplate, redact: Callable[[str], str]) -> StoredTemplate:
    """Return the storable, redacted form of a request that the judge is to mark."""
    stored = plain(msgspec.structs.replace(template, literals=tuple(map(redact, template.literals))))
    return msgspec.structs.replace(stored, state="asked")


def marked_of(template: StoredTemplate) -> Marked | None:
    """Return the request that the judge was asked to mark; None for a template."""
    if template.state not in ASKED or len(template.literals) != 1:
        return None
    answered, passages = template.state == "marked", template.split.get("passages") or ()
    question = str(template.split.get("question") or "")
    return Marked(template.app, template.kind, template.literals[0], answered, question, tuple(map(str, passages)))


def learned_of(template: StoredTemplate) -> LearnedTemplate | None:
    """Return the learner's form of a template; None if another release wrote it in an unknown form."""
    try:
        found = msgspec.convert(msgspec.to_builtins(template), LearnedTemplate)
    except msgspec.ValidationError:
        return None
    fits = len(found.literals) == len(found.slots) + 1 and "passages" in found.slots and all(found.literals)
    return found if fits else None


def _around(text: str, spans: Iterable[tuple[int, int]]) -> list[str]:
    pieces, position = [], 0
    for start, end in spans:
        pieces.append(text[position:start])
        position = end
    return [*pieces, text[position:]]
