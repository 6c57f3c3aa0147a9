"""An index of the words that name parts of prompts in a text, built in one pass: later queries are look-ups.

They stand in `words.json`, in the languages prompts are written in. A trailing star matches any ending; words of
scripts without spaces are matched anywhere.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from functools import cache
from typing import Literal

import ahocorasick_rs

from gaugeway.data_files import table
from gaugeway.prompts.sizes import CHAPTER, LABEL, PAGE, SEVERAL

Kind = Literal[
    "context",
    "pasted",
    "weak",
    "question",
    "answer",
    "instruction",
    "history",
    "below",
    "points",
    "task",
    "unknowing",
    "address",
    "request",
    "equipment",
]

HEAD = CHAPTER
TAIL = CHAPTER
"""Characters indexed at the beginning and the end of a long text: the middle is passages."""

_LISTS: dict[Kind, list[str]] = table("gaugeway.prompts.form", "words.json")
UNSPACED = 0x0590
"""Code points from here on (Hebrew, Arabic, Thai, CJK): words take particles, or have no spaces between them."""


def _kinds_by_word() -> dict[str, tuple[list[Kind], bool]]:
    found: dict[str, tuple[list[Kind], bool]] = {}
    for kind, listed in _LISTS.items():
        for word in "|".join(listed).split("|"):
            kinds, _ = found.setdefault(word.rstrip("*"), ([], word.endswith("*")))
            if kind not in kinds:
                kinds.append(kind)
    return found


_WORDS = _kinds_by_word()
_NAMES = list(_WORDS)
_KINDS = [tuple(kinds) for kinds, _ in _WORDS.values()]
_STEMS = [stem for _, stem in _WORDS.values()]
_FREE = [ord(name[0]) >= UNSPACED for name in _NAMES]


def _within(name: str) -> list[tuple[int, int, list[Kind]]]:
    if ord(name[0]) >= UNSPACED:
        parts = {part for part in _WORDS if part != name and part in name}
    else:
        words_of = name.split()
        parts = {
            " ".join(words_of[low:high]) for low in range(len(words_of)) for high in range(low + 1, len(words_of) + 1)
        }
    found = [(name.find(part), len(part), _WORDS[part][0]) for part in parts if part != name and part in _WORDS]
    return sorted(found, key=lambda one: one[:2])


_INNER = [_within(name) for name in _NAMES]
"""Entries contained in longer entries: the search finds the longest, and those inside it count as well."""

_ENTRIES = list(zip(_KINDS, _STEMS, _FREE, _INNER, strict=True))

_LAST_WORD = [name.rfind(" ") + 1 for name in _NAMES]
"""Where the last word of an entry begins; 0 for a single word."""


@cache
def _search() -> ahocorasick_rs.AhoCorasick:
    """The search for all entries at once. Built with its first use, as the gateway process rarely needs it."""
    return ahocorasick_rs.AhoCorasick(
        _NAMES,
        matchkind=ahocorasick_rs.MatchKind.LeftmostLongest,
        implementation=ahocorasick_rs.Implementation.DFA,  # a third faster than the default, for 6 MB
    )


def _lowered(text: str) -> str:
    """Lower case with the same offsets: letters whose lower case is longer (such as İ) are left unchanged."""
    if text.isascii():
        return text.lower()
    lower = text.replace("İ", "i").lower()
    if len(lower) == len(text):
        return lower
    return "".join(letter if len(letter.lower()) != 1 else letter.lower() for letter in text)


_ARTICLES = (
    *("the", "this", "these", "those", "any", "your", "user's", "der", "die", "den", "dem"),
    *("le", "la", "les", "el", "los", "il", "i", "os", "o", "de"),
)


_NONE: tuple[list[int], list[int]] = ([], [])


def _is_between(starts: list[int], start: int, end: int) -> bool:
    index = bisect_left(starts, start)
    return index < len(starts) and starts[index] < end


def _word_end(part: str, at: int) -> int:
    while at < len(part) and part[at].isalnum():
        at += 1
    return at


def _matches(part: str) -> list[tuple[int, int, int]]:
    try:
        return _search().find_matches_as_indexes(part)
    except UnicodeEncodeError:  # half of a surrogate pair: no word has one
        return _search().find_matches_as_indexes(part.encode("utf-8", "replace").decode())


class IndexedText:
    """A text and the positions of words that name parts of prompts. Offsets are in characters."""

    __slots__ = ("_merged", "_spans", "lower", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.lower = _lowered(text)
        self._spans: defaultdict[Kind, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        self._merged: dict[tuple[Kind, ...], list[int]] = {}
        if not text:
            return
        if len(text) <= HEAD + TAIL:
            self._scan(self.lower, 0)
        else:
            self._scan(self.lower[:HEAD], 0)
            self._scan(self.lower[-TAIL:], len(text) - TAIL)

    def _scan(self, part: str, offset: int) -> None:  # noqa: C901 - calls would double its time
        # One loop without calls: most of the time spent on a prompt is spent here.
        last = len(part)
        spans = self._spans
        hidden: list[int] = []
        for index, start, stop in _matches(part):
            kinds, stem, free, within = _ENTRIES[index]
            end = stop
            if not free:
                if start and part[start - 1].isalnum():
                    if (second := _LAST_WORD[index]) and part[start + second].isalnum():
                        hidden.append(start + second)
                    continue  # letters inside another word
                if stop < last and part[stop].isalnum():
                    if not stem:
                        if second := _LAST_WORD[index]:
                            hidden.append(start + second)
                        continue
                    end = _word_end(part, end)
            at = start + offset
            for kind in kinds:
                starts, ends = spans[kind]
                starts.append(at)
                ends.append(end + offset)
            for inner, length, inner_kinds in within:
                at = start + offset + inner
                for kind in inner_kinds:
                    starts, ends = spans[kind]
                    if not starts or starts[-1] < at:
                        starts.append(at)
                        ends.append(at + length)

        for at in hidden:
            self._look_behind(part, at, offset)

    def _look_behind(self, part: str, at: int, offset: int) -> None:
        """Index the word at `at` that was hidden by a multi-word entry that did not match on word boundaries."""
        found = _matches(part[at : at + LABEL])
        if not found or found[0][1]:
            return
        index, _, stop = found[0]
        kinds, stem, _, _ = _ENTRIES[index]
        if at + stop < len(part) and part[at + stop].isalnum():
            if not stem:
                return
            stop = _word_end(part, at + stop) - at
        for kind in kinds:
            starts, ends = self._spans[kind]
            place = bisect_left(starts, at + offset)
            if place == len(starts) or starts[place] != at + offset:
                starts.insert(place, at + offset)
                ends.insert(place, at + stop + offset)

    def has(self, kind: Kind, start: int, end: int) -> bool:
        """Return whether a word of the kind begins between two offsets."""
        return _is_between(self._spans.get(kind, _NONE)[0], start, end)

    def any(self, kinds: tuple[Kind, ...], start: int, end: int) -> bool:
        """Return whether a word of any of the kinds begins between two offsets."""
        return _is_between(self.starts(kinds), start, end)

    def starts(self, kinds: tuple[Kind, ...]) -> list[int]:
        """Return the offsets of the words of the kinds, sorted."""
        merged = self._merged.get(kinds)
        if merged is None:
            merged = self._merged[kinds] = sorted(at for kind in kinds for at in self._spans.get(kind, _NONE)[0])
        return merged

    def found(self, kind: Kind, start: int, end: int) -> list[tuple[int, int]]:
        """Return (start, end) of the words of the kind that begin between two offsets."""
        starts, ends = self._spans.get(kind, _NONE)
        low, high = bisect_left(starts, start), bisect_left(starts, end)
        return list(zip(starts[low:high], ends[low:high], strict=True)) if low < high else []

    def begins(self, kind: Kind, at: int) -> bool:
        """Return whether a word of the kind begins exactly at an offset."""
        return _is_between(self._spans.get(kind, _NONE)[0], at, at + 1)

    def addresses(self, start: int, end: int) -> bool:
        """Return whether a line begins with an instruction to the model."""
        text = self.text
        limit = min(end, start + LABEL, len(text))
        if not self.has("address", start, limit):
            return False
        at = start
        while at < limit and not text[at].isalnum():
            at += 1
        if at < limit and text[at].isdigit():
            while at < limit and not text[at].isalpha():
                at += 1
        return at < limit and self.begins("address", at)

    def is_meta(self, start: int, end: int) -> bool:
        """Return whether a span instructs the model about its task, by at least two of four signs.

        Signs: it says what to do if the answer is unknown, it begins with an instruction, it refers to the given
        context or documents, it mentions a question and an answer.
        """
        end = min(end, start + (PAGE // 2))
        signs = int(self.addresses(start, end)) + int(self.has("unknowing", start, end))
        signs += int(self.has("question", start, end) and self.has("answer", start, end))
        if self.has("request", start, end):
            signs += 1 + int(self.any(("answer", "question"), start, end))
        if signs <= 1 and self._refers(start, end):
            signs += 1
        return signs > 1

    def _refers(self, start: int, end: int) -> bool:
        """Whether sources are mentioned with `the`, `this`, `above`, `provided` ... a few words before."""
        for kind in ("context", "pasted", "weak", "question"):
            for at, _ in self.found(kind, start, end)[:SEVERAL]:
                before = self.lower[max(start, at - LABEL) : at].rstrip()
                pointed = self.any(("points", "below"), max(start, at - LABEL), at)
                if pointed or before.endswith(_ARTICLES):
                    return True
                if ord(self.lower[at]) >= UNSPACED and self.any(("points", "below"), start, end):
                    return True
        return False
