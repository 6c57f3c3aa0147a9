"""Where the records of a prompt's passages begin and end: a passage with its number, title, source, id and score.

What stands between two passages is the end of one record and the beginning of the next. So it shows which of the lines
before the first passage and after the last one belong to their records: those of the same form. Pure but for
`RecordForms`, and the work is bounded: some lines beside the passages are compared with some between them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice, pairwise
from typing import Any

from gaugeway.prompts.sizes import CROWD, MANY, PAGE, PARAGRAPH, SEVERAL, WORD
from gaugeway.text.cache import TextCache

WINDOW = PAGE
"""Characters read before the first passage, after the last one and at both ends of what is between two."""
MAX_FORMS = 4
"""Texts between passages that are compared, for one prompt."""
MAX_PROMPTS = CROWD
"""Prompts whose forms, and pairs of speakers, that are remembered."""

_LINES, _UNLIKE, _WORDS, _FIELDS, _TURNS = MANY, 2, 2 * SEVERAL, SEVERAL, CROWD
_LONGEST = PARAGRAPH  # internal bound: characters of a line that can belong to a record
"""Characters of a line that may be a title without any mark."""
_OPENING = WORD
_CONSTANT = 2
_NUMBERS = re.compile(r"\d+(?:[.,]\d+)*")
_TURN = re.compile(
    r"^[ \t]*[*#\[<]{0,3}(?P<name>[^\W\d_][\w ]{0,30}?)[*\]>]{0,3}[:\uff1a][*]{0,2}[ \t]*\S", re.MULTILINE
)
_WORD = re.compile(r"\S+")
_OPENS = frozenset("\"'“„«(<[`*_")
_ENDS_A_SENTENCE = frozenset(".:!?;,\u3002\uff1a\uff01\uff1f\uff1b\u3001")
_FIELD = re.compile(
    r"\W*\d{1,4}\W.*|\W*[^\W\d][\w /-]{0,30}\W{0,3}[:\uff1a=]\W*\w.*|[^\w\s]*<?[\w-]+[^>]*=[^>]*>|.*\w\.[a-z]{2,5}\b.*|.*://.*"
)
"""A line that names a value: it begins with a number, has a label or an attribute, or names a file or an address."""


_NUMBER = re.compile(r"\W{0,4}\d{1,4}\W{0,4}")


_turns: TextCache[tuple[tuple[int, str], ...]] = TextCache()
"""Where lines of texts, which recur, begin with a speaker's name, and that name."""


class RecordForms:
    """Remembers forms that repeat within a prompt, for requests of the same app in which they occur once.

    These are what stood between two passages, and who spoke in a conversation that was part of the prompt.
    """

    def __init__(self) -> None:
        self._between: dict[tuple[str, str], list[str]] = {}
        self._speakers: dict[tuple[str, str, str], None] = {}
        self._texts: dict[tuple[str, int], int] = {}

    def of(self, app: str, text: str, own: Sequence[str]) -> Sequence[str]:
        """Return what to compare with: the request's `own` texts between passages or, without, the remembered ones."""
        key = app, text[:_OPENING].split(None, 1)[0] if text[:_OPENING].strip() else ""
        if own:
            _bounded(self._between, MAX_PROMPTS)
            known = self._between.setdefault(key, [])
            known += [form for form in own if form not in known][: MAX_FORMS - len(known)]
        return own or self._between.get(key, ())

    def recurs(self, app: str, text: str) -> bool:
        """Whether two requests of the app had the same text before: passages may be the same twice."""
        key = app, hash(text)
        times = self._texts.pop(key, 0)
        _bounded(self._texts, MAX_PROMPTS)
        self._texts[key] = min(times + 1, _CONSTANT)
        return times == _CONSTANT

    def without_dialogue(self, app: str, text: str) -> str:
        """Cut out the turns of a conversation: lines of two speakers in alternation, the first of whom speaks twice."""
        if (turns := _turns.get(text)) is None:
            turns = tuple((turn.start(), turn["name"]) for turn in islice(_TURN.finditer(text), _TURNS))
            _turns.put(text, turns)
        first = 0
        while first + 1 < len(turns):
            names = turns[first][1], turns[first + 1][1]
            last = first + 1
            while last + 1 < len(turns) and turns[last + 1][1] == turns[last - 1][1]:
                last += 1
            if names[0] != names[1] and (last > first + 1 or (app, *names) in self._speakers):
                _bounded(self._speakers, MAX_PROMPTS)
                self._speakers[app, *names] = None
                end = text.find("\n\n", turns[last][0])
                return text[: turns[first][0]] + (text[end:] if end >= 0 else "")
            first = last
        return text


