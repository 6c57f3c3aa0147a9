"""Statistics on the contents of a prompt's slots, as salted hashes: variety, questions, text of the prompt itself."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from gaugeway.prompts.learning.outline import has_letter, masked
from gaugeway.prompts.learning.tokens import salted

MOST_EDGES = 40
"""Most first and last lines whose hashes are counted."""
MOST_VALUES = 64
CONSTANT_SHARE = 0.8
"""Share of requests from which a repeated text belongs to the prompt."""

_SHORT = 40
_SURE = 0.8
_QUESTION_LENGTH = 600
_LEAST_QUESTION = 4
_ASKS = re.compile(r"[?？؟;]\s*[\"'”’»)\]]*\s*\Z")
_LABELLED = re.compile(r"[^\n:：]{1,40}[:：]")
_HISTORY = re.compile(
    r"\b(?:history|conversation|transcript|dialogue?|chat|messages|memor(?:y|ies)|tools|functions|examples?|schema|diff|"
    r"verlauf|gespräch\w*|historique|conversación|historial)\b|历史|对话|履歴|会話",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Edges:
    """Counts first and last lines and labels of contents; a constant one is text of the prompt."""

    seen: int = 0
    counts: dict[int, int] = field(default_factory=dict)

    def add(self, said: str, *, head: bool = True, tail: bool = True, labels: bool = True) -> None:
        """Add a content. `head`, `tail`: whether its first and last lines count."""
        self.seen += 1
        first, _, rest = said.partition("\n")
        last = rest.rpartition("\n")[2]
        lines = {(0, first)} if head and rest else set()
        if head and (label := _LABELLED.match(first)) is not None:
            lines.add((1, label[0]))
        if tail and rest:
            lines.add((2, last))
            if labels and (label := _LABELLED.match(last)) is not None:
                lines.add((3, label[0]))
        for at, line in lines:
            key = salted((at, masked(line)))
            if key in self.counts or len(self.counts) < MOST_EDGES:
                self.counts[key] = self.counts.get(key, 0) + 1

    @property
    def constant(self) -> bool:
        """Whether nearly all contents share a line or label."""
        return max(self.counts.values(), default=0) > CONSTANT_SHARE * self.seen


@dataclass(slots=True)
class SlotEvidence:
    """Statistics on a slot other than the passages'."""

    seen: int = 0
    asked: int = 0
    short: int = 0
    worded: int = 0
    values: set[int] = field(default_factory=set)
    edges: Edges = field(default_factory=Edges)

    def add(self, text: str) -> None:
        """Add a content."""
        said = text.strip()
        self.seen += 1
        self.edges.add(said)
        self.asked += _ASKS.search(said[-20:]) is not None
        self.short += 0 < len(said) <= _QUESTION_LENGTH
        self.worded += len(said) >= _LEAST_QUESTION and any(map(str.isalpha, said))
        if len(self.values) < MOST_VALUES:
            self.values.add(salted(said))

    def points(self) -> float:
        """Return how much the slot looks like the question's; above 1 it does."""
        if not self.seen or self.edges.constant or self.worded < _SURE * self.seen or self.short < _SURE * self.seen:
            return 0.0
        variety = len(self.values) / min(self.seen, MOST_VALUES)
        return variety + self.asked / self.seen


def mask_of(text: str) -> tuple[int, bool]:
    """Return a hash of the text without its numbers, and whether it is short: a label rather than a passage."""
    return salted(masked(text)), len(text) <= _SHORT


def labels_of(text: str) -> list[str]:
    """Return the short first and last lines of a passage, or the passage itself if it is one short line."""
    first, _, rest = text.partition("\n")
    lines = (first, rest.rpartition("\n")[2]) if rest else (first,)
    return [masked(line) for line in lines if 0 < len(line) <= _SHORT and has_letter(line)]


def is_history(literal: str) -> bool:
    """Whether the label before a slot names something other than passages, such as a chat history."""
    return _HISTORY.search("\n".join(literal.rstrip().rsplit("\n", 2)[-2:])[-160:]) is not None
