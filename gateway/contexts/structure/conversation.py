"""Picks the best-scored block of passages among all messages of a request, with a confidence and a reason."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from gateway.contexts.parse import decoded
from gateway.contexts.parse import read as listed
from gateway.contexts.prose import reads_like_a_passage
from gateway.contexts.structure.blocks import Block, candidates
from gateway.contexts.structure.labels import find_marks, kind_of
from gateway.contexts.structure.passages import Splitting, of_parts, split
from gateway.contexts.structure.question import LAST_TURN, FoundQuestion, is_question, question_of_turn
from gateway.contexts.structure.scoring import SHORT_INSTRUCTIONS, Place, ScoredBlock, score_block
from gateway.contexts.structure.word_index import IndexedText, Kind
from monitors.records import Context

THRESHOLD = 3.0
"""Points from which a block counts as passages; this score maps to a confidence of 0.5."""

_SLOPE = 1.1
_ROUNDING = 1e-9
_CITATION = 80
_CLEAR = 5.0
"""Points from which no further message is read."""
_CERTAIN = THRESHOLD + 1.5
_TRIED = 3
_ANNOUNCED = 0.7
_TURNS = 20
_NAMED = 0.75
_SYSTEMS = 8
_INSTRUCTING = 4
_ACKNOWLEDGED_WITHIN = 6
_ACKNOWLEDGED_TURNS = 2
_ACKNOWLEDGEMENT = 200
_SHORTEST = 40
_PROMPT_LINES = 60
_FIELDS = 40
_FIELD_NAME = 60
_FEWEST_PARTS = 3
_MESSAGES = 50
_FEWEST_MESSAGES = 2
_DIGITS = re.compile(r"\d+")
_PART_INTRO = 200
_PART_BEGINNING = 300
_PART_LENGTH = 60


class Turn(NamedTuple):
    """One message: its role and the texts of its content parts."""

    role: str
    parts: tuple[str, ...]

    @property
    def text(self) -> str:
        """The whole text; parts are separated by a blank line."""
        return "\n\n".join(self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Question and passages of a prompt. `confidence` is in (0, 1); `how` and `reason` are shown to users."""

    question: str | None
    contexts: tuple[Context, ...]
    confidence: float
    how: str
    reason: str


def read(turns: Sequence[Turn]) -> Reading | None:
    """Return the best reading that reaches the threshold; None when no block does."""
    return Conversation(turns).reading()


