"""The passage in each record of a frame: what is left when the marks and short fields that all records share are gone.

Records of one frame are written by one template. Its literals (a bracket, a colon, a line break) stand in all of them
in the same order, with short fields between; behind the last one the text runs on. At the end it is the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import dedent

from msgspec import Struct

from gaugeway.prompts.form.lines import key_of, shape
from gaugeway.prompts.notation import WIDE
from gaugeway.prompts.sizes import CROWD, LABEL, LINE, MANY, SEVERAL, WORD
from gaugeway.records import Context

Span = tuple[int, int]

_LITERAL = re.compile(
    r"[ \t]*\n\s*|(?:</?[^\W\d]\w{0,12}[^<>\n]{0,60}>)+|[:：]\*{0,2}(?=[\s\"“]|[^\x00-\x7f])|\]\(|[\])】>》」»][:：]?"
    r"|[\[(【<《「«]| ?\|\s?| [-–—] | = |\*\*|={2,}|-{3,}|[@~^+#|§&%$]{2,}| ?:: "
)
_SENTENCE = re.compile(r"(?<=\w\w)[.!?;]\s|[。！？；]")
_SENTENCE_END = re.compile(r"[.!?。！？;；,，…][\"'”’»)\]*_]*\Z")
_GOES_ON = re.compile(r"[a-zà-öø-ÿа-я.,;!?)\]。，；]")
_WRAPS = (
    ("«««", "»»»"),
    ("```", "```"),
    ('"""', '"""'),
    ("'''", "'''"),
    ('"', '"'),
    ("“", "”"),
    ("«", "»"),
    ("「", "」"),
    ("<<<", ">>>"),
)
_IN_BRACKETS = re.compile(r"\s*[(\[【（](?P<inside>[^()\[\]\n]{1,160})[)\]】）]\Z")
_NAMES_A_PLACE = re.compile(r"\w\.[a-z]{2,5}\b|://|#\w|[:：=]|\A\W*\d+(?:\.\d+)?\W*\Z")
_PLACE = re.compile(r"[^\s()\[\]\"'|,;]*(?:\w\.(?:[a-z]{2,4}|html|docx|json)\b|\w://)[^\s()\[\]\"'|,;]*", re.IGNORECASE)
_ANSWERED = re.compile(r"[^\n]{1,300}[?？]\s*\n[^\W\d_][^\n:：]{0,20}[:：]")
"""A question with its answer: the label of the question belongs to the passage."""
_DIGITS = re.compile(r"\d+")
_SCORE = re.compile(r"(?:0?\.\d+|[01]\.\d+|\d{1,3}(?:\.\d+)? ?%)")


class Record(Struct):
    """A record: where its passage stands, and the fields beside it (label, or "" for one without, and value).

    `said` is the passage where it does not stand so: an indented block between quotes.
    """

    start: int
    end: int
    id: str | None = None
    fields: list[tuple[str, str]] = []
    said: str | None = None

    def strip(self, text: str) -> None:
        """Leave out white space at both ends."""
        said = text[self.start : self.end]
        self.start += len(said) - len(said.lstrip())
        self.end -= len(said) - len(said.rstrip()) if said.strip() else 0

    def context(self, text: str) -> Context:
        """Return the passage."""
        return Context(text=self.said or text[self.start : self.end], id=self.id, source=self.source, score=self.score)

    @property
    def source(self) -> str | None:
        """The first file or address among the fields, else the first one without a label or a number."""
        places = (found[0] for _, value in self.fields if (found := _PLACE.search(value)) is not None)
        titles = (value for _, value in self.fields if any(map(str.isalpha, value)))
        return next(places, next(titles, None))

    @property
    def score(self) -> float | None:
        """The first value that is a share, as a number."""
        values = (value for label, value in self.fields if label and _SCORE.fullmatch(value))
        found = next(values, None)
        if found is None:
            return None
        return float(found.rstrip("% ")) / (100.0 if found.endswith("%") else 1.0)


def passages(text: str, spans: Sequence[Span], marks: Sequence[int]) -> list[Record]:
    """Return the passage of each record; `marks` are the characters of its mark, which are left out first."""
    records = [
        Record(start + mark, end, _id_of(text[start : start + mark]))
        for (start, end), mark in zip(spans, marks, strict=True)
    ]
    for record in records:
        record.strip(text)
    _strip_tails(text, records)
    _strip_heads(text, records)
    _strip_tails(text, records)
    _unwrap(text, records)
    _unwrap_block(text, records)
    return [record for record in records if record.end > record.start]


def _id_of(mark: str) -> str | None:
    """Return a mark's number, or all of a key in which digits and letters alternate."""
    number = _DIGITS.search(mark)
    if number is None:
        return None
    return key if (key := key_of(mark)) is not None and mark[number.end() : number.end() + 1].isalpha() else number[0]


