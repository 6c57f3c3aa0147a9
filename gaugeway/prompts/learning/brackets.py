"""Detects brackets and quotes opened by constant text and closed in a passage: part of an item was cut off."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gaugeway.records import Context

_LINE = 400
_SIGN = 2
"""Characters of the longest sign: looking at the end alone spares the search all that stands before it."""
_OPENS = re.compile(r"(\*\*|__|[`\"“«„\[(<{【「])\Z")
_CLOSES = re.compile(r"\*\*|__|[`\"”»\])>}】」]")
_CLOSING_OF = {"[": "]", "(": ")", "<": ">", "{": "}", "【": "】", "「": "」", "“": "”", "«": "»", "„": "“"}
_OPENING_OF = {closing: opening for opening, closing in _CLOSING_OF.items()}


def are_cut_open(before: str, marker: str, behind: str, contexts: Sequence[Context]) -> bool:
    """Whether a passage closes what the text in front of it opens, or the last opens what the text behind it closes.

    `before` is in front of the first passage, `marker` in front of each other one.

    >>> are_cut_open("Sources: [", "", "", [Context(text="a.md] The mill turns.")])
    True
    """
    if not contexts:
        return False
    opened, parted = _OPENS.search(before[-_SIGN:]), _OPENS.search(marker[-_SIGN:])
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