class Conversation:
    """The messages of a request; the user turn with the question is indexed once."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._turns = turns
        self._last = next(
            (i for i in reversed(range(len(turns))) if turns[i].role == "user" and turns[i].text.strip()), None
        )
        self._asking = turns[self._last].text if self._last is not None else ""
        self._looked: tuple[IndexedText, list[Block]] | None = None

    def reading(self) -> Reading | None:
        """Return the best reading that reaches the threshold; None when no block does."""
        best: ScoredBlock | None = None
        for judged in self.all(THRESHOLD):
            if best is None or judged.points > best.points:
                best = judged
                if judged.points >= _CLEAR:
                    break
        if best is None or best.points < THRESHOLD - _ROUNDING:
            return None
        return Reading(
            question=best.asked.text if best.asked is not None else None,
            contexts=best.splitting.items,
            confidence=1 / (1 + math.exp(-_SLOPE * (best.points - THRESHOLD))),
            how=f"{best.block.header or 'passages before the question'}, {best.splitting.name}",
            reason="; ".join(best.signs),
        )

    def question_without_passages(self) -> str | None:
        """Return the question of a prompt without passages: their label is followed directly by the question's."""
        text, _ = self._own()
        found = find_marks(text)
        if sum(mark.kind == "question" for mark in found) > 1:
            return None  # one of them may be a passage's
        for mark, following in pairwise(found):
            if mark.kind == "context" and mark.sure >= _NAMED and not mark.inline and following.kind == "question":
                empty = not text.text[mark.body : following.start].strip()
                asked = question_of_turn(text.text) if empty else None
                if asked is not None and asked.how != LAST_TURN:
                    return asked.text
        return None

    def is_prompt(self) -> bool:
        """Return whether the user turn is a whole prompt: it introduces passages and gives instructions."""
        text, blocks = self._own()
        if not blocks:
            return False
        position = 0
        for _ in range(_PROMPT_LINES):
            end = self._asking.find("\n", position)
            if text.is_meta(position, end if end >= 0 else len(self._asking)):
                return True
            if end < 0:
                return False
            position = end + 1
        return False

    def all(self, least: float = -math.inf) -> Iterator[ScoredBlock]:
        """Yield the blocks of all messages with at least `least` points, the likeliest message first."""
        turns, last = self._turns, self._last
        systems = [index for index, turn in enumerate(turns) if turn.role in ("system", "developer")]
        instructions = "\n".join(turns[index].text for index in systems[:_INSTRUCTING])[:SHORT_INSTRUCTIONS]
        if last is not None and len(turns[last].parts) >= _FEWEST_PARTS:
            parts = _parts(turns[last], instructions)
            if parts is not None:
                yield parts
        if (sent := _in_messages(turns, last)) is not None:
            yield sent
            return
        if (in_json := _json_prompt(self._asking)) is not None:
            yield in_json
        acknowledged = _acknowledged(turns, last)
        beside, nothing = IndexedText(instructions), IndexedText("")
        for index in _order(turns, last, systems, acknowledged):
            if len(turns[index].text) < _SHORTEST:
                continue
            own = index == last
            text, blocks = self._own() if own else _looked(turns[index].text)
            place = Place(text, own, self._asking, beside if own else nothing)
            clear = own or index in acknowledged or index in systems
            for block in blocks[:_TRIED]:
                # Text of an earlier turn is context only when a clear header says so.
                if not clear and block.sure < _ANNOUNCED:
                    continue
                judged = score_block(place, block, least)
                if judged is not None and (turns[index].role != "assistant" or not _are_citations(judged.splitting)):
                    yield judged

    def _own(self) -> tuple[IndexedText, list[Block]]:
        if self._looked is None:
            self._looked = _looked(self._asking)
        return self._looked


def _are_citations(splitting: Splitting) -> bool:
    """Whether the items are short on average: an answer lists its sources by name."""
    return sum(len(one.text) for one in splitting.items) < _CITATION * len(splitting.items)


def _looked(said: str) -> tuple[IndexedText, list[Block]]:
    text = IndexedText(said)
    return text, candidates(text)


def _order(turns: Sequence[Turn], last: int | None, systems: Sequence[int], acknowledged: Sequence[int]) -> list[int]:
    """Return the indexes of the turns in the order they are read."""
    order = [*([last] if last is not None else []), *reversed(systems[-_SYSTEMS:]), *acknowledged]
    if last is None:
        return order
    known = set(order)
    order += [
        index
        for index in reversed(range(max(last - _TURNS, 0), last))
        if turns[index].role == "user" and index not in known
    ]
    beside = [index for index in (last - 1, last + 1) if 0 <= index < len(turns)]
    return order + [index for index in beside if turns[index].role == "assistant"]


def _json_prompt(said: str) -> ScoredBlock | None:
    """Read a user turn that is one JSON object with a question field and a passages field."""
    if said.lstrip()[:1] != "{" or not isinstance(value := decoded(said), dict) or len(value) > _FIELDS:
        return None
    asked: FoundQuestion | None = None
    passages: tuple[str, Splitting | None] | None = None
    for name, one in value.items():
        kind = kind_of(str(name).replace("_", " ")[:_FIELD_NAME])
        if kind is None:
            continue
        if kind[0] == "question" and isinstance(one, str) and asked is None:
            asked = FoundQuestion(one.strip(), 1.0, f"field {name!r}")
        elif kind[0] == "context" and isinstance(one, str | list | dict) and passages is None:
            passages = name, _field(one)
    if asked is None or passages is None:
        return None
    name, splitting = passages
    if splitting is None or not splitting.items or splitting.odd:
        return None
    block = Block(0, 0, 0, 0, f"field {name!r}", 1.0)
    return ScoredBlock(_CERTAIN, asked, splitting, block, ["a JSON object with a question and passages"])


