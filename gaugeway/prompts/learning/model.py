"""A learned template: the constant texts of a prompt, its slots, and how the passages in one of them are separated."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from gaugeway.prompts import MOST_PIECES
from gaugeway.prompts.form.divisions import divided_as
from gaugeway.prompts.form.lines import shape
from gaugeway.prompts.learning.frames import MASK, PART
from gaugeway.prompts.learning.outline import Span, masked
from gaugeway.prompts.sizes import CROWD, PARAGRAPH
from gaugeway.records import Context

_LONGEST_GAP = 600
_MOST_GAPS = 12
MOST_VARYING = 300
"""Characters of one varying part."""
_SIGN = re.compile(rf"[^\w {MASK}]")
"""What a piece has; words and numbers alone are shared by chance."""
_TOKEN = re.compile(r"[^\W\d_]+|.", re.DOTALL)
_LINE = PARAGRAPH
_SIGN_LENGTH = 2
"""Characters of the longest sign: looking at the end alone spares the search all that stands before it."""
_OPENS = re.compile(r"(\*\*|__|[`\"“«„\[(<{【「])\Z")
_CLOSES = re.compile(r"\*\*|__|[`\"”»\])>}】」]")
_CLOSING_OF = {"[": "]", "(": ")", "<": ">", "{": "}", "【": "】", "「": "」", "“": "”", "«": "»", "„": "“"}
_OPENING_OF = {closing: opening for opening, closing in _CLOSING_OF.items()}
SlotName: TypeAlias = Literal["passages", "question", "other"]
_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")
_JSON_STRING = re.compile(r'(?:"\s*:|\[)\s*"\Z')
_OPENS_A_QUESTION = frozenset("¿¡")
DIGITS = 9
"""Digits of a number that are read: it fits into a machine word."""
WHOLE = "whole"
"""The reading of a region as one passage."""
_SOFT = frozenset({"blank-line", "lines"})
"""Readings that cannot identify a single passage."""


class Separator(NamedTuple):
    """`between` two passages, and the pieces of it that stand in front of the first one."""

    head: tuple[str, ...]
    between: tuple[str, ...]


def separators_of(gaps: Sequence[str], before: str) -> Iterator[tuple[Separator, int]]:
    r"""Yield what all gaps between passages share, and how many characters of it end the text before the first one.

    First what this text shares, too: two gaps may have the same words by chance. Nothing where passages touch varying
    text.

    >>> next(separators_of(["\n\n[2] Oil: ", "\n\n[3] Ice and snow: "], "Notes:\n\n[1] Rain: "))
    (Separator(head=('\n\n[\x05] ', ': '), between=('\n\n[\x05] ', ': ')), 12)
    """
    if not gaps or max(map(len, gaps)) > _LONGEST_GAP:
        return
    tail = before[-_LONGEST_GAP:]
    first, *others = (_TOKEN.findall(masked(gap)) for gap in gaps[:_MOST_GAPS])
    front = _TOKEN.findall(masked(before[-max(map(len, gaps)) :]))
    for compared in ([*others, front], others) if others else ([front],):
        pieces = _shared(first, compared)
        if pieces and _touches("".join(first), pieces):
            yield from _headed(pieces, tail)


def _touches(gap: str, pieces: Sequence[str]) -> bool:
    """Whether the pieces begin where a passage ends and end where one begins."""
    begun = not gap[: gap.index(pieces[0])].strip()
    return begun and gap.rstrip(" ").endswith(pieces[-1].rstrip(" ")) and any("\n" in piece for piece in pieces)


def _headed(pieces: tuple[str, ...], tail: str) -> Iterator[tuple[Separator, int]]:
    for index, piece in enumerate(pieces):
        for opening in dict.fromkeys((piece, piece.lstrip("\n"))):
            head = (opening, *pieces[index + 1 :])
            if opening and (start := _backward(tail, len(tail), head, touching=True)) is not None:
                yield Separator(head, pieces), len(tail) - start
                return
    yield Separator((), pieces), 0


def divide(separator: Separator, region: str) -> list[Span] | None:
    """Return where the passages of a region begin and end; None when it does not have this form.

    The longest piece and the first one stand nowhere but between passages: elsewhere, the separator is not all there is
    to it.
    """
    start = _forward(region, 0, separator.head)
    if start is None:
        return None
    between = separator.between
    anchor = max(range(len(between)), key=lambda index: ("\n" in between[index], len(between[index])))
    spans: list[Span] = []
    for found in islice(pattern(between[anchor]).finditer(region, max(start - 1, 0)), MOST_PIECES):
        if found.start() < start:
            continue
        begin = _backward(region, found.start(), between[:anchor], start)
        end = _forward(region, found.end(), between[anchor + 1 :])
        if begin is None or end is None:
            return None
        spans.append((start, begin))
        start = end
    if _SIGN.search(between[0].strip()) and len(
        pattern(between[0]).findall(region, spans[0][1] if spans else start)
    ) > len(spans):
        return None
    return [*spans, (start, len(region))]


def _shared(first: list[str], others: Sequence[list[str]]) -> tuple[str, ...]:
    """Return the runs of tokens that all lists have, in order."""
    runs = [first]
    for other in others:
        at, kept = 0, list[list[str]]()
        for run in runs:
            for match in SequenceMatcher(None, run, other[at:], autojunk=False).get_matching_blocks():
                if match.size:
                    kept.append(run[match.a : match.a + match.size])
                    end = at + match.b + match.size
            at = end if kept else at
        runs = kept
    pieces = ("".join(run) for run in runs)
    return tuple(piece for piece in pieces if _SIGN.search(piece))


def _forward(text: str, at: int, pieces: Sequence[str]) -> int | None:
    """Return the end of the pieces from `at` on, each on the line on which the one before ends; None without them."""
    for piece in pieces:
        found = pattern(piece).search(text, at, at + MOST_VARYING + len(piece))
        if found is None or "\n" in text[at : found.start()]:
            return None
        at = found.end()
    return at


def _backward(text: str, at: int, pieces: Sequence[str], first: int = 0, *, touching: bool = False) -> int | None:
    """Return where the pieces before `at` begin, each on the line on which the next begins; None without them.

    With `touching` the last one ends at `at`.
    """
    for number, piece in enumerate(reversed(pieces)):
        low = max(first, at - (MOST_VARYING if number or not touching else 0) - len(piece) - DIGITS * piece.count(MASK))
        found = None
        for found in pattern(piece).finditer(text, low, at):  # noqa: B007 - the last one counts
            pass
        if found is None or "\n" in text[found.end() : at] or (touching and not number and found.end() != at):
            return None
        at = found.start()
    return at


@lru_cache(CROWD)
def pattern(words: str) -> re.Pattern[str]:
    """Return the regular expression for a text with masked numbers; it matches in linear time."""
    return re.compile(re.escape(words).replace(MASK, r"(\d+)"))


def are_cut_open(before: str, marker: str, behind: str, contexts: Sequence[Context]) -> bool:
    """Whether a passage closes what the text in front of it opens, or the last opens what the text behind it closes.

    `before` is in front of the first passage, `marker` in front of each other one.

    >>> are_cut_open("Sources: [", "", "", [Context(text="a.md] The mill turns.")])
    True
    """
    if not contexts:
        return False
    opened, parted = _OPENS.search(before[-_SIGN_LENGTH:]), _OPENS.search(marker[-_SIGN_LENGTH:])
    closed = _CLOSES.match(behind)
    if opened is not None and _is_closed_in(opened[1], contexts[0].text):
        return True
    if parted is not None and any(_is_closed_in(parted[1], passage.text) for passage in contexts[1:]):
        return True
    return closed is not None and _is_opened_in(closed[0], contexts[-1].text)


def belongs_behind(before: Sequence[str], literal: str) -> str:
    r"""Return a constant text without the closing brackets at its begin that no constant text before it opens.

    They belong to what varies: titles that all end in a version.

    >>> belongs_behind(("",), ")\n"), belongs_behind(("[",), "]\n")
    ('\n', ']\n')
    """
    open_ = "".join(before)
    while literal and (opening := _OPENING_OF.get(literal[0])) and open_.count(opening) <= open_.count(literal[0]):
        literal = literal[1:]
    return literal


def _is_closed_in(sign: str, text: str) -> bool:
    closing = _CLOSING_OF.get(sign)
    if closing is None:
        return text.count(sign) % 2 == 1
    line = text[:_LINE].partition("\n")[0]
    at = line.find(closing)
    return at >= 0 and not 0 <= line.find(sign) < at


def _is_opened_in(sign: str, text: str) -> bool:
    opening = _OPENING_OF.get(sign)
    if opening is None:
        return text.count(sign) % 2 == 1
    line = text[-_LINE:].rpartition("\n")[2]
    at = line.rfind(opening)
    return at >= 0 and line.find(sign, at) < 0


class Split(msgspec.Struct, frozen=True):
    """How passages are separated.

    `kind` "marker": `words` stands between two, with `frames.MASK` for a number; with `counted` the numbers count up,
    and a number out of turn makes it uncertain. The last passage may end with `closing`, which the marker begins with.
    "part": each is a content part. "lines", "paragraphs": between line breaks, or blank lines. "reading": as the
    structure reader does it under the name `words`. Constant texts within one passage are `header` in front of its text
    and `trailer` behind it; as a "separator" they are its head and what stands between passages.
    """

    kind: Literal["marker", "part", "lines", "paragraphs", "reading", "separator"]
    words: str = ""
    counted: bool = False
    header: tuple[str, ...] = ()
    trailer: tuple[str, ...] = ()
    closing: str = ""


class LearnedTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A template learned from an app's traffic. Others store and show it; what it means is this package's business.

    `literals` has one entry more than `slots`; the text between two of them is a slot. Each text begins with a mark
    (`frames.Frame`). `version` is a hash of literals, slots and split. `learned_at` is a time of the learner's clock,
    `seen` the number of requests it was learned from.
    """

    app: str
    kind: str
    version: str
    literals: tuple[str, ...]
    slots: tuple[SlotName, ...]
    split: Split
    seen: int
    learned_at: float
    state: Literal["learned", "confirmed", "rejected"] = "learned"
    stale: bool = False


