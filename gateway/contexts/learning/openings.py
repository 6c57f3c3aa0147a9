"""The instructions that prompts begin with: requests that begin alike are compared with each other first."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator
from itertools import takewhile

from gateway.contexts.form.word_index import IndexedText
from gateway.contexts.learning.alignment import salted
from gateway.contexts.learning.frames import SYSTEM, USER

MOST_OPENINGS = 32
"""Most openings known of one kind of request; the least recently used is forgotten."""
_TEXTS = re.compile(f"[{SYSTEM}{USER}]")
_WORD = re.compile(r"[^\W\d_]+")
_LEADING = 4
_LINE = 400
_TAIL = 120
_WORDS = 8
"""Last words of a line that are hashed: a passage may have a number or a label before them."""


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

    The last line of the user's turn is in neither: a single-line turn is a question.
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
    """Whether a line addresses the model. A label does not count: its content may come first by chance."""
    text = IndexedText(line[:_LINE])
    return text.addresses(0, len(text.text)) or text.is_meta(0, len(text.text))


def _hash(line: str) -> int:
    words = _WORD.findall(line[-_TAIL:])[-_WORDS:]
    return salted(*words) if words else 0
