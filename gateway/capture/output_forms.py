"""Auxiliary calls by the form of what they get and give, in whatever words they are asked for.

No user gets what a program asks for in this form: one of the labels or a number of the scale that the instructions
demand; the fields that they name, with data in them; questions as the answer to a question, in its words; anything to
a conversation that is quoted as data. An instruction that asks to answer somebody is not looked at, nor is what a user
says when the instructions are a message of their own: people ask for labels, titles and questions as well.
"""

from __future__ import annotations

import re
from itertools import islice, pairwise
from typing import Any

from gateway.capture.demanded_output import begins_with_a_demand, choices_in, json_in, speaks_of_output
from gateway.capture.instructions import Role, is_a_programs, is_transcript, restricts
from gateway.capture.output_fields import Field, holds_prose, is_answer, table, verdict_of
from gaugeway.prompts.parse import leaves

MAX_INSTRUCTION = 3_000
"""Characters of an instruction in which labels, scales and fields are looked for, half of them at either end."""
_DATA, _COMPARED = 60_000, 4_000
_LABEL, _TITLE, _QUESTION = 32, 80, 500
_LEAST_QUESTIONS = 3
_ITEMS, _SENTENCES, _MOST_LEAVES = 24, 100, 2_000
_ADDITION = 18
"""Characters of a sentence that only adds to the one before: "One word."."""
_PROSE_WORDS, _SENTENCE_WORDS = 12, 4
_FULL_STOPS, _QUESTION_MARKS = (".", "!", "\u3002"), ("?", "\uff1f")
_COLONS = (":", "\uff1a")
_FIRST_WIDE = "\u0e00"
_NUMBER = re.compile(r"\d{1,3}(?:[.,]\d{1,3})?")
_SCALE = re.compile(
    r"(?<![\w.,\[(])([01])(?:\s?\([^()\d\n]{1,40}\))?\s?(?:[-\u2013\u2014~/\uff5e]|[^\W\d]{1,4})\s?(\d{1,3})(?![\w\])])"
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|[\n\u3002\uff01\uff1f]+")
_WORD, _CHOICES = re.compile(r"[^\W_]{4,}"), re.compile(r"[^\W_]+")
_ITEM = re.compile(r"\A(?:[-*\u2022]|\d{1,2}[.)\u3001])\s*")
_SPEAKER = re.compile(
    r"^[ \t]*([^\W\d_][^\n:\uff1a.?!]{0,20}?)[ \t]?(?::(?=[ \t]|[^\x00-\x7f])|\uff1a)[ \t]*(?=\S)", re.MULTILINE
)
_MARKS = " \t\r\n.\u3002!\"'`*"


def by_form(systems: list[str], user: list[str], sent: list[str], response: str) -> str | None:
    """Return the kind of call; `sent` is the user's text as it was, empty where passages were found. Linear time."""
    said = response.rpartition("</think>")[2].strip()
    role: Role = "system" if any(map(str.strip, systems)) else "user"
    instruction = "\n".join(systems if role == "system" else user)
    if len(instruction) > MAX_INSTRUCTION:
        instruction = f"{instruction[: MAX_INSTRUCTION // 2]}\n{instruction[-MAX_INSTRUCTION // 2 :]}"
    kind = _of_output(instruction, said) or _of_data("\n".join(sent)[-_DATA:].strip(), said, alone=role == "user")
    return kind if kind is not None and instruction.strip() and is_a_programs(instruction, role) else None


def is_data(value: Any) -> bool:
    """Whether a JSON answer is pure data: no field named like an answer, and no prose."""
    for name, leaf in islice(leaves(value), _MOST_LEAVES):
        words = len(leaf.split(None, _PROSE_WORDS))
        if (
            words >= _PROSE_WORDS
            or (words >= _SENTENCE_WORDS and leaf.rstrip()[-1:] in _FULL_STOPS)
            or (words > 1 and holds_prose(name))
        ):
            return False
    return value is not None


def _of_output(instruction: str, said: str) -> str | None:
    """Return the kind of an output that the instruction names: a label, a number of a scale, fields."""
    if isinstance(fields := json_in(said), dict) and fields:
        if any(key not in instruction or is_answer(key) for key in fields) or not is_data(fields):
            return None
        verdict = verdict_of(Field(key, isinstance(value, str)) for key, value in fields.items())
        demanded = "json" in instruction.lower() or instruction.endswith("}")
        if not (demanded or speaks_of_output(instruction, instruction.find(next(iter(fields))))):
            return None
        return "extraction" if verdict is None else None if verdict.by_response else verdict.kind
    bare = said.strip(_MARKS)
    if _NUMBER.fullmatch(bare):
        value = float(bare.replace(",", "."))
        scales = islice(_SCALE.finditer(instruction), _ITEMS)
        return "grading" if any(float(scale[1]) <= value <= float(scale[2]) for scale in scales) else None
    if bare and len(bare) <= _LABEL and "\n" not in bare:
        return "routing" if _is_a_choice(instruction, bare.lower()) else None
    return None


def _is_a_choice(instruction: str, label: str) -> bool:
    """Whether the instruction demands one of some labels: in its sentence, or in a short one behind it."""
    whole = re.compile(rf"\b{re.escape(label)}\b" if label < _FIRST_WIDE else re.escape(label))
    if any(label in options for options in choices_in(instruction)):
        return True
    sentences = [*_SENTENCE.split(instruction.lower())[:_SENTENCES], ""]
    for sentence, following in pairwise(sentences):
        if whole.search(sentence) is None:
            continue
        if label in table().values and not table().values.isdisjoint(set(_CHOICES.findall(sentence)) - {label}):
            return True
        listed = _ITEM.sub("", sentence).startswith(label) and _ITEM.match(sentence) is not None
        near = instruction.lower() if listed else f"{sentence} {following if len(following) <= _ADDITION else ''}"
        if restricts(near) or begins_with_a_demand(sentence):
            return True
    return False


def _of_data(data: str, said: str, *, alone: bool) -> str | None:
    """Return the kind of an output that answers no user: a conversation is only quoted, or a question only repeated."""
    items = _items(said)
    asks = bool(items) and all(item.endswith(_QUESTION_MARKS) for item in items)
    labels = list(islice(_SPEAKER.finditer(data), _SENTENCES))
    speakers = [label[1] for label in labels]
    known = is_transcript(data)
    is_quoted = (known and len(speakers) > 1) or len(set(speakers)) < len(speakers)
    label = data.rpartition("\n")[2].strip(" #*")
    begins = label.endswith(_COLONS) and label[:-1] not in speakers if alone else _SPEAKER.match(data) is not None
    if is_quoted and speakers[-1] != speakers[0] and begins and (asks or not _ends_with_a_question(data, labels)):
        short = len(said) <= _TITLE and "\n" not in said and not said.endswith((*_FULL_STOPS, ","))
        return "follow_ups" if asks else "tags" if len(items) > 1 else "title" if short else "summary"
    if not asks:
        return None
    words, own = _words(data), list(map(_words, items))
    if len(items) == 1:
        return "standalone_question" if is_quoted and 2 * len(words & own[0]) >= len(own[0]) else None
    repeats = all(words & one for one in own) and 3 * sum(len(words & one) for one in own) >= sum(map(len, own))
    is_a_question = len(data) <= _QUESTION and any(mark in data for mark in _QUESTION_MARKS)
    return "multi_query" if len(items) >= _LEAST_QUESTIONS and is_a_question and repeats else None


def _ends_with_a_question(data: str, labels: list[re.Match[str]]) -> bool:
    """Whether behind a conversation something is asked under a label of its own: "New question: ..."."""
    last = labels[-1]
    once = sum(label[1] == last[1] for label in labels) == 1 < len(labels) - 1
    return once and any(mark in data[last.end() :] for mark in _QUESTION_MARKS)


def _items(said: str) -> list[str]:
    """Return the entries of a JSON list, or the lines of a text without their numbers."""
    value = json_in(said)
    lines = said.split("\n", _ITEMS) if value is None else [leaf for _, leaf in islice(leaves(value), _ITEMS)]
    return [_ITEM.sub("", line.strip()) for line in lines if line.strip()]


def _words(text: str) -> set[str]:
    """Return the beginnings of the words of a text, or its pairs of characters where there are no blanks."""
    text = text[-_COMPARED:].lower()
    if max(text, default="") >= _FIRST_WIDE:
        return {f"{first}{second}" for first, second in pairwise(text) if first.isalnum() and second.isalnum()}
    return {word[:5] for word in _WORD.findall(text)}