class Found(NamedTuple):
    """What a template found in a frame. `spans` are the offsets of the slots in the frame's text."""

    template: LearnedTemplate
    question: str | None
    contexts: tuple[Context, ...]
    spans: tuple[tuple[int, int], ...]


def version_of(literals: tuple[str, ...], slots: tuple[str, ...], split: Split) -> str:
    """Return the short hash that names a template."""
    body = msgspec.json.encode((literals, slots, split))
    return blake2b(body, digest_size=6).hexdigest()


def slots_in(literals: tuple[str, ...], passages: int, text: str) -> tuple[tuple[int, int], ...] | None:
    """Return start and end of the slots in a text; None when the literals do not occur in this order.

    In front of the slot with the passages the first place of each literal counts, behind it the last: passages are data
    and may contain any of them.
    """
    if not text.startswith(literals[0]) or not text.endswith(literals[-1]):
        return None
    starts: list[int] = []
    ends: list[int] = []
    position = len(literals[0])
    for literal in literals[1 : passages + 1]:
        starts.append(position)
        found = text.find(literal, position)
        if found < 0:
            return None
        ends.append(found)
        position = found + len(literal)
    last = len(text) - len(literals[-1])
    behind: list[tuple[int, int]] = []
    for literal in reversed(literals[passages + 1 : -1]):
        found = text.rfind(literal, position, last)
        if found < 0:
            return None
        behind.append((found + len(literal), last))
        last = found
    if last < position:
        return None
    behind.append((position, last))
    return (*zip(starts, ends, strict=True), *reversed(behind))