def _short(said: str, literal: str) -> bool:
    """Whether what stands before a literal can be a field's name or value."""
    said = said.strip()
    if said[:1] == "#" and "\n" in literal:
        return False  # a heading of the passage's own
    if len(said) > LINE or _SENTENCE.search(said) is not None:
        return False
    words = len(said.split())
    if words > (SEVERAL if literal[:1] in ":：" else (2 * SEVERAL)):
        return False
    if said and ord(said[0]) >= WIDE and len(said) > LABEL:
        return False
    return not (
        "\n" in literal and _SENTENCE_END.search(said) is not None and not said.endswith((")", "]", "*", '",', "',"))
    )


def _strip_heads(text: str, records: list[Record]) -> None:
    """Cut the fields that all records begin with."""
    if len(records) <= 1:
        _strip_title(text, records)
        return
    at = [record.start for record in records]
    found: list[tuple[list[int], list[str]]] = []
    label: list[str] = [""] * len(records)
    for _ in range(MANY):
        step = _next_literal(text, records, at)
        if step is None:
            break
        at, said, literal = step
        found.append((list(at), said))
        if _ends_a_head(text, records, at, literal):
            for number, one in enumerate(records):
                one.start = at[number]
                for _, values in found:
                    if value := values[number].strip():
                        one.fields.append((label[number], value))
                        label[number] = value if literal[:1] in ":：=" else ""
            found.clear()
    for record in records:
        record.strip(text)


def _strip_title(text: str, records: list[Record]) -> None:
    """Cut the first line of a lone record behind a mark, if it is short, in brackets or no sentence."""
    for record in records:
        line_start = text.rfind("\n", 0, record.start) + 1
        end = text.find("\n", record.start, record.end)
        if end < 0 or not text[line_start : record.start].strip():
            continue
        said = text[record.start : end]
        if _short(said, "\n") and _run_on(text, [record], [end]):
            record.fields.append(("", said.strip(" ()[]:|-")))
            record.start = end
            record.strip(text)


def _next_literal(text: str, records: list[Record], at: list[int]) -> tuple[list[int], list[str], str] | None:
    """Return where each record goes on behind the next literal that all have, with the fields before it."""
    first = records[0]
    for tried, match in enumerate(_LITERAL.finditer(text, at[0], min(first.end, at[0] + (2 * LINE)))):
        if tried >= SEVERAL:
            return None
        literal = _kind_of(match[0])
        said = [text[at[0] : match.start()]]
        if not _short(said[0], literal):
            return None
        ends = [match.end()]
        for one, start in zip(records[1:], at[1:], strict=True):
            place = _find(text, literal, start, min(one.end, start + (2 * LINE)))
            if place is None or not _short(text[start : place[0]], literal):
                break
            said.append(text[start : place[0]])
            ends.append(place[1])
        else:
            return ends, said, literal
        if "\n" in literal:
            return None
    return None


