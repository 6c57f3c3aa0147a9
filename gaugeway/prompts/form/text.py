"""A text with its lines and elements, and the blocks in it that may hold passages; a message as the reader sees it."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

import regex
from msgspec import Struct

from gaugeway.prompts.form.lines import Line, lines_of
from gaugeway.prompts.form.records import Span
from gaugeway.prompts.form.word_index import IndexedText
from gaugeway.prompts.notation import WIDE
from gaugeway.prompts.sizes import CROWD, FEW, LINE, PAGE, SEVERAL, WORD
from gaugeway.records import Context

_TAG = re.compile(r"<(?P<slash>/?)(?P<name>[^\W\d][\w.:-]{0,40})(?P<attributes>(?:\s[^<>]{0,600})?)(?P<empty>/?)>")
_MARKS = "[] 【】 == -- ** <> «« «» 「」 * _ […] (…) 【…】 #. #) (#)"
GENERIC = {*_MARKS.split(), *(f"item {sign}" for sign in "-*•>")}
"""Marks that passages have, too: they make a frame only where they stand equally far in."""
_PAGE = re.compile(r"<(?:!doctype|html|head|body|\?xml)\b", re.IGNORECASE)
MOST_TAGS = 2_000
MOST_RECORDS = CROWD
SENTENCE_ENDS = (
    "".join(regex.findall(r"\p{Sentence_Terminal}", "".join(map(chr, range(0xD800))) + "\uff01\uff0e\uff1f\uff61"))
    + "\u2026"
)
"""What ends a sentence in any script, as Unicode says, and an ellipsis."""
_ENDS = re.compile(rf"[{re.escape(SENTENCE_ENDS)}:;][\"'\u201d\u00bb)\]*_]{{0,3}}\s*\Z")


class Frame(NamedTuple):
    """Where records begin. `kind` is the mark's kind; `lines` are the indexes of the marks' lines."""

    kind: str
    key: str
    lines: tuple[int, ...]
    counted: bool


class Element(NamedTuple):
    """A tag's element: its name, and the offsets of the whole and of what is inside."""

    name: str
    start: int
    end: int
    inner: int
    inner_end: int


def frames_of(lines: Sequence[Line]) -> list[Frame]:
    """Return the frames of lines, in the order in which they begin."""
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    for index, line in enumerate(lines):
        for key in line.keys:
            plain = key in GENERIC or key.strip("#") == "" or key.startswith("sign ")
            groups[key, line.indent if plain else -1].append(index)
    found = [frame for (key, _), places in groups.items() for frame in _runs(key, places, lines)]
    found.sort(key=lambda one: (one.lines[0], -len(one.lines)))
    return found


def _runs(key: str, places: list[int], lines: Sequence[Line]) -> Iterator[Frame]:
    kind = "signed" if key.startswith("sign ") else lines[places[0]].kind
    if "#" in key and key.strip("#") and lines[places[0]].number is not None:
        left = places
        for _ in range(SEVERAL):
            if not left:
                break
            run = [left[0]]
            for place in left[1:]:
                if lines[place].number == (lines[run[-1]].number or 0) + 1:
                    run.append(place)
            yield Frame(kind, key, tuple(run[:MOST_RECORDS]), counted=True)
            if len(run) == len(places):
                return
            taken = set(run)
            left = [place for place in left if place not in taken]
        if key[0] in "#(" or key.startswith(("item", "~#", "~(")):
            return
    if len(places) > 1 and kind not in ("rule", "close"):
        yield Frame(kind, key, tuple(places[:MOST_RECORDS]), counted=False)


def elements_of(text: str) -> list[Element]:
    """Return the elements of tags that are closed, in the order in which they begin."""
    if "</" not in text or _PAGE.search(text, 0, PAGE):
        return []
    open_tags: dict[str, list[re.Match[str]]] = defaultdict(list)
    found: list[Element] = []
    tags = list(islice(_TAG.finditer(text), MOST_TAGS))
    closed_again: list[bool] = []
    behind: dict[str, str] = {}
    for tag in reversed(tags):
        closed_again.append(bool(behind.get(tag["name"])))
        behind[tag["name"]] = tag["slash"]
    for tag, again in zip(tags, reversed(closed_again), strict=True):
        name = tag["name"]
        if tag["slash"] and again and len(open_tags[name]) == 1:
            continue  # a passage says so: the last of several ends it
        if tag["empty"]:
            continue
        if not tag["slash"]:
            open_tags[name].append(tag)
        elif open_tags[name]:
            opening = open_tags[name].pop()
            shape = name.rstrip("0123456789")  # <p1>, <p2>: elements of one name
            found.append(Element(shape or name, opening.start(), tag.end(), opening.end(), tag.start()))
    return sorted(found, key=lambda one: (one.start, -one.end))


