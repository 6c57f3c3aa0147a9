"""The instructions that prompts begin with: requests that begin alike are compared with each other first."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator
from itertools import takewhile

from gateway.contexts.learning.frames import SYSTEM, USER
from gateway.contexts.learning.tokens import salted
from gateway.contexts.structure.word_index import IndexedText

MOST_OPENINGS = 32
"""Of one kind of request that are known at once; the one not seen for longest is forgotten."""
_TEXTS = re.compile(f"[{SYSTEM}{USER}]")
_WORD = re.compile(r"[^\W\d_]+")
_LEADING = 4
_LINE = 400
_TAIL = 120
_WORDS = 8
"""A line is recognised by its last words: in front of them a passage may have a number or a label."""


class Openings:
    """Which instructions the requests of one kind began with. Nothing but salted hashes is kept.

    An instruction that also stands elsewhere in a request is none: it is a passage that reads like one.
    """

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[int, ...], bool] = OrderedDict()
        """By the hashes of their lines, whether these stood at a beginning only."""

    @property
    def size(self) -> int:
        """Bytes held, roughly."""
        return 200 * len(self._seen)

    def of(self, text: str) -> tuple[int, ...]:
        """Return hashes of the instructions that a frame's text begins with; () when no other request began so."""
        first, others = _lines(text)
        for one in self._seen:
            if not others.isdisjoint(one):
                self._seen[one] = False
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

    The last line of the user's turn is none of them: a turn of one line is a question.
    """
    others: set[int] = set()
    first: list[int] = []
    *systems, user = (list(_said(one)) for one in _TEXTS.split(text)[1:])
    for lines, most in (*((one, _LEADING) for one in systems), (user, min(_LEADING, len(user) - 1))):
        leading = list(takewhile(_instructs, lines[: max(most, 0)]))
        first += map(_hash, leading)
        others.update(map(_hash, lines[len(leading) :]))
    return tuple(first), others


def _said(text: str) -> Iterator[str]:
    return (line for line in text.split("\n") if line and not line.isspace())


def _instructs(line: str) -> bool:
    """Whether a line speaks to the model. A label does not count: what stands under it may come first by chance."""
    text = IndexedText(line[:_LINE])
    return text.addresses(0, len(text.text)) or text.is_meta(0, len(text.text))


def _hash(line: str) -> int:
    words = _WORD.findall(line[-_TAIL:])[-_WORDS:]
    return salted(*words) if words else 0