def _kind_of(literal: str) -> str:
    if "\n" in literal:
        return "\n"
    return "<>" if literal[0] == "<" and literal[-1] == ">" else literal.strip() or literal


def _find(text: str, literal: str, start: int, end: int) -> tuple[int, int] | None:
    for match in _LITERAL.finditer(text, start, end):
        if _kind_of(match[0]) == literal:
            return match.start(), match.end()
        if "\n" in match[0]:
            return None
    return None


def _ends_a_head(text: str, records: list[Record], at: list[int], literal: str) -> bool:
    """Whether the passages may begin here: behind something that closes a field, with the start of a sentence."""
    if any(place >= one.end or not text[place : one.end].strip() for place, one in zip(at, records, strict=True)):
        return False
    if "\n" in literal:
        return _run_on(text, records, at)
    if literal[-1] not in ":：])】>》」»|–—-=*@~^+#§&%$":  # nothing closes here
        return False
    begins = [text[place : place + WORD].lstrip()[:1] for place in at]
    if literal[:1] in ":：":
        return not all(_ANSWERED.match(text, place, one.end) for place, one in zip(at, records, strict=True))
    return not any(_GOES_ON.match(begin) for begin in begins)


def _run_on(text: str, records: list[Record], at: list[int]) -> bool:
    """Whether what follows a first line is longer than it in most records: then that line was a title."""
    longer = 0
    for one, place in zip(records, at, strict=True):
        longer += len(text[place : one.end].strip()) > place - one.start
    return 2 * longer > len(records)


def _strip_tails(text: str, records: list[Record]) -> None:
    """Cut the lines that all records end with; the last record ends where its own one is."""
    if len(records) <= 1:
        _strip_origin(text, records)
        return
    for _ in range(SEVERAL):
        lasts = [_last_line(text, record) for record in records]
        keys = set.intersection(*(set(keys) for _, keys in lasts[:-1])) - {"item -", "item *"}
        keys = {key for key in keys if key not in ("(", ">")}
        if not keys or any(start <= one.start for (start, _), one in zip(lasts[:-1], records[:-1], strict=True)):
            break
        if all(key.startswith("rule") for key in keys) and keys.isdisjoint(lasts[-1][1]):
            lasts[-1] = records[-1].end, ()  # between the records, not at their ends
        elif not lasts[-1][1] or keys.isdisjoint(lasts[-1][1]) or lasts[-1][0] <= records[-1].start:
            place = _line_with(text, records[-1], keys)
            if place is None:
                break
            lasts[-1] = place, ()
            records[-1].end = min(records[-1].end, _end_of_line(text, place))
        if _belong_to_the_text(text, records, lasts):
            break
        for one, (start, _) in zip(records, lasts, strict=True):
            if (said := text[start : one.end].strip(" -_=*`")) and len(said) <= LINE:
                label, _, value = said.partition(":")
                one.fields.append((label.strip(), value.strip()) if value else ("", label))
            one.end = start
            one.strip(text)
    _strip_brackets(text, records)


def _belong_to_the_text(text: str, records: list[Record], lasts: list[tuple[int, tuple[str, ...]]]) -> bool:
    """Whether the last lines are most of the records, or end code that began in them."""
    starts = [start for start, _ in lasts]
    cut = sum(one.end - start for one, start in zip(records, starts, strict=True))
    if 2 * cut > sum(record.end - record.start for record in records):
        return True
    return any(text.count("```", one.start, start) % 2 for one, start in zip(records, starts, strict=True))


def _strip_origin(text: str, records: list[Record]) -> None:
    """Cut the last line of a lone record behind a mark, if it names a file or an address behind a finished sentence."""
    for record in records:
        line_start = text.rfind("\n", 0, record.start) + 1
        start, _ = _last_line(text, record)
        if start <= record.start or not text[line_start : record.start].strip():
            continue
        said = text[start : record.end].strip()  # at most `LINE` characters
        if _PLACE.search(said) is None:
            continue
        if _SENTENCE_END.search(text[record.start : start].rstrip()) and not _SENTENCE_END.search(said):
            record.fields.append(("", said))
            record.end = start
            record.strip(text)