class Block(NamedTuple):
    """A stretch that may hold all passages, and how it is divided.

    `opener` and `closer` are the lines beside it, None at the text's ends; an opener may be the block's own tag.
    """

    start: int
    end: int
    opener: Line | None
    closer: Line | None
    split: str
    spans: tuple[Span, ...]
    marks: tuple[int, ...]
    frame: Frame | None = None
    inside: bool = False
    attributes: tuple[str, ...] = ()
    data: tuple[Context, ...] = ()


class Text(Struct):
    """A text with its lines and elements, read once."""

    raw: str
    lines: list[Line]
    elements: list[Element]
    parents: list[int]
    gaps: list[int]
    """Where the lines begin that may be a passage's first, behind a blank one."""
    first_of: dict[str, int] = {}
    """Where the first line of a form begins, by the most specific shape."""
    parts: tuple[Span, ...] = ()
    """Where the content parts of a message begin and end, if there are three or more."""

    @classmethod
    def of(cls, raw: str) -> Text:
        """Read the form of a text."""
        elements, lines = elements_of(raw), lines_of(raw)
        first_of = {line.keys[0]: line.start for line in reversed(lines) if line.keys}
        return cls(raw, lines, elements, _parents(elements), [line.start for line in _gaps(raw, lines)], first_of)

    def is_before_blank(self, index: int) -> bool:
        """Whether a blank line follows a line."""
        return index + 1 < len(self.lines) and self.lines[index + 1].after_blank

    def line_at(self, at: int) -> int:
        """Return the index of the first line that begins at an offset or behind it."""
        return bisect_left(self.lines, at, key=lambda line: line.start)

    def line_from(self, at: int) -> Line | None:
        """Return the first line that begins at an offset or behind it; None behind the last one."""
        index = self.line_at(at)
        return self.lines[index] if index < len(self.lines) else None


def _parents(elements: Sequence[Element]) -> list[int]:
    found: list[int] = []
    stack: list[int] = []
    for number, one in enumerate(elements):
        while stack and elements[stack[-1]].end <= one.start:
            stack.pop()
        found.append(stack[-1] if stack else -1)
        stack.append(number)
    return found


def _gaps(raw: str, lines: Sequence[Line]) -> list[Line]:
    """Return the lines behind a blank one at which a passage may begin: it goes on behind a heading or a colon.

    Nor does one begin with the first item of a list, with a table, with code or inside of it.
    """
    found, fenced = [], False
    for before, line in pairwise(lines):
        fenced ^= raw.startswith("```", before.start)
        heads = before.kind in ("heading", "title") or raw[before.start : before.end].rstrip().endswith((":", "："))
        listed = raw[line.start] == "|" or raw.startswith("```", line.start)
        if line.kind == "item" or line.number == 1:
            listed = listed or (before.kind != "item" and set(before.keys).isdisjoint(line.keys))
        if line.after_blank and not (fenced or heads or listed):
            found.append(line)
    return found


class Seen(Struct):
    """A message's text with its words, and where it stands; `beside` are the system's texts."""

    text: Text
    words: IndexedText
    own: bool
    role: str
    beside: IndexedText
    _meta: dict[tuple[int, int], bool] = {}

    def is_meta(self, start: int, end: int) -> bool:
        """Whether a stretch instructs the model about its task."""
        found = self._meta.get((start, end))
        if found is None:
            found = self._meta[start, end] = self.words.is_meta(start, end)
        return found


def ends_a_sentence(text: str) -> bool:
    """Whether a text ends like a sentence."""
    return _ENDS.search(text[-WORD:]) is not None


def weight(text: str) -> int:
    """Length in letters, where a syllable or a word (Chinese, Japanese, Korean) counts for three."""
    return sum(FEW if ord(character) >= WIDE else 1 for character in text[:LINE])