def match(template: LearnedTemplate, text: str) -> Found | None:
    """Return what the template finds in a frame's text, or None."""
    passages = template.slots.index("passages")
    spans = slots_in(template.literals, passages, text)
    if spans is None:
        return None
    start, end = spans[passages]
    contexts = split(template.split, text[start:end], _first_number(template.split, template.literals[passages]))
    before, behind = template.literals[passages : passages + 2]
    if not contexts or are_cut_open(before, template.split.words, behind, contexts):
        return None
    if _JSON_STRING.search(before) and behind[:1] == '"':
        contexts = tuple(map(_unescaped, contexts))
    asked = next((index for index, slot in enumerate(template.slots) if slot == "question"), None)
    question = "" if asked is None else _question(text, spans[asked], template.literals[asked])
    return Found(template, question, contexts, spans) if question else None


def _unescaped(passage: Context) -> Context:
    """Return a passage that stood in a string of JSON as what that string says."""
    try:
        return replace(passage, text=json.loads(f'"{passage.text}"')) if "\\" in passage.text else passage
    except ValueError:
        return passage


@lru_cache(CROWD)
def _first_number(how: Split, literal: str) -> int | None:
    """Return the number of the first passage from the marker at the end of the text before the slot."""
    if not how.counted:
        return None
    line = how.words.rfind("\n", 0, how.words.index(MASK)) + 1
    found = re.compile(pattern(how.words[line:]).pattern + r"\Z").search(literal)
    return None if found is None else int(found[1][:DIGITS])