def _bounded(known: dict[Any, Any], most: int) -> None:
    """Drop the oldest entry of a full one."""
    if len(known) >= most:
        del known[next(iter(known))]


def between(text: str, places: Sequence[tuple[int, int]]) -> list[str]:
    """Return different texts between passages that stand at `places`, in order: at most `MAX_FORMS`, cut inside."""
    found: dict[str, None] = {}
    for (_, end), (start, _) in pairwise(places):
        if start > end:
            far = start - end > 2 * WINDOW
            found[text[end : end + WINDOW] + "\n" + text[start - WINDOW : start] if far else text[end:start]] = None
            if len(found) == MAX_FORMS:
                break
    return list(found)


def record_edges(before: str, after: str, forms: Sequence[str], names: Sequence[str] = ()) -> tuple[int, int]:
    """Return how many characters at the end of `before` and at the beginning of `after` belong to records.

    `before` and `after` are what surrounds the passages; `forms` are texts between passages. Without any, lines beside
    the only passage belong to its record if they hold one of its `names` (id, source) or, next to it, look like fields.
    """
    written = [form for form in forms if not form.isspace()]
    if forms and not written:
        return 0, 0
    above, below = before[-WINDOW:].split("\n")[-_LINES:][::-1], after[:WINDOW].split("\n")[:_LINES]
    if not forms:
        return _fields(above, names), _fields(below, names)
    reached = [_edges(above, below, form.split("\n")) for form in written]
    return max((head for head, _ in reached), default=0), max((tail for _, tail in reached), default=0)


def _edges(above: list[str], below: list[str], form: list[str]) -> tuple[int, int]:
    """Return the same for one form; all are lines, those nearest to the passages first."""
    if len(form) == 1:
        return _inline(above[0], form[0], behind=False), _inline(below[0], form[0], behind=True)
    heads = [(len(form) - 1 - number, line) for number, line in enumerate(form[: -_LINES - 1 : -1])]
    heads, tails = heads[: len(form) - 1], list(enumerate(form[: min(_LINES, len(form) - 1)]))
    divide = _divide(form)
    head, first = _reach(above, heads, divide or 0, behind=False)
    tail, last = _reach(below, tails, divide or 0, behind=True)
    claimed = first.keys() & last.keys()
    if not any(first[line] or last[line] for line in claimed):
        return head, tail
    middle = min(first) if divide is None else divide  # both claim a line, which belongs to the nearer passage
    head, _ = _reach(above, [head for head in heads if head[0] >= middle], middle, behind=False)
    tail, _ = _reach(below, [tail for tail in tails if tail[0] < middle], middle, behind=True)
    return head, tail


def _divide(form: list[str]) -> int | None:
    """Return the first line of the second record: behind the widest blank space; None if none is the widest."""
    filled = [-1 if form[0].strip() else 0, *(number for number, line in enumerate(form) if line.strip())]
    filled = [*dict.fromkeys(filled), len(form) - 1]
    spaces = [(later - earlier, later) for earlier, later in pairwise(filled)]
    widest = max(spaces)
    return widest[1] if [width for width, _ in spaces].count(widest[0]) == 1 else None


