"""The prompt of an exchange on its page: message by message, with the question, passages and instructions marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from dashboards.web.incident.exchange_text import MOST
from gaugeway.records import Sample
from monitors.analysis.prompt_text import Piece, found_by, pieces, unplaced

SHORT = 2_000
"""Characters up to which a prompt is open at first."""
SHOWN_OF_PART, SHOWN_OF_PASSAGE = 2_000, 300
"""Characters of a part shown by default; passages are shown in full above."""
TITLES = {"system": "System message", "user": "User message", "tool": "Tool result"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A piece of a prompt, shortened; `rest` characters are not shown."""

    piece: Piece
    text: str | None
    rest: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message of the prompt; `skipped` messages before it belong to earlier turns."""

    title: str
    shown: tuple[Shown, ...]
    skipped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A stored prompt.

    `explicit`: question and passages were sent with the request.
    `elsewhere`: numbers of passages that no message contains verbatim. `replaced`: contexts were sent separately.
    `lost`: the prompt contained passages that are not stored.
    """

    found_by: str
    explicit: bool
    messages: tuple[Message, ...]
    size: int
    elsewhere: tuple[int, ...] = ()
    replaced: bool = False
    lost: bool = False
    shortened: bool = False
    cut: bool = False

    @property
    def is_short(self) -> bool:
        return self.size <= SHORT


def prompt_of(sample: Sample, *, everything: bool = False) -> Prompt | None:
    """The prompt of a sample; None for samples captured by an older release."""
    capture = sample.capture
    if capture is None:
        return None
    parts = list(pieces(capture, sample.question, sample.contexts, sample.context_source))
    replaced = capture.source != sample.context_source
    return Prompt(
        found_by=found_by(capture),
        explicit=capture.source == "explicit",
        messages=tuple(_messages(parts, everything=everything)),
        size=sum(piece.size for piece in parts),
        elsewhere=() if replaced else tuple(unplaced(capture.parts, len(sample.contexts))),
        replaced=replaced,
        lost=any(piece.kind == "passage" and piece.text is None for piece in parts),
        shortened=capture.shortened,
        cut=capture.cut,
    )


def _messages(parts: Sequence[Piece], *, everything: bool) -> list[Message]:
    found: list[Message] = []
    before = -1
    for index, some in groupby(parts, key=lambda piece: piece.message):
        own = list(some)
        title = TITLES.get(own[0].role, own[0].role)
        shown = tuple(_shown(piece, everything=everything) for piece in own)
        found.append(Message(title=title, shown=shown, skipped=max(0, index - before - 1)))
        before = index
    return found


def _shown(piece: Piece, *, everything: bool) -> Shown:
    if piece.text is None:
        return Shown(piece=piece, text=None)
    most = MOST if everything else SHOWN_OF_PASSAGE if piece.kind == "passage" else SHOWN_OF_PART
    text = piece.text.strip("\r\n")
    return Shown(piece=piece, text=text[:most], rest=max(0, len(text) - most))