def _question(text: str, span: tuple[int, int], literal: str) -> str:
    """Return the content of the question's slot.

    A sign that opens a question is part of it, though all questions share it. Where the slot begins within a line of
    words, as in `Ticket #4711 from Ann`, the rest of that line is none of it.
    """
    start, end = span
    while start and text[start - 1] in _OPENS_A_QUESTION:
        start -= 1
    said = text[start:end].strip()
    first, _, rest = said.partition("\n")
    line = literal.rpartition("\n")[2].strip()
    if rest.strip() and line and (line[-1].isalnum() or line[-1] == "#") and not first.endswith(("?", "？")):
        return rest.strip()
    return said


def split(how: Split, region: str, number: int | None = None) -> tuple[Context, ...] | None:
    """Return the passages of a region, possibly none; None when it does not have this form.

    `number` is that of the first passage, where it is known.
    """
    if not region or region.isspace():
        return ()
    if how.kind == "reading":
        return _as_read(how, region)
    if how.kind == "separator":
        spans = divide(Separator(how.header, how.trailer), region)
        texts = [region[start:end].strip() for start, end in spans or ()]
        return tuple(Context(text=text) for text in texts) if texts and all(texts) else None
    chunks = chunks_of(how, region, number)
    if chunks is None:
        return None
    found = []
    for chunk in chunks:
        if (item := _item(how, chunk)) is None:
            return None
        if item.text:
            found.append(item)
    return tuple(found)


def chunks_of(how: Split, region: str, number: int | None = None) -> list[str] | None:
    """Split a region at the separator of passages; None when the separator is ambiguous.

    `number` is that of the first passage, where it is known.
    """
    if how.kind == "part":
        return region.split(PART, MOST_PIECES)
    if how.kind == "lines":
        return region.split("\n", MOST_PIECES)
    if how.kind == "paragraphs":
        return _PARAGRAPH.split(region, MOST_PIECES)
    chunks = _at_markers(how, region, number)
    if chunks is None:
        return None
    if how.closing:
        chunks[-1] = chunks[-1].rstrip().removesuffix(how.closing)
    return chunks


def _as_read(how: Split, region: str) -> tuple[Context, ...] | None:
    found = divided_as(region, how.words)
    if how.words == WHOLE and "\n" in region.strip():
        return None  # learned where there was one passage, and these may be several
    if found is None and how.words in _SOFT and _is_one(how.words, region.strip()):
        found = divided_as(region, WHOLE)
    return None if found is None else found.items


def _is_one(words: str, region: str) -> bool:
    """Whether a region that could not be split may be a single passage without a marker."""
    first = region.partition("\n")[0]
    return (not first or shape(first)[0] != "field") and not (words == "lines" and "\n" in region)


def _item(how: Split, chunk: str) -> Context | None:
    """Strip the constant texts from a passage; None when they do not occur in it."""
    start, end = 0, len(chunk)
    source: str | None = None
    for literal in how.header:
        found = chunk.find(literal, start)
        if found < 0:
            return None
        source = source or chunk[start:found].strip()
        start = found + len(literal)
    for literal in reversed(how.trailer):
        found = chunk.rfind(literal, start, end)
        if found < 0:
            return None
        end = found
    text = chunk[start:end].strip()
    return Context(text=text, source=source or None)


def _at_markers(how: Split, region: str, number: int | None) -> list[str] | None:
    chunks: list[str] = []
    start = 0
    for marker in islice(pattern(how.words).finditer(region), MOST_PIECES):
        if how.counted:
            named = int(marker[1][:DIGITS])
            if number is not None and named != number + 1:
                return None  # a passage has numbers of its own: which of them begin a passage is uncertain
            number = named
        chunks.append(region[start : marker.start()])
        start = marker.end()
    return [*chunks, region[start:]]
