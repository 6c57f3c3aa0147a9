"""What an instruction asks a model to produce, in anybody's words: a search query, a title, a grade, keywords ...

A call is auxiliary when three things come together, near the beginning of the instruction or at its end:

1. A directive: a verb and what is to be produced ("write three search queries", "Fasse das Gespräch zusammen").
2. Signs that a program wrote it, as many as the role needs: it speaks of "the user", restricts the output ("only the
   query"), has labelled slots or tags for its input, ends in a label to be completed ("Keywords:"), names a purpose
   (retrieval, an index) or gives the model a part to play. A system message is written by an app and needs one; a user
   message needs two, since people ask for titles, keywords and summaries as well.
3. Nothing that asks for an answer, too: an assistant that rewrites a question and then answers it gives an answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from gaugeway.data_files import table
from gaugeway.text.cache import TextCache

Role = Literal["system", "user"]
LENGTH_OF_START = 4
_PART = re.compile(r"\{([a-z_]+)\}")
_TABLE = table("gateway.capture", "instructions.toml")
ENDINGS: list[str] = _TABLE["standalone_question_labels"]
PRODUCTS: list[dict[str, Any]] = _TABLE["products"]
_BEFORE_A_COMMAND = frozenset(_TABLE["before_a_command"])


class Directive(NamedTuple):
    """A pattern that is tried at words that begin with one of `starts`, in texts with words of all groups of `stems`.

    The data file says the rest. Without `starts` the language has no blanks between words, and the pattern is looked
    for everywhere.
    """

    kind: str
    stems: tuple[frozenset[str], ...]
    starts: frozenset[str]
    pattern: re.Pattern[str]
    needs: re.Pattern[str] | None
    imperative: bool
    roots: tuple[str, ...]


def _filled(said: str | list[str]) -> str:
    """Join the alternatives of a pattern and fill in its parts."""
    joined = said if isinstance(said, str) else "|".join(said)
    return _PART.sub(lambda part: _filled(_TABLE["parts"][part[1]]), joined)


def _sentence(said: str | list[str]) -> str:
    """Let a blank stand for a blank or a line break."""
    return _filled(said).replace(" ", r"\s")


def _directive(row: dict[str, Any]) -> Directive:
    starts = frozenset(word[:LENGTH_OF_START] for word in _filled(row.get("starts", "")).split())
    groups = [group.split("|") for group in row["stems"].split(" & ")]
    return Directive(
        row["kind"],
        tuple(frozenset(stem[:LENGTH_OF_START] if starts else stem for stem in group) for group in groups),
        starts,
        re.compile(_sentence(row["pattern"]), re.MULTILINE),
        re.compile(_sentence(row["needs"])) if "needs" in row else None,
        row.get("imperative", True),
        tuple(row["roots"].split("|")) if "roots" in row else (),
    )


def _sign(row: dict[str, Any]) -> re.Pattern[str]:
    alternatives = [_sentence(row["pattern"])] if "pattern" in row else []
    alternatives += [_filled(row["as_written"])] if "as_written" in row else []
    return re.compile("|".join(alternatives), re.MULTILINE if row.get("by_lines") else 0)


_SIGNS = {name: _sign(row) for name, row in _TABLE["signs"].items()}
DIRECTIVES = tuple(map(_directive, _TABLE["directives"]))
"""In the order in which they are tried; the first that fits names the kind."""

_START: dict[Role, int] = {"system": 900, "user": 520}
_END = 320
"""Characters at the beginning and the end of a text in which a directive may stand. What users send varies, so that its
verdict cannot be kept, and is mostly passages: less of it is read.
"""

_NEEDED = {"system": 1, "user": 2}
_DUTIES: frozenset[str] = frozenset(["routing", "summary", "follow_ups", "title", "tags", "keywords", "translation"])
"""What a long system message may name as one of an assistant's many duties."""

_CLOSED: frozenset[str] = frozenset(["grading", "rerank", "routing", "extraction"])
"""Kinds whose output some prompts call an answer: `Answer (yes or no):`."""

_SLOTS_THAT_COUNT = 2
_SHORT = 1500
_LEAD = 240
"""Characters in which most prompts that want an answer say so, in these words: the rest of the work is spared them."""

_PLAINLY = ("context to answer the", "question-answering", "answer the question based", "answer the question using")

