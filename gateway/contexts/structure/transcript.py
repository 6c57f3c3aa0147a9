"""Finds a chat transcript that the model is to continue: `Ann: ...`, `Bot: ...`, `Ann: ...`, `Bot:`."""

from __future__ import annotations

import re
from typing import NamedTuple

_NAME = r"[*#\[]{0,3}(?P<name>[^\W\d_][\w' -]{0,30}?)[*\]]{0,3}[:：][*]{0,2}"
_TURN = re.compile(rf"^{_NAME}(?=[ \t])", re.MULTILINE)
_LAST = re.compile(rf"\n{_NAME}\s*\Z")
_ENDING = 60
_READ = 12_000
_FEWEST_TURNS = 3
"""Turns of both speakers: at least one earlier question was answered."""


class Transcript(NamedTuple):
    """Offset of the first turn, name of the user, and the user's last question."""

    start: int
    asker: str
    question: str


def find_transcript(raw: str) -> Transcript | None:
    """Return the transcript at the end of a text, which ends with the name of the next speaker; None if there is none.

    The last 12,000 characters are read.
    """
    tail = raw[-_ENDING:]
    ending = _LAST.search(tail) if tail.rstrip().endswith((":", "：", "*", "]")) else None
    if ending is None:
        return None
    offset = max(len(raw) - _READ, 0)
    last = max(len(raw) - _ENDING, 0) + ending.start() + 1
    answers = ending["name"]
    turns = list(_TURN.finditer(raw[offset:last]))
    asker = turns[-1]["name"] if turns else answers
    if asker == answers:
        return None
    spoken = [one for one in turns if one["name"] in (asker, answers)]
    if len(spoken) < _FEWEST_TURNS or {one["name"] for one in spoken[:-1]} != {asker, answers}:
        return None
    question = raw[offset + turns[-1].end() : last].strip()
    return Transcript(offset + spoken[0].start(), asker, question) if question else None
