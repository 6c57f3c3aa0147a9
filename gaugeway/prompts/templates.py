"""Passages inside the prompts that known frameworks and apps build by default (`known_prompts.toml`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gaugeway.data_files import table
from gaugeway.exchange import Request, Response
from gaugeway.prompts import Evidence, Extraction, extraction, known_splitters, system_texts, user_texts
from gaugeway.prompts.form.reader import turns_of
from gaugeway.prompts.known_splitters import Splitter
from gaugeway.text.phrases import Phrases

_FIELD = re.compile(r"\{(contexts|question|any|end)\}")
_ENDS = ("", "assistant:", "ai:")

HEAD = 262_144
"""Characters of a message in which a template must begin: bounds the cost of long prompts."""


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


def _template(row: dict[str, Any]) -> Template:
    separator, name = row.pop("separator", None), row.pop("split", "")
    if separator is not None:
        return Template(**row, split=known_splitters.by(separator))
    form = _KNOWN["records"].get(name)
    return Template(**row, split=known_splitters.Records(**form).split if form else getattr(known_splitters, name))


_KNOWN = table("gaugeway.prompts", "known_prompts.toml")
TEMPLATES = [_template(row) for row in _KNOWN["templates"]]
_TEMPLATES = [(template, template.opening, template.role == "user") for template in TEMPLATES]
_OPENINGS = Phrases(opening for _, opening, _ in _TEMPLATES)


class TemplateExtractor:
    """Tries each known template on the messages it applies to: the last user turn, or the system messages."""

    evidence: Evidence = "known prompt"

    def extract(self, request: Request, response: Response) -> Extraction | None:  # noqa: ARG002 - the port's shape
        turns, said = user_texts(request), system_texts(request)
        if len(turns) == 1 and "<|" in turns[0]:  # a conversation rendered with a chat template's tokens
            every = turns_of(request)
            turns = [turn.text for turn in reversed(every) if turn.role == "user" and turn.text.strip()]
            said = [turn.text for turn in every if turn.role == "system"]
        users = [(text, _OPENINGS.found_in(text[:HEAD])) for text in turns[:1]]
        systems = [(text, _OPENINGS.found_in(text[:HEAD])) for text in said]
        for template, opening, in_user_turn in _TEMPLATES:
            for text, openings in users if in_user_turn else systems:
                if opening in openings and (found := _found(template, text, turns)) is not None:
                    return found
        return None


def _found(template: Template, text: str, turns: Sequence[str]) -> Extraction | None:
    match = template.match(text)
    if match is None:
        return None
    question, passages = match
    if question is None or not question.strip():
        index = 0 if template.asked == "last" else 1
        question = turns[index] if index < len(turns) else None
    found = extraction(
        question, template.split(passages), source=template.product, marker=f"{template.product}: {template.name}"
    )
    # Words without a passage in them are another prompt than the one we know (or its texts stand elsewhere).
    return found if found.contexts or not passages.strip() else None