def _in_messages(turns: Sequence[Turn], last: int | None) -> ScoredBlock | None:
    """Read one message per passage before the question, with labels that differ in a number only."""
    if last is None:
        return None
    first = last
    while first > 0 and turns[first - 1].role == turns[last].role and last - first < _MESSAGES:
        first -= 1
    said = [turn.text.strip().partition("\n") for turn in turns[first:last]]
    forms = {_DIGITS.sub("", label) for label, _, _ in said}
    if len(said) < _FEWEST_MESSAGES or len(forms) != 1 or not all(body.strip() for _, _, body in said):
        return None
    label = forms.pop().strip(" #*:：")
    if len(label) > _FIELD_NAME or not _DIGITS.search(said[0][0]):
        return None
    if not IndexedText(label).any(("context", "pasted"), 0, len(label)):
        return None
    asked = question_of_turn(turns[last].text)
    contexts = tuple(Context(text=body.strip()) for _, _, body in said)
    block = Block(0, 0, 0, 0, f"messages {label!r}", 1.0)
    signs = ["a message for each passage"]
    return None if asked is None else ScoredBlock(_CERTAIN, asked, Splitting("messages", contexts, 0.9), block, signs)


def _field(value: str | list[Any] | dict[str, Any]) -> Splitting | None:
    if isinstance(value, str):
        return split(value)
    return Splitting("data", tuple(found.context for found in listed(value)), 1.0)


def _acknowledged(turns: Sequence[Turn], last: int | None) -> list[int]:
    """Return earlier user turns that the assistant only acknowledged: some apps send excerpts that way."""
    if last is None:
        return []
    found = [
        index
        for index in range(max(last - _ACKNOWLEDGED_WITHIN, 0), last)
        if turns[index].role == "user"
        and (
            (turns[index + 1].role == "user" and index + 1 == last)
            or (
                turns[index + 1].role == "assistant"
                and len(turns[index + 1].text) <= _ACKNOWLEDGEMENT
                and not is_question(turns[index].text)
            )
        )
    ]
    return found[-_ACKNOWLEDGED_TURNS:]


def _parts(turn: Turn, instructions: str) -> ScoredBlock | None:
    """Read one content part per passage, with the question in the last part."""
    parts = [one for one in turn.parts if one.strip()]
    if len(parts) < _FEWEST_PARTS:
        return None
    said, first = IndexedText(instructions), IndexedText(parts[0][:_PART_BEGINNING])
    kinds: tuple[Kind, ...] = ("context", "pasted")
    if not (said.any(kinds, 0, len(instructions)) or first.any(kinds, 0, _PART_INTRO)):
        return None
    asked = question_of_turn(parts[-1])
    body = parts[:-1]
    if len(parts[0]) < _PART_INTRO and (first.is_meta(0, _PART_BEGINNING) or parts[0].rstrip().endswith(":")):
        body = body[1:]  # a sentence in front
    if (
        asked is None
        or not body
        or not all(reads_like_a_passage(one) or len(one) > _PART_LENGTH for one in body)
        or any(IndexedText(one).is_meta(0, len(one)) for one in body)
    ):
        return None
    splitting = of_parts(body)
    if splitting is None or splitting.odd:
        return None
    block = Block(0, 0, 0, 0, "content parts", 0.8)
    return ScoredBlock(_CERTAIN, asked, splitting, block, ["a content part for each passage"])
