"""Evidence for one plan over several requests: passages recur next to different ones, questions do not.

Contents of slots are kept as salted hashes: variety, questions, constant fields of passages, text of the prompt itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from msgspec import Struct, structs

from gaugeway.prompts.form.text import ends_a_sentence
from gaugeway.prompts.learning.alignment import salted
from gaugeway.prompts.learning.frames import END, USER
from gaugeway.prompts.learning.model import Split, belongs_behind
from gaugeway.prompts.learning.outline import Outline, Strength, has_letter, masked
from gaugeway.prompts.learning.plans import Plan
from gaugeway.prompts.learning.skeletons import Reading, Skeleton, read, signs_of, skeleton_of
from gaugeway.prompts.sizes import (
    FEW,
    HALF,
    LABEL,
    LINE,
    MANY,
    MOSTLY,
    NEARLY_ALL,
    OBJECT,
    PARAGRAPH,
    QUARTER,
    SEVERAL,
    TENTH,
    WORD,
)

_LINE = LINE
"""Most characters of a line, or of a start of one, that is not text."""
MOST_SHAPES = MANY
_LEAST = SEVERAL
"""Passages without which a shape shows nothing."""
_SHARE = NEARLY_ALL
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


class RecordShapes(Struct):
    """Counts the masked first and last lines, and starts of lines, of passages."""

    seen: int = 0
    counts: dict[int, int] = {}

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


MOST_VALUES = MANY
CONSTANT_SHARE = MOSTLY
"""Share of requests from which a repeated text belongs to the prompt."""

_SHORT = LABEL
_SURE = MOSTLY
_QUESTION_LENGTH = PARAGRAPH
_LEAST_QUESTION = FEW
_LABELLED = re.compile(r"[^\n:：]{1,40}[:：]")
_ASKS = re.compile(r"[?？؟;]\s*[\"'”’»)\]]*\s*\Z")
_HISTORY = re.compile(
    r"\b(?:history|conversation|transcript|dialogue?|chat|messages|memor(?:y|ies)|tools|functions|examples?|schema|diff|"
    r"verlauf|gespräch\w*|historique|conversación|historial)\b|历史|对话|履歴|会話",
    re.IGNORECASE,
)
MOST_CHUNKS = FEW * MANY
"""Most passages of a plan whose hashes are remembered to detect recurrence."""
_LEAST_RECURRED = FEW
_LEAST_RATE = TENTH
_SOME = QUARTER
_FEW = 2
_NUMBERED = re.compile(r"[\[(#<{]{0,2}\d{1,3}[\])}>.:]{1,3}\s")
MOST_COMPARED = SEVERAL
"""Most passages compared per request."""
MOST_TOKENS = LINE
"""Most tokens compared per passage: its first and its last."""
_ENOUGH = 2 * FEW
_KEY = re.compile(r"[ \t]*[-*•]?[ \t]*\**[^\W\d_][^\n:：]{0,30}\**[:：]\**[ \t]*")
_FACTS = 2
_STRENGTHS: tuple[Strength, ...] = ("loose", "any")


class Edges(Struct):
    """Counts first and last lines and labels of contents; a constant one is text of the prompt."""

    seen: int = 0
    counts: dict[int, int] = {}

    def add(self, said: str) -> None:
        """Add a content."""
        self.seen += 1
        first, _, rest = said.partition("\n")
        last = rest.rpartition("\n")[2]
        lines = {(0, first), (2, last)} if rest else set()
        lines |= {(at + 1, label[0]) for at, line in ((0, first), (2, last)) if (label := _LABELLED.match(line))}
        for at, line in lines:
            key = salted((at, masked(line)))
            if key in self.counts or len(self.counts) < MOST_SHAPES:
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
    named: int = 0
    """Requests in which another extractor took the content for the question."""
    values: set[int] = field(default_factory=set)
    edges: Edges = field(default_factory=Edges)

    def add(self, text: str, question: str | None = None) -> None:
        """Add a content. `question` is what another extractor took for the question."""
        said = text.strip()
        self.seen += 1
        self.named += said == question
        self.edges.add(said)
        self.asked += _ASKS.search(said[-WORD:]) is not None
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
    return _HISTORY.search("\n".join(literal.rstrip().rsplit("\n", 2)[-2:])[-LINE:]) is not None


@dataclass(slots=True)
class PlanEvidence:
    """Evidence for one plan."""

    literals: int
    first: int
    certain: float
    is_history: bool = False
    """Whether the label before its passages names something else, such as a conversation."""
    last: int = 0
    marks: int = 0
    count: int = 0
    items: int = 0
    alone: int = 0
    characters: int = 0
    multiple: int = 0
    again: set[int] = field(default_factory=set)
    agreed: int = 0
    disagreed: int = 0
    chunks: dict[int, int] = field(default_factory=dict)
    masks: dict[tuple[int, bool], int] = field(default_factory=dict)
    regions: set[int] = field(default_factory=set)
    slots: list[SlotEvidence] = field(default_factory=list)
    repeated: int = 0
    numbered: int = 0
    partial: int = 0
    variants: bool = False
    """Whether something may come off its passages: a line, or what stands before a sign."""
    inner: PassageSkeleton | None = None
    shapes: RecordShapes = field(default_factory=RecordShapes)

    @property
    def size(self) -> int:
        """Approximate bytes held."""
        counts = len(self.chunks) + len(self.masks) + len(self.shapes.counts)
        return (
            2 * FEW * OBJECT
            + OBJECT // 2 * (counts + len(self.again))
            + (self.inner.size if self.inner else 0)
            + sum(2 * OBJECT + OBJECT // 2 * (len(slot.values) + len(slot.edges.counts)) for slot in self.slots)
        )

    @property
    def clean(self) -> bool:
        """Whether neither constant text is in the passages nor passages in another slot."""
        if self.numbered > max(_FEW, _SOME * self.items) or self.partial > max(_FEW, _SOME * self.count):
            return False
        if self.shapes.recurring or self.constant:
            return False
        if self.repeated > _FEW or (self.inner is not None and self.inner.literals):
            return False
        return all(len(slot.values & self.chunks.keys()) < _FEW for slot in self.slots)

    @property
    def mean(self) -> float:
        """Passages of a request."""
        return (self.items + self.alone) / max(1, self.count + self.alone)

    @property
    def length(self) -> float:
        """Characters of a passage."""
        return self.characters / max(1, self.items)

    @property
    def rate(self) -> float:
        """The share of different passages that came again, behind another one."""
        return len(self.again) / max(1, len(self.chunks))

    @property
    def constant(self) -> bool:
        """Whether one of the passages is in nearly every request: then it is a text of the prompt."""
        requests = max(1, len(self.regions))
        return any(
            count > (HALF if short else CONSTANT_SHARE) * requests and count > _FEW
            for (_, short), count in self.masks.items()
        )

    @property
    def proven(self) -> bool:
        """Whether recurrence proves the split."""
        return len(self.again) >= _LEAST_RECURRED and self.rate >= _LEAST_RATE

    def add(self, plan: Plan) -> None:
        """Count the passages of a request: those that came before, but behind another one than now."""
        self.count += 1
        self.partial += plan.partial
        self._look(plan)
        texts = [salted(passage.text) for passage in plan.contexts]
        self.repeated += len(set(texts)) < len(texts)
        combination = salted(tuple(texts))
        if combination in self.regions:
            return
        if len(self.regions) < MOST_VALUES:
            self.regions.add(combination)
        self.items += len(texts)
        self.characters += sum(len(passage.text) for passage in plan.contexts)
        self.multiple += len(texts) > 1
        previous = 0
        for text in texts:
            known = self.chunks.get(text)
            if known is not None and known != previous:
                self.again.add(text)
            if known is not None or len(self.chunks) < MOST_CHUNKS:
                self.chunks[text] = previous
            previous = text

    def _look(self, plan: Plan) -> None:
        """Record text of the passages that may belong to the prompt."""
        self.shapes.add([passage.text for passage in plan.contexts])
        self.numbered += sum(_NUMBERED.match(passage.text) is not None for passage in plan.contexts)
        for mask in {mask_of(passage.text) for passage in plan.contexts}:
            if mask in self.masks or len(self.masks) < MOST_CHUNKS:
                self.masks[mask] = self.masks.get(mask, 0) + 1


def question_of(plan: PlanEvidence) -> int | None:
    """Return the index of the slot that looks like the question's, if any."""
    slots = plan.slots
    best = max(range(len(slots)), key=lambda index: (slots[index].named, slots[index].points()), default=None)
    return best if best is not None and plan.slots[best].points() > 1.0 else None


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
        return OBJECT + (self._skeleton.size if self._skeleton else 0)

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
        if any(place is None for place in places):
            self.literals = True
            return []
        found = []
        for strength in _STRENGTHS:
            outlines = [
                self._skeleton.outline(one, at or [], strength) for one, at in zip(readings, places, strict=True)
            ]
            said = _around_longest([outline for outline in outlines if outline is not None], how.words)
            # A line break alone behind the text would cut off whatever a passage's last line says.
            if said is not None and not _is_of_fields(said[0]) and all(text.strip() for text in said[1]):
                found.append(structs.replace(how, header=said[0], trailer=said[1]))
            if strength == "loose":
                self.literals = any(outline is not None and outline.words() != (USER, END) for outline in outlines)
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
    if not seen or len({len(outline.literals) for outline in seen}) > 1 or seen[0].words() == (USER, END):
        return None
    lengths = [
        sum(end - start for start, end in slot) for slot in zip(*(outline.slots for outline in seen), strict=True)
    ]
    text = lengths.index(max(lengths))
    words = seen[0].words()
    words = (words[0][1:], *words[1:-1], words[-1][:-1])
    header = [belongs_behind((marker, *words[:at]), one) for at, one in enumerate(words[: text + 1])]
    return tuple(filter(None, header)), tuple(filter(None, words[text + 1 :]))
