"""Splits passages at fences, header lines between rules, headings, table rows and lettered labels."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Sequence
from itertools import islice

from gateway.contexts.structure.markers import MOST_MARKERS
from gateway.contexts.structure.word_index import HEAD

_PAIR = 2
_FEWEST_CELLS = 3
_HEADER_LENGTH = 200
_FENCED = re.compile(
    r"\s*(?:(?!`{3}|\"{3}|'{3}|~{3})[^\n]{1,200}\n)?[ \t]*(?P<fence>`{3}|~{3}|\"{3}|'{3})\w{0,20}[ \t]*\n"
)
_FENCES = ("```", "~~~", '"""', "'''")
_HEADER_LINE = re.compile(
    r"^(?P<opens>={2,40}|-{2,40}|<{2,8}|\*{2,40}|~{2,40})[ \t]?[^\n=<>*~]{2,80}?[ \t]?"
    r"(?P<closes>={2,40}|-{2,40}|>{2,8}|\*{2,40}|~{2,40})[ \t]*$",
    re.MULTILINE,
)
_HEADING = re.compile(r"(?P<level>#{2,6})[ \t][^\n]{1,160}\n")
_HEADING_OR_FENCE = re.compile(r"^(?:(?P<level>#{1,6})[ \t]|(?P<fence>`{3}|~{3}))", re.MULTILINE)
_FENCE_LINE = re.compile(r"^[ \t]{0,12}```(?P<language>\w{0,20})", re.MULTILINE)
_FENCES_READ = 400
_PROSE = ("", "text", "txt", "markdown", "md", "plaintext")
_TABLE_RULE = re.compile(r"[ \t]*\|?(?:[ \t]*:?-{2,80}:?[ \t]*\|){1,20}(?:[ \t]*:?-{2,80}:?)?[ \t]*")
_FEWEST_WORDS = 4
_SHARE = 0.5
_LETTER = re.compile(
    r"[ \t]*(?P<head>[\[(*#]{0,3}(?:[^\W\d_]{3,20} )?)A(?P<close>[\])]?\*{0,2}[.:)]\*{0,2}|\])(?=[ \t\n])"
)
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def fenced(text: str) -> list[str] | None:
    """Return the contents of consecutive fences, each after at most one short line; None for fewer than two.

    Other text between the fences makes it None too.
    """
    head = text[:_HEADER_LENGTH]
    if not any(fence in head for fence in _FENCES):
        return None
    pieces: list[str] = []
    position = 0
    while len(pieces) < MOST_MARKERS and (opening := _FENCED.match(text, position)) is not None:
        closing = re.compile(rf"\n[ \t]*{re.escape(opening['fence'])}[ \t]*(?=\n|\Z)").search(text, opening.end() - 1)
        if closing is None:
            return None
        pieces.append(text[opening.end() : max(closing.start(), opening.end())])
        position = closing.end()
    return pieces if len(pieces) >= _PAIR and not text[position:].strip() else None


def is_fenced(text: str) -> bool:
    """Return whether a text consists of consecutive fences only, each after at most one short line."""
    return fenced(text.strip()) is not None


def first_header(text: str, limit: int) -> int | None:
    """Return the offset of the first header line whose form is repeated; None for none."""
    headers = list(islice(_HEADER_LINE.finditer(text, 0, limit), MOST_MARKERS))
    forms = [(one["opens"], one["closes"]) for one in headers]
    return next((one.start() for one, form in zip(headers, forms, strict=True) if forms.count(form) > 1), None)


def sections(text: str) -> list[str] | None:
    """Split before headings of the first line's level, such as `## Title`; None for fewer than two. Titles are kept.

    Headings in code fences belong to the passage.
    """
    level = _HEADING.match(text)
    if level is None:
        return None
    starts, code = [0], False
    for line in _HEADING_OR_FENCE.finditer(text, level.end()):
        if line["fence"]:
            code = not code
        elif not code and line["level"] == level["level"] and len(starts) < MOST_MARKERS:
            starts.append(line.start())
    if len(starts) < _PAIR:
        return None
    return [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]


def fences_in(raw: str) -> list[tuple[int, bool]]:
    """Return the offsets of the fences at the text's beginning, and whether each names a programming language."""
    if "```" not in raw:
        return []
    found = islice(_FENCE_LINE.finditer(raw, 0, HEAD), _FENCES_READ)
    return [(fence.start(), fence["language"].lower() not in _PROSE) for fence in found]


def is_in_code(fences: Sequence[tuple[int, bool]], at: int) -> bool:
    """Whether an offset lies in a code fence, one that names its language."""
    before = bisect(fences, (at, False))
    return before % 2 == 1 and fences[before - 1][1]


def rows(text: str) -> list[str] | None:
    """Return the text cell of each row of a Markdown table; None when no column holds running text.

    The header row is left out. Every line must have the same number of cells, three or more.
    """
    lines = [line.strip() for line in islice(text.strip().split("\n"), MOST_MARKERS + _PAIR)]
    if len(lines) < _PAIR or not all("|" in line for line in lines):
        return None
    bare = _TABLE_RULE.fullmatch(lines[1]) is None
    if not bare:
        lines = lines[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    widths = {len(row) for row in cells}
    if len(widths) != 1 or len(cells) < (_PAIR if bare else 1) or widths.pop() < _FEWEST_CELLS:
        return None
    column = max(range(len(cells[0])), key=lambda index: sum(len(row[index]) for row in cells))
    texts = [row[column] for row in cells]
    words = all(len(one.split()) >= _FEWEST_WORDS or len(one) > len(one.encode()) // 2 > _FEWEST_WORDS for one in texts)
    whole = sum(len(one) for one in texts) >= _SHARE * sum(len(cell) for row in cells for cell in row)
    return texts if words and whole else None


def lettered(text: str) -> list[tuple[str | None, str]] | None:
    """Split before lines that begin with `A:`, `B:` ... or `Passage A:`, `Passage B:` ...; None for fewer than two."""
    first = _LETTER.match(text)
    if first is None:
        return None
    pieces: list[tuple[str | None, str]] = []
    start, letter = first.end(), "A"
    for following in _ALPHABET[1:]:
        at = text.find(f"\n{first['head']}{following}{first['close']}", start)
        if at < 0:
            break
        pieces.append((letter, text[start:at]))
        start, letter = at + 1 + len(first["head"]) + 1 + len(first["close"]), following
    pieces.append((letter, text[start:]))
    return pieces if len(pieces) >= _PAIR else None