def _reach(near: list[str], form: list[tuple[int, str]], divide: int, *, behind: bool) -> tuple[int, dict[int, bool]]:
    """Return how many characters of the lines beside a passage have the form, and whether the form's lines vary.

    Lines of the form may be missing beside the passage, which has `_UNLIKE` lines of its own at most in a row. A line
    without marks has the form of one on the passage's side of `divide`.
    """
    reach = at = read = unlike = 0
    matched: dict[int, bool] = {}
    for number, line in enumerate(near):
        read += len(line) + (number > 0)
        blank = not line.strip()
        if number == 0 and not blank and (inline := _inline(line, form[0][1], behind=behind)) < len(line.strip()):
            return inline, {}
        like = (_alike(line, text, titles=(place < divide) == behind) for place, text in form[at:])
        place = next((at + ahead for ahead, found in enumerate(like) if found), None)
        if place is None:
            unlike += 1
            if blank or not matched or unlike > _UNLIKE:
                break
            continue
        if blank and unlike:
            break
        at = place + 1
        if not blank:
            reach, unlike = read, 0
            matched[form[place][0]] = line != form[place][1]
    return reach, matched


def _inline(line: str, form: str, *, behind: bool) -> int:
    """Return how many characters at the end of a line, or `behind` a passage at its beginning, have the form."""
    if not form.strip():
        return 0
    ends = [word.end() if behind else word.start() for word in _WORD.finditer(line)]
    mark = _mask(form).split()[-1 if behind else 0]
    parts = [
        line[:place] if behind else line[place:] for place in (ends[:_WORDS] if behind else ends[: -_WORDS - 1 : -1])
    ]
    edges = [_mask(part).split()[-1 if behind else 0] for part in parts]
    same = [len(part) for part, edge in zip(parts, edges, strict=True) if edge == mark and _alike(part, form)]
    like = [len(part) for part, edge in zip(parts, edges, strict=True) if _framed(edge, mark) and _alike(part, form)]
    return (same or like or [0])[0]


def _alike(line: str, form: str, *, titles: bool = False) -> bool:
    """Whether two lines have one form: the same text but for numbers, the same marks or labels, or both are titles."""
    line, form = line.strip(), form.strip()
    if not line or not form:
        return line == form
    if (line := _mask(line)) == (form := _mask(form)) or _framed(line, form):
        return True
    if not titles or max(len(line), len(form)) > _LONGEST or (":" in line and ":" in form):  # two labels
        return False
    return _ends(line) == _ends(form)


def _framed(line: str, form: str) -> bool:
    """Whether two lines begin with the same mark or label, or end with the same word and mark."""
    if (line[1:2] == "/") != (form[1:2] == "/"):  # of a tag, one opens and one closes
        return False
    begins, ends = line[: shared_length(line, form)], line[::-1][: shared_length(line[::-1], form[::-1])]
    return any(map(_is_mark, begins)) or (any(map(_is_mark, ends)) and any(map(str.isalnum, ends)))


def shared_length(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Return the length of the beginning that two texts share."""
    differ = (place for place, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)
    return next(differ, min(len(one), len(other)))


def _ends(line: str) -> tuple[str, str]:
    """Return how a line begins and ends, where that is with a mark no title has there."""
    first, last = line[0], line[-1]
    return (first if _is_mark(first) and first not in _OPENS else ""), (last if last in _ENDS_A_SENTENCE else "")


def _is_mark(character: str) -> bool:
    return not character.isalnum() and not character.isspace()


def _mask(line: str) -> str:
    return _NUMBERS.sub("0", line.strip())


def _fields(lines: list[str], names: Sequence[str]) -> int:
    """Return how many characters of the lines next to a passage name values; the lines are the nearest first."""
    reach = read = 0
    direct = True
    for number, line in enumerate(lines[:_FIELDS]):
        read += len(line) + (number > 0)
        if any(name in line for name in names):
            reach = read
        elif number or line.strip():
            direct = direct and (_FIELD if number else _NUMBER).fullmatch(line[:_LONGEST]) is not None
            reach = read if direct else reach
    return reach
