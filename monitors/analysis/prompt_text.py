"""A prompt reassembled from the parts of a capture, for display. Pure: no clock, no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from gaugeway.records import CaptureInfo, Context, PromptPart

HASHED = "blake2b:"
"""Prefix of hashed texts."""


class Piece(Struct, frozen=True, kw_only=True):
    """A part with its text, None if it was not stored; `number` is that of the passage, from 1.

    A "record" is text that belongs to a passage: its number, title, source, id or score.
    """

    message: int
    role: str
    kind: Literal["instructions", "question", "passage", "record"]
    label: str
    text: str | None
    size: int
    number: int | None = None


def pieces(
    capture: CaptureInfo, question: str | None, contexts: Sequence[Context], context_source: str
) -> Iterator[Piece]:
    """Yield the parts in order, with the text of the question and the passages.

    Contexts that were supplied later are not those of the prompt, and the contexts request may change the question too.
    """
    own = context_source == capture.source
    asked = question if own or context_source != "contexts_api" else None
    for part in capture.parts:
        number = part.passage if own and part.passage is not None and 0 <= part.passage < len(contexts) else None
        kind: Literal["instructions", "question", "passage", "record"] = part.kind
        if kind == "instructions" and part.passage is not None:
            kind, number = "record", None
        label, text = "Passage's record" if kind == "record" else kind.capitalize(), part.text
        if part.kind == "question":
            text = asked or ""
        elif part.kind == "passage":
            label = label if part.passage is None else f"{label} {part.passage + 1}"
            text = "" if number is None else contexts[number].text
        yield Piece(
            message=part.message,
            role=part.role,
            kind=kind,
            label=label,
            text=text if text and not (part.kind != "instructions" and text.startswith(HASHED)) else None,
            size=max(0, part.end - part.start),
            number=None if number is None else number + 1,
        )


def unplaced(parts: Sequence[PromptPart], passages: int) -> list[int]:
    """Return the numbers, from 1, of passages that do not occur verbatim in the prompt."""
    placed = {part.passage for part in parts if part.kind == "passage"}
    return [index + 1 for index in range(passages) if index not in placed]


def found_by(capture: CaptureInfo) -> str:
    """Describe in one line how a capture was made.

    >>> found_by(CaptureInfo(source="documents", marker="<doc>", confidence=1.0))
    'documents (<doc>), confidence 1.00'
    """
    if capture.source == "none":
        return "no extractor" + (f": {capture.reason}" if capture.reason else "")
    marker = f" ({capture.marker})" if capture.marker else ""
    sure = "" if capture.confidence is None else f", confidence {capture.confidence:.2f}"
    return f"{capture.source}{marker}{sure}" + (f": {capture.reason}" if capture.reason else "")
