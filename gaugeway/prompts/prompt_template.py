"""Prompt templates: those of known products, made of literals and fields, and those that users configure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from gaugeway.records import Context

_FIELD = re.compile(r"\{(contexts|question|any|end)\}")
_ENDS = ("", "assistant:", "ai:")

HEAD = 262_144
"""Characters of a message in which a template must begin: bounds the cost of long prompts."""

Splitter = Callable[[str], Iterator[Context]]


@dataclass(frozen=True, slots=True)
class Template:
    """A known prompt. `shape` is its fixed words with the fields {contexts}, {question}, {any} and {end} between them.

    Literals only, no pattern language: the time to read a prompt grows with its length only. Those in front of
    {contexts} are looked for forwards, one behind the other; those after it backwards from the end. So a template takes
    its first opening words and its last closing ones: passages are data and may contain either. The first literal may
    stand anywhere, unless a field is in front of it; {end} means that nothing but blanks follows. Without {question}
    the question is a user's turn: the last one, or with `asked="earlier"` the one before it.
    """

    product: str
    name: str
    role: Literal["user", "system"]
    shape: str
    split: Splitter
    asked: Literal["last", "earlier"] = "last"
    _before: tuple[tuple[str, str], ...] = field(init=False)
    _after: tuple[tuple[str, str], ...] = field(init=False)

    def __post_init__(self) -> None:
        """Cut the shape into (field, literal) pairs before the contexts and (literal, field) pairs after them."""
        opening, closing = self.shape.split("{contexts}")
        before = ["", *_FIELD.split(opening)] if not opening.startswith("{") else _FIELD.split(opening)[1:]
        after = _FIELD.split(closing)[0:]
        object.__setattr__(self, "_before", tuple(zip(before[::2], before[1::2], strict=True)))
        after = [*after, ""] if len(after) % 2 else after
        object.__setattr__(self, "_after", tuple(pair for pair in zip(after[::2], after[1::2], strict=True) if pair[0]))

    @property
    def opening(self) -> str:
        """The first literal. A text without it in its first `HEAD` characters does not match."""
        return self._before[0][1]

    def match(self, text: str) -> tuple[str | None, str] | None:
        """Return (question, passages) of `text`, or None when it does not match."""
        question: str | None = None
        position, limit = 0, HEAD
        for name, literal in self._before:
            start = text.find(literal, position, limit)
            if start < 0:
                return None
            if name == "question":
                question = text[position:start]
            position, limit = start + len(literal), len(text)
        end = len(text)
        for literal, name in reversed(self._after):
            start = text.rfind(literal, position, end)
            if start < 0:
                return None
            behind = text[start + len(literal) : end]
            if name == "end" and behind.strip().lower() not in _ENDS:
                return None
            if name == "question":
                question = behind
            end = start
        return question, text[position:end]


class UserTemplate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A prompt of the user's app. `pattern` has a group `contexts` and maybe one `question`; a dot matches line breaks.

    A group `contexts` that matches repeatedly gives one piece each time; every piece is split at `separator`, or where
    `separator_pattern` matches. Its groups `id`, `source`, `title` and `score` say it of the passage that follows. With
    `read_as` the reader of structure separates them, by its splitting of that name. With `clean` that reader takes
    titles, sources and the like off each passage.
    """

    name: str
    pattern: str
    separator: str = "\n\n"
    separator_pattern: str | None = None
    read_as: str | None = None
    clean: bool = False
