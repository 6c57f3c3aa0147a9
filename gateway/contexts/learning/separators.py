r"""Separators that vary in places: `\n\n[3] Title: a name\nText: ` stands between two passages, with other names.

A separator is a row of pieces, constant texts in which `MASK` stands for a number. What varies lies between two pieces,
within one line. `divide` takes time linear in its text. A bracket that is open at an edge shows that a passage was cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from gateway.contexts.learning.frames import MASK
from gateway.contexts.learning.outline import Span, masked
from monitors.records import Context

MOST_ITEMS = 1_000
"""Most passages split: far more than the limits of an extraction keep."""
_LONGEST_GAP = 600
_MOST_GAPS = 12
MOST_VARYING = 300
"""Characters of one varying part."""
_SIGN = re.compile(rf"[^\w {MASK}]")
"""What a piece has; words and numbers alone are shared by chance."""
_TOKEN = re.compile(r"[^\W\d_]+|.", re.DOTALL)
_LINE = 400
_LONGEST_SIGN = 2
"""Characters of the longest sign: looking at the end alone spares the search all that stands before it."""
_OPENS = re.compile(r"(\*\*|__|[`\"“«„\[(<{【「])\Z")
_CLOSES = re.compile(r"\*\*|__|[`\"”»\])>}】」]")
_CLOSING_OF = {"[": "]", "(": ")", "<": ">", "{": "}", "【": "】", "「": "」", "“": "”", "«": "»", "„": "“"}
_OPENING_OF = {closing: opening for opening, closing in _CLOSING_OF.items()}


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
    for found in islice(pattern(between[anchor]).finditer(region, max(start - 1, 0)), MOST_ITEMS):
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
        low = max(first, at - (MOST_VARYING if number or not touching else 0) - len(piece) - 9 * piece.count(MASK))
        found = None
        for found in pattern(piece).finditer(text, low, at):  # noqa: B007 - the last one counts
            pass
        if found is None or "\n" in text[found.end() : at] or (touching and not number and found.end() != at):
            return None
        at = found.start()
    return at


@lru_cache(256)
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
    opened, parted = _OPENS.search(before[-_LONGEST_SIGN:]), _OPENS.search(marker[-_LONGEST_SIGN:])
    closed = _CLOSES.match(behind)
    if opened is not None and _is_closed_in(opened[1], contexts[0].text):
        return True
    if parted is not None and any(_is_closed_in(parted[1], one.text) for one in contexts[1:]):
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