_start = itemgetter(slice(LENGTH_OF_START))
_AT: dict[str, list[int]] = {}
for _index, _one in enumerate(DIRECTIVES):
    for _begin in _one.stems[0] if _one.starts else ():
        _AT.setdefault(_begin, []).append(_index)
_FIRST = frozenset(_AT)
_VERBS = frozenset().union(*(directive.starts for directive in DIRECTIVES))
_STEMS = frozenset().union(*(group for directive in DIRECTIVES for group in directive.stems))
_ANYWHERE = tuple(directive for directive in DIRECTIVES if not directive.starts)
_QUOTES = (("\u2019", "'"), ("\u2018", "'"), ("\u201c", '"'), ("\u201d", '"'))


class _Zones(NamedTuple):
    """A text in small letters: its beginning, its end, and both as one."""

    start: str
    end: str
    whole: bool

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.start,) if self.whole else (self.start, self.end)


class WordStarts:
    """Finds which of some beginnings the words of a text have: a look at these spares most texts everything else.

    What was found in a long line is kept: instructions and the first passages behind them recur.
    """

    def __init__(self, wanted: frozenset[str]) -> None:
        self._wanted = wanted
        self._lines: TextCache[frozenset[str]] = TextCache()

    def of(self, low: str) -> frozenset[str]:
        """Return the wanted beginnings in a text in small letters."""
        return self._wanted.intersection(map(_start, low.split()))

    def of_lines(self, low: str) -> frozenset[str]:
        """Return the same for a text whose lines recur."""
        found = []
        for line in low.split("\n"):
            if (known := self._lines.get(line)) is None:
                known = self.of(line)
                self._lines.put(line, known)
            found.append(known)
        return frozenset().union(*found)


_starts = WordStarts(_FIRST | _VERBS | _STEMS)


def asked_for(text: str, role: Role) -> str | None:
    """Say what a message asks the model to produce beside answers; None for anything else. Linear, never raises."""
    first = _START[role]
    start, end = text[:first].lower(), text[-_END:].lower() if len(text) > first else ""
    lead = start[:_LEAD]
    for words in _PLAINLY:
        if words in lead:
            return None
    both = f"{start} {end}"
    starts = _starts.of_lines(start) | _starts.of(end)
    verbs, stems = starts & _VERBS, starts & _STEMS
    tried = {index for stem in stems & _FIRST for index in _AT[stem]}
    candidates = [
        directive for directive in map(DIRECTIVES.__getitem__, sorted(tried)) if _may_fit(directive, verbs, stems, both)
    ]
    if not (start.isascii() and end.isascii()):
        candidates += [
            directive
            for directive in _ANYWHERE
            if all(any(stem in both for stem in stems) for stems in directive.stems)
        ]
    if not candidates:
        return None
    zones = _Zones(_tidy(start), _tidy(end), not end)
    if role == "user" and _is_a_command(zones.start):
        return "query_generation"
    return next(_kinds(zones, role, candidates, short=len(text) <= _SHORT), None)


def is_a_programs(text: str, role: Role) -> bool:
    """Whether a program wrote a message, and nothing in it asks to answer somebody."""
    first = _START["system"]
    zones = _Zones(
        _tidy(text[:first].lower()), _tidy(text[-_END:].lower()) if len(text) > first else "", len(text) <= first
    )
    return not any(map(wants_an_answer, zones.parts)) and (role == "system" or _signs(zones, role) >= _NEEDED[role])


def _may_fit(directive: Directive, verbs: frozenset[str], stems: frozenset[str], text: str) -> bool:
    if directive.starts.isdisjoint(verbs):
        return False
    for group in directive.stems:
        if group.isdisjoint(stems):
            return False
    for root in directive.roots:
        if root in text:
            return True
    return not directive.roots


def _kinds(zones: _Zones, role: Role, candidates: list[Directive], *, short: bool) -> Iterator[str]:
    counted: int | None = None
    starts = frozenset[str]().union(*(directive.starts for directive in candidates))
    words = [list(_words(part, starts)) for part in zones.parts]
    for directive in candidates:
        if role == "system" and not short and directive.kind in _DUTIES:
            continue
        if not any(_directs(part, its, directive, role) for part, its in zip(zones.parts, words, strict=True)):
            continue
        if directive.needs is not None and not any(directive.needs.search(part) for part in zones.parts):
            continue
        if _wants_an_answer(zones, directive.kind):
            continue
        if counted is None:
            counted = _signs(zones, role)
        if counted >= _NEEDED[role]:
            yield directive.kind


