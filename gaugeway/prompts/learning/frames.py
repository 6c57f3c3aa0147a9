"""Frames: the texts of a request that may follow a prompt template, joined into one string; and what they begin with.

Requests whose prompts begin with the same instructions are compared with each other first.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from msgspec import Struct

from gaugeway.exchange import Request
from gaugeway.prompts import messages_of, text_of, text_parts
from gaugeway.prompts.form.word_index import IndexedText
from gaugeway.prompts.learning.alignment import salted
from gaugeway.prompts.sizes import CHAPTER, FEW, LINE, MANY, OBJECT, PARAGRAPH, SEVERAL

MAX_FRAME = CHAPTER
"""Most characters of a frame. A longer prompt is neither learned from nor matched with learned templates."""

SYSTEM, USER, PART, END = "\x01", "\x02", "\x03", "\x04"
MARKS = frozenset((SYSTEM, USER, PART, END))
MASK = "\x05"
"""Replaces numbers in comparisons that ignore them."""

_RESERVED = (*MARKS, MASK)
_SYSTEM_ROLES = ("system", "developer")
MOST_OPENINGS = MANY
"""Most openings known of one kind of request; the least recently used is forgotten."""
_TEXTS = re.compile(f"[{SYSTEM}{USER}]")
_WORD = re.compile(r"[^\W\d_]+")
_LEADING = FEW
_LINE = PARAGRAPH
_TAIL = LINE
_WORDS = SEVERAL
"""Last words of a line that are hashed: a passage may have a number or a label before them."""


class Frame(Struct, frozen=True):
    r"""The system texts and the last user turn of a request, each behind a mark that says whose it is, and an end mark.

    `kind` names what is compared with each other: the route, and which of these texts there are. A content part of the
    user's turn is a text of its own, behind a mark too. A request with other turns in between is the same kind.
    """

    kind: str
    text: str


def frame_of(request: Request) -> Frame | None:
    """Return the frame of a request; None when there is no user turn, or too much text to learn from."""
    systems: list[str] = []
    turn: Any = None
    size = 0
    for message in messages_of(request):
        role = message.get("role")
        if role in _SYSTEM_ROLES:
            systems.append(text_of(message.get("content")))
            size += len(systems[-1])
        elif role == "user":
            turn = message.get("content")
        if size > MAX_FRAME:
            return None
    parts = text_parts(turn)
    texts = [SYSTEM + text for text in systems]
    if not parts or size + sum(map(len, parts)) > MAX_FRAME:
        return None
    if any(mark in text for text in (*systems, *parts) for mark in _RESERVED):
        return None
    whole = "".join((*texts, USER, PART.join(parts), END))
    return Frame(kind=f"{request.route}:{'s' * len(systems)}u", text=whole)


class Openings:
    """The instructions that requests of one kind begin with, as salted hashes.

    An instruction that also occurs elsewhere in a request does not count: it is a passage that reads like one.
    """

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[int, ...], bool] = OrderedDict()
        """Whether these lines (hashes) only ever occurred at the beginning. In order of last use."""

    @property
    def size(self) -> int:
        """Approximate bytes held."""
        return OBJECT * len(self._seen)

    def of(self, text: str) -> tuple[int, ...]:
        """Return hashes of the instructions that a frame's text begins with; () when no other request began so."""
        first, others = _lines(text)
        for opening in self._seen:
            if not others.isdisjoint(opening):
                self._seen[opening] = False
        if not first:
            return ()
        known = first in self._seen
        alone = self._seen.setdefault(first, others.isdisjoint(first))
        self._seen.move_to_end(first)
        if len(self._seen) > MOST_OPENINGS:
            self._seen.popitem(last=False)
        return first if known and alone else ()


def _lines(text: str) -> tuple[tuple[int, ...], set[int]]:
    """Return hashes of the instructions at the beginning of each text, and those of all other lines.

    The last line of the user's turn is in neither: a single-line turn is a question.
    """
    others: set[int] = set()
    first: list[int] = []
    *systems, user = (list(_said(part)) for part in _TEXTS.split(text)[1:])
    for lines, most in (*((system, _LEADING) for system in systems), (user, min(_LEADING, len(user) - 1))):
        leading = list(takewhile(_instructs, lines[: max(most, 0)]))
        first += map(_hash, leading)
        others.update(map(_hash, lines[len(leading) :]))
    return tuple(first), others


def _said(text: str) -> Iterator[str]:
    return (line for line in text.split("\n") if line and not line.isspace())


def _instructs(line: str) -> bool:
    """Whether a line addresses the model. A label does not count: its content may come first by chance."""
    text = IndexedText(line[:_LINE])
    return text.addresses(0, len(text.text)) or text.is_meta(0, len(text.text))


def _hash(line: str) -> int:
    words = _WORD.findall(line[-_TAIL:])[-_WORDS:]
    return salted(*words) if words else 0
