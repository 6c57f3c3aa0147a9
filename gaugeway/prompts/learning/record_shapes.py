"""Checks whether the passages of many requests begin or end alike once their words and numbers are masked.

Such a line, or such a start of a line, is a title, a source or a score of the record, not text of the passage.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gaugeway.prompts.form.text import ends_a_sentence
from gaugeway.prompts.learning.alignment import salted

_LINE = 100
"""Most characters of a line, or of a start of one, that is not text."""
MOST_SHAPES = 40
_LEAST = 8
"""Passages without which a shape shows nothing."""
_SHARE = 0.9
_VALUE = re.compile(r"\w+(?:[ ./\\,'’_-]+\w+)*")
_START = re.compile(r"[^\n.!?。！？]{1,60}?(?:\.\w[^\s.!?]{0,40})?[ \t]*[|:：\])}】»\t][ \t]*(?=\S)")


def _shapes(text: str) -> Iterator[tuple[str, str]]:
    first, _, rest = text.partition("\n")
    if rest:
        for side, line in (("first", first), ("last", rest.rpartition("\n")[2])):
            if 0 < len(line) <= _LINE and not ends_a_sentence(line):
                yield side, _VALUE.sub("w", line.strip())
    if (start := _START.match(first[:_LINE])) is not None:
        yield "start", _VALUE.sub("w", start[0].strip())


@dataclass(slots=True)
class RecordShapes:
    """Counts the masked first and last lines, and starts of lines, of passages."""

    seen: int = 0
    counts: dict[int, int] = field(default_factory=dict)

    def add(self, texts: Sequence[str]) -> None:
        """Add the passages of a request; the literals around them may hold what opens the first and ends the last."""
        self.seen += max(0, len(texts) - 1)
        last = len(texts) - 1
        for index, text in enumerate(texts):
            for side, shape in _shapes(text):
                if index == (last if side == "last" else 0):
                    continue
                key = salted((side, shape))
                if key in self.counts or len(self.counts) < MOST_SHAPES:
                    self.counts[key] = self.counts.get(key, 0) + 1

    @property
    def recurring(self) -> bool:
        """Whether nearly all passages share a shape."""
        return self.seen >= _LEAST and max(self.counts.values(), default=0) >= _SHARE * self.seen
