"""Frames: the texts of a request that may follow a prompt template, joined into one string."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gaugeway.exchange import Request
from gaugeway.prompts import messages_of, text_of, text_parts

MAX_FRAME = 65_536
"""Most characters of a frame. A longer prompt is neither learned from nor matched with learned templates."""

SYSTEM, USER, PART, END = "\x01", "\x02", "\x03", "\x04"
MARKS = frozenset((SYSTEM, USER, PART, END))
MASK = "\x05"
"""Replaces numbers in comparisons that ignore them."""

_RESERVED = (*MARKS, MASK)
_SYSTEM_ROLES = ("system", "developer")


@dataclass(frozen=True, slots=True)
class Frame:
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
