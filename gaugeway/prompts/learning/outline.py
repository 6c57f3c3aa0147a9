"""Turns the text a request shares with others into literals and slots: finds where constant text begins and ends.

Text shared by chance ("The ", "?" at the end of each question) belongs to the slots. A constant text therefore ends
with a line, a label or an opening sign, and begins with a line, a label or a closing sign.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, TypeAlias

from msgspec import Struct

from gaugeway.prompts.form.text import SENTENCE_ENDS
from gaugeway.prompts.learning.frames import END, MARKS, MASK, SYSTEM, USER
from gaugeway.prompts.sizes import FEW

Span: TypeAlias = tuple[int, int]

_TERMINAL = frozenset(SENTENCE_ENDS)
_BLANK = " \t"
_SIGN = re.compile(r"[^\w\s,'’-]|[\n-]|(?<![^\W_])'|'(?![^\W_])")
_LETTER = re.compile(r"[^\W\d_]")
_WORD = re.compile(r"[^\W\d_]+")
_NUMBER = re.compile(r"\d+")
_COUNTED = re.compile(r"\d+[ \t]*\Z|[ \t]*")
"""Text that belongs to the last sign of a literal: a number, as in "#1 ", or blanks."""
_RULE = re.compile(r"([^\w\s])\1\1")
_STRUCTURE = re.compile(r"[\n:：<>\[\]{}()（）【】「」『』\"“”„«»|=#*`~_/\\]")
_QUOTES = "\"'`“”„«»‘’"


class Outline(Struct, frozen=True):
    """A text as literals with slots between them: `literals[i]` precedes slot i, the last one follows all slots."""

    text: str
    literals: tuple[Span, ...]

    @property
    def slots(self) -> list[Span]:
        """Start and end of each slot."""
        pairs = zip(self.literals, self.literals[1:], strict=False)
        return [(left[1], right[0]) for left, right in pairs]

    def literal(self, index: int) -> str:
        """Return the text of a literal."""
        start, end = self.literals[index]
        return self.text[start:end]

    def words(self) -> tuple[str, ...]:
        """Return the texts of all literals."""
        return tuple(self.text[start:end] for start, end in self.literals)


Strength: TypeAlias = Literal["strong", "loose", "any"]


def outline(text: str, runs: Iterable[Span], strength: Strength = "strong") -> Outline | None:
    """Return the outline of `text` given the spans that it shares with others; None when nothing varies in it.

    "loose": two signs are a literal as well, "any": one or a line break is. For short texts compared with many.
    """
    spans = list(runs)
    kept: list[Span] = []
    for index, (start, end) in enumerate(spans):
        begin = 0 if index == 0 else head(text[start:end])
        stop = end - start if index == len(spans) - 1 else tail(text[start:end])
        if begin < stop and _is_strong(text[start + begin : start + stop], strength):
            kept.append((start + begin, start + stop))
    if not kept or kept[0][0] != 0 or kept[-1][1] != len(text) or kept[0] == kept[-1]:
        return None
    return Outline(text, tuple(kept))


def masked(text: str) -> str:
    """Return the text with its numbers masked, for comparisons that ignore numbers."""
    return _NUMBER.sub(MASK, text)


def has_letter(text: str) -> bool:
    """Whether there is a letter in the text."""
    return _LETTER.search(text) is not None


def tail(literal: str) -> int:
    """Return where a literal before a slot ends: the words after its last sign belong to the slot.

    >>> "Question: What is the"[:tail("Question: What is the")]
    'Question: '
    """
    end = len(literal)
    for match in reversed(list(_SIGN.finditer(literal))):
        at = match.start()
        sign, behind = literal[at], literal[at + 1 : at + 2]
        if sign == "-" and not (behind == "" or behind.isspace() or literal[at - 1 : at] in ("", "-")):
            continue
        if sign in _QUOTES and behind.isspace() and behind != "\n":
            break  # a closing quote: the words behind it are the template's
        if sign in _TERMINAL and not (behind.isspace() or behind == "" or not behind.isascii()):
            continue
        if sign in _TERMINAL and behind == "" and at and literal[at - 1].isalnum():
            continue  # the text may go on in any way
        counted = _COUNTED.match(literal, at + 1)
        return counted.end() if counted else at + 1
    return end


def head(literal: str) -> int:
    r"""Return where a literal after a slot begins: words and one sentence-ending sign belong to the slot.

    >>> "the kettle? \nContext: "[head("the kettle? \nContext: "):]
    '\nContext: '
    >>> "?. Information: "[head("?. Information: "):]
    '. Information: '
    """
    first = next((m.start() for m in _SIGN.finditer(literal) if literal[m.start()] != "-"), None)
    if first is None:
        return 0
    sign = literal[first]
    if sign in _TERMINAL:
        rest = first + 1
        line = re.match(r"[ \t]*(?=[\n\x01-\x04])", literal[rest:])
        return rest + line.end() if line else rest
    words = literal[:first]
    if sign == "\n" or sign in MARKS or sign in _QUOTES:
        return first if words.strip() or sign == "\n" else 0
    if words and not words[0].isspace():
        return len(words.split(None, 1)[0])
    return 0


def _is_strong(literal: str, strength: Strength) -> bool:
    """Whether a literal can anchor a slot: it has a frame mark, a label or several words, or is a rule."""
    if any(mark in literal for mark in MARKS):
        return True
    words = _WORD.findall(literal)
    signs = len(_STRUCTURE.findall(literal))
    if strength == "any" and signs:
        return True
    if not words:
        loose = strength == "loose" and signs > 1 and _STRUCTURE.search(literal.strip()) is not None
        return loose or _RULE.search(literal) is not None
    return len(words) >= 2 * FEW or _STRUCTURE.search(literal) is not None


def is_rule(literal: str) -> bool:
    """Whether a literal consists of signs only."""
    return not has_letter(literal) and not any(mark in literal for mark in (SYSTEM, USER, END))