class _Word(NamedTuple):
    """Where a word stands that may begin a directive, the letters it starts with, and whether it may be a command."""

    position: int
    start: str
    commands: bool


def _words(part: str, starts: frozenset[str]) -> Iterator[_Word]:
    position, before = 0, "to"
    for word in part.split():
        if (start := word[:LENGTH_OF_START]) in starts:
            free = before in _BEFORE_A_COMMAND or not before[-1].isalnum() or part[position - 1 : position] == "\n"
            yield _Word(position, start, free)
        position += len(word) + 1
        before = word


def _directs(part: str, words: list[_Word], directive: Directive, role: Role) -> bool:
    if not directive.starts:
        return directive.pattern.search(part) is not None
    for word in words:
        if word.start not in directive.starts or not (word.commands or not directive.imperative):
            continue
        found = directive.pattern.match(part, word.position)
        if found is not None and (
            role == "system" or directive.kind == "chunk_context" or not _is_personal(part, found)
        ):
            return True
    return False


def _is_personal(part: str, found: re.Match[str]) -> bool:
    """Whether the sentence speaks of its author: "Suggest a title for my blog"."""
    begin = max(part.rfind(mark, 0, found.start() + 1) for mark in ".!?\n。") + 1
    end = min((place for mark in ".!?\n。" if (place := part.find(mark, found.end())) >= 0), default=len(part))
    return _SIGNS["speaks_as_a_person"].search(part, begin, end) is not None


def _wants_an_answer(zones: _Zones, kind: str) -> bool:
    if (
        kind not in _CLOSED
        and kind != "hypothetical_document"
        and _SIGNS["answer_label"].search((zones.end or zones.start)[-40:])
    ):
        return True
    return any(map(wants_an_answer, zones.parts))


def wants_an_answer(text: str) -> bool:
    """Whether an instruction, in small letters, asks to answer somebody."""
    return _SIGNS["answers"].search(text) is not None


def speaks_of_a_user(low: str) -> bool:
    """Whether a text in small letters speaks of a user."""
    return _SIGNS["third_person"].search(low) is not None


def speaks_of_retrieval(low: str) -> bool:
    """Whether a text in small letters speaks of a search."""
    return _SIGNS["purpose"].search(low) is not None


def restricts(low: str) -> bool:
    """Whether a text in small letters restricts the output: "only", "one word"."""
    return _SIGNS["restricted"].search(low) is not None


def is_transcript(text: str) -> bool:
    """Whether a user speaks in a quoted conversation."""
    return _SIGNS["transcript"].search(text.lower()) is not None


def _signs(zones: _Zones, role: Role) -> int:
    """Count what only programs write. A label to be completed counts twice: people do not end a message with one."""
    parts = zones.parts
    count = 0
    for pattern in (_SIGNS["third_person"], _SIGNS["restricted"], _SIGNS["purpose"], _SIGNS["part"]):
        count += any(pattern.search(part) for part in parts)
    slots = {
        found["name"] or found["tag"] or found["wide"] for part in parts for found in _SIGNS["slot"].finditer(part)
    }
    count += min(len(slots), _SLOTS_THAT_COUNT)
    if role == "user":
        count += any(_SIGNS["transcript"].search(part) for part in parts)
        last = (zones.end or zones.start).rstrip()
        count += 2 * (_SIGNS["label_to_complete"].search(last.rpartition("\n")[2]) is not None)
    return count


def _is_a_command(start: str) -> bool:
    """Whether a user's message is `Generate search query for: ...`: people do not say that to an assistant."""
    return _SIGNS["command"].search(start) is not None and _SIGNS["answers"].search(start) is None


def _tidy(low: str) -> str:
    """One blank between words, no empty lines, straight quotes, no bold: prompts are indented and decorated."""
    low = low.replace("*", "").replace("`", "")
    if not low.isascii():
        for curly, straight in _QUOTES:
            low = low.replace(curly, straight)
    return "\n".join(line for raw in low.split("\n") if (line := " ".join(raw.split())))
