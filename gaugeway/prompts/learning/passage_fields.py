"""Finds the text that the passages of a prompt share: usually the names of fields around their text."""

from __future__ import annotations

import re

from msgspec import structs

from gaugeway.prompts.learning.brackets import belongs_behind
from gaugeway.prompts.learning.frames import END, USER
from gaugeway.prompts.learning.model import Split
from gaugeway.prompts.learning.outline import Outline, Strength
from gaugeway.prompts.learning.skeletons import Reading, Skeleton, read, signs_of, skeleton_of

MOST_COMPARED = 8
"""Most passages compared per request."""
MOST_TOKENS = 96
"""Most tokens compared per passage: its first and its last."""
_ENOUGH = 6
_KEY = re.compile(r"[ \t]*[-*•]?[ \t]*\**[^\W\d_][^\n:：]{0,30}\**[:：]\**[ \t]*")
_FACTS = 2
_STRENGTHS: tuple[Strength, ...] = ("loose", "any")


class PassageSkeleton:
    """The skeleton of the passages of a plan, over all requests."""

    def __init__(self, salt: int) -> None:
        self._salt = salt
        self._signs = signs_of(salt)._replace(width=1)
        self._skeleton: Skeleton | None = None
        self.literals = False

    @property
    def size(self) -> int:
        """Approximate bytes held."""
        return 100 + (self._skeleton.size if self._skeleton else 0)

    def add(self, how: Split, chunks: list[str]) -> list[Split]:
        """Add the passages of a request. Return the splits that would strip the text they share."""
        some = [chunk for chunk in chunks if chunk.strip()][:MOST_COMPARED]
        readings = [read(f"{USER}{chunk.strip()}{END}", self._salt, MOST_TOKENS) for chunk in some]
        for reading in readings:
            if self._skeleton is None:
                self._skeleton = skeleton_of(reading)
            elif self._skeleton.tokens and (pairs := self._skeleton.match(reading, self._signs)):
                self._skeleton.refine(reading, pairs)
        if self._skeleton is None or self._skeleton.seen < _ENOUGH:
            return []
        places = [self._places(reading) for reading in readings]
        if any(one is None for one in places):
            self.literals = True
            return []
        found = []
        for strength in _STRENGTHS:
            outlines = [
                self._skeleton.outline(one, at or [], strength) for one, at in zip(readings, places, strict=True)
            ]
            said = _around_longest([one for one in outlines if one is not None], how.words)
            # A line break alone behind the text would cut off whatever a passage's last line says.
            if said is not None and not _is_of_fields(said[0]) and all(one.strip() for one in said[1]):
                found.append(structs.replace(how, header=said[0], trailer=said[1]))
            if strength == "loose":
                self.literals = any(one is not None and one.words() != (USER, END) for one in outlines)
        return list(dict.fromkeys(found))

    def _places(self, reading: Reading) -> list[int] | None:
        assert self._skeleton is not None  # noqa: S101 - for the type checker: the caller looked
        pairs = self._skeleton.match(reading, self._signs)
        return [j for _, j in pairs] if len(pairs) == len(self._skeleton.tokens) else None


def _is_of_fields(literals: tuple[str, ...]) -> bool:
    """Whether the text before a passage's longest field names factual fields, such as a price and a weight."""
    keys = [line for literal in literals for line in literal.split("\n") if _KEY.fullmatch(line)]
    return len(keys) >= _FACTS


def _around_longest(seen: list[Outline], marker: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return the literals before and after the longest slot; None if there are none."""
    if not seen or len({len(one.literals) for one in seen}) > 1 or seen[0].words() == (USER, END):
        return None
    lengths = [sum(end - start for start, end in slot) for slot in zip(*(one.slots for one in seen), strict=True)]
    text = lengths.index(max(lengths))
    words = seen[0].words()
    words = (words[0][1:], *words[1:-1], words[-1][:-1])
    header = [belongs_behind((marker, *words[:at]), one) for at, one in enumerate(words[: text + 1])]
    return tuple(filter(None, header)), tuple(filter(None, words[text + 1 :]))