def _last_line(text: str, one: Record) -> tuple[int, tuple[str, ...]]:
    start = text.rfind("\n", one.start, one.end) + 1
    said = text[start : one.end].strip()
    if start <= one.start or not said or len(said) > LINE:
        return one.start, ()
    kind, keys, _ = shape(said)
    if kind == "text" and not _SENTENCE_END.search(said):
        keys = (*keys, f"word {said.split(None, 1)[0].lower()}")
    if kind in ("item", "text", "field") and _SENTENCE_END.search(said):
        return start, ()
    return start, tuple(key for key in keys if key not in ("#.", "#)"))


def _line_with(text: str, one: Record, keys: set[str]) -> int | None:
    """Return where the first line of one of the shapes begins in a record."""
    at = text.find("\n", one.start, one.end) + 1
    for _ in range(CROWD):
        if at <= 0 or at >= one.end:
            return None
        end = text.find("\n", at, one.end)
        said = text[at : end if end >= 0 else one.end].strip()
        if said and not keys.isdisjoint((*shape(said[:LINE])[1], f"word {said.split(None, 1)[0].lower()}")):
            return at
        at = end + 1
    return None


def _end_of_line(text: str, start: int) -> int:
    end = text.find("\n", start)
    return end if end >= 0 else len(text)


def _strip_brackets(text: str, records: list[Record]) -> None:
    """Cut what all records have in brackets at their end, when it names a place."""
    found = [_IN_BRACKETS.search(text, max(record.start, record.end - LINE), record.end) for record in records]
    said = [_DIGITS.sub("#", match["inside"]) if match is not None else "" for match in found]
    alike = len(set(said)) == 1 and "#" in said[0]  # (page 4), (page 9)
    if alike or all(match is not None and _NAMES_A_PLACE.search(match["inside"]) for match in found):
        for one, match in zip(records, found, strict=True):
            if match is not None and match.start() > one.start:
                one.fields.append(("", match["inside"]))
                one.end = match.start()


def _unwrap(text: str, records: list[Record]) -> None:
    """Leave out quotes and fences around all passages, with a comma behind them."""
    if all(text[record.end - 1] == "|" for record in records):  # rows of a table
        for record in records:
            record.end -= 1
            record.strip(text)
    if all(text[record.start : record.start + 1] in "\"'" and text[record.end - 1] == "," for record in records):
        for record in records:
            record.end -= 1
    found = [_wrap(text, record) for record in records]
    if all(found):
        for one, wrap in zip(records, found, strict=True):
            one.start, one.end = one.start + wrap, one.end - wrap
            one.said = dedent(text[one.start : one.end]).strip()
            one.strip(text)


def _unwrap_block(text: str, records: list[Record]) -> None:
    """Leave out quotes or fences that open the first passage and close the last one."""
    if len(records) <= 1:
        return
    first, last = records[0], records[-1]
    for opening, closing in (wrap for wrap in _WRAPS if len(wrap[0]) > 1):
        around = text.startswith(opening, first.start, first.end) and text.endswith(closing, last.start, last.end)
        inside = first.start + len(opening), last.end - len(closing)
        if around and text.find(opening, *inside) < 0 and text.find(closing, *inside) < 0:
            first.start, last.end = inside
            first.strip(text)
            last.strip(text)


def _wrap(text: str, one: Record) -> int:
    """Return how many characters a passage is wrapped in at each end: quotes or a fence of its own, 0 for none."""
    for opening, closing in _WRAPS:
        size = len(opening)
        if (
            one.end - one.start > size + len(closing)
            and text.startswith(opening, one.start)
            and text.endswith(closing, one.start, one.end)
            and text.find(closing, one.start + size, one.end) == one.end - len(closing)
        ):
            return size
    return 0
