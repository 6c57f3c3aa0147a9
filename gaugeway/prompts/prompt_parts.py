"""Locates the question, the passages and the instructions in a request, for display of a capture.

Pure, and after the extractors: it looks for what they found in the texts they read. So it holds for every extractor,
built in or not, and an extractor need not keep places. The time grows with the length of the texts only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from gaugeway.exchange import Request
from gaugeway.prompts import BESIDE_RESULTS, MOST_SYSTEM_TEXTS, Extraction, messages_of, text_of
from gaugeway.prompts.passage_records import WINDOW, RecordForms, between, record_edges
from gaugeway.prompts.sizes import CHAPTER, FEW, LABEL, MANY, SEVERAL, WORD
from gaugeway.prompts.tool_messages import MOST_HOPS
from gaugeway.records import CaptureInfo, PromptPart
from gaugeway.settings.bounds import bounded_capture

MAX_SEARCHED = 4_000_000
"""Extra characters searched for passages that are not where they are expected."""

LONGEST_SECRET = 1_024
"""Characters kept beyond the limit of a shortened text until redaction has been applied."""

_LEAST_SEARCHED, _TIMES = CHAPTER, FEW + 1
_LONG = 2 * WORD
"""Characters from which a text is taken to stand once in a prompt. A shorter one (a name, a number) is looked for only
beside its neighbours, as a word of its own."""

_PROBE, _PROBES = LABEL, FEW
_ESCAPED = LABEL
"""Characters that may stand between two parts of a passage that was changed."""
_NAME = FEW
"""Characters of an id or a source from which on it identifies a line."""
_EARLIER, _TRIES, _REPEATED = MANY // 2, MANY, SEVERAL
_UNCHANGED = re.compile(r"[^\"\\\n]+")
"""Text that reads the same where a passage is escaped, indented or quoted."""
_RESULTS = ("function_call_output", "custom_tool_call_output")


class _Message(Struct):
    """A text of the request and the parts found in it: (start, end, passage index, or None for the question).

    `records` are where the passages' records begin and end, one for all passages with no question between them;
    `around` the stretches beside the parts, with the passage to whose record one belongs.
    """

    index: int
    role: str
    text: str
    found: list[tuple[int, int, int | None]] = []
    records: list[tuple[int, int]] = []
    around: list[tuple[int, int, int | None]] = []


class Located(NamedTuple):
    """The texts of a request's turn, in order, and the user's earlier turns, the last one first, with their parts."""

    now: list[_Message]
    earlier: list[_Message]
    app: str
    forms: RecordForms

    def instructions(self, extraction: Extraction) -> str:
        """Return what the app itself wrote: the system's texts, and the user's turn if it is a prompt with passages."""
        alone = bool(extraction.contexts) and not any(message.role == "system" for message in self.now)
        empty = not extraction.contexts and extraction.source != "none"
        texts = []
        for message in self.now:
            if message.role == "system" or (
                message.role == "user" and (message.records or alone or (empty and message.found))
            ):
                around = (message.text[start:end] for start, end, passage in message.around if passage is None)
                text = "\0".join(around) if message.found or message.records else message.text
                beside = message.records or message.role == "user"
                texts.append(self.forms.without_dialogue(self.app, text) if beside else text)
        return "\0".join(texts)


def locate(request: Request, extraction: Extraction, *, app: str = "", forms: RecordForms | None = None) -> Located:
    """Find an extraction in the request; `forms` are those of the records in the app's earlier requests."""
    now, earlier = _read(request)
    passages = [passage.text for passage in extraction.contexts]
    _mark_passages(passages, now, earlier)
    _mark_question(extraction.question, now, earlier)
    altered = _altered(passages, now)
    names = [
        name
        for passage in extraction.contexts[:1]
        for name in (passage.source, passage.id)
        if name and len(name) > _NAME
    ]
    forms = RecordForms() if forms is None else forms
    for message in now:
        if message.role != "tool":
            message.records = _records(message, altered.get(message.index, []), app, forms, names)
    for message in (*now, *(text for text in earlier if text.found)):
        if message.role != "tool":
            message.around = list(_around(message))
    return Located(now, earlier, app, forms)


def _altered(passages: Sequence[str], now: Sequence[_Message]) -> dict[int, list[tuple[int, int]]]:
    """Find passages that are not there word for word, as escaped, indented or quoted ones, by their ends."""
    placed = {index for message in now for _, _, index in message.found}
    texts = [message for message in now if message.role != "tool" and len(message.text) >= _LONG]
    found: dict[int, list[tuple[int, int]]] = {}
    if not texts or all(index in placed for index in range(len(passages))):
        return found
    search = _Search(texts)
    for passage in (passage for index, passage in enumerate(passages) if index not in placed):
        parts = [part.strip() for part in _UNCHANGED.findall(passage) if part.strip()]
        first = next((number for number, part in enumerate(parts) if len(part) >= _LONG), None)
        if first is not None and (place := search.next(parts[first])) is not None:
            text, start = texts[place[0]].text, place[1]
            end = start + len(parts[first])
            for part in parts[first + 1 :]:
                after = text.find(part, end, end + len(part) + _ESCAPED)
                end = after + len(part) if after >= 0 else end
            for part in reversed(parts[:first]):
                before = text.rfind(part, max(0, start - len(part) - _ESCAPED), start)
                start = before if before >= 0 else start
            found.setdefault(texts[place[0]].index, []).append((start, end))
    return found


def _records(
    message: _Message, altered: list[tuple[int, int]], app: str, remembered: RecordForms, names: Sequence[str]
) -> list[tuple[int, int]]:
    """Return where the records of passages begin and end, of all that have no question between them together."""
    if not altered and all(passage is None for _, _, passage in message.found):
        return []
    spots = sorted([*message.found, *((*spot, 0) for spot in altered)], key=lambda spot: spot[:2])
    text, at, found = message.text, 0, []
    groups = [(is_passage, list(group)) for is_passage, group in groupby(spots, key=lambda spot: spot[2] is not None)]
    for number, (is_passage, group) in enumerate(groups):
        if is_passage:
            until = groups[number + 1][1][0][0] if number + 1 < len(groups) else len(text)
            places = [(start, end) for start, end, _ in group]
            first, last = places[0][0], max(end for _, end in places)
            forms = remembered.of(app, text, between(text, places))
            before, after = text[max(at, first - WINDOW) : first], text[last : min(until, last + WINDOW)]
            head, tail = record_edges(before, after, forms, names)
            found.append((first - head, last + tail))
        at = max(end for _, end, _ in group)
    return found


def capture_info(
    request: Request, extraction: Extraction, *, content: bool = True, located: Located | None = None
) -> CaptureInfo:
    """Describe an extraction located in the request; without `content` no text is kept.

    The words of instructions are to be redacted, and then cut (`bounded_capture`): a long text has some more than fits.
    """
    now, earlier, _, _ = located or locate(request, extraction)
    there = sorted([*now, *(text for text in earlier if text.found)], key=lambda one: one.index)
    recognised = extraction.source != "none"
    info = CaptureInfo(
        source=extraction.source,
        marker=extraction.marker,
        confidence=min(max(extraction.confidence, 0.0), 1.0) if recognised else None,
        reason=extraction.reason,
        parts=tuple(part for message in there for part in _parts(message, content=content)),
        cut=extraction.cut,
    )
    return bounded_capture(info, margin=LONGEST_SECRET)


def _read(request: Request) -> tuple[list[_Message], list[_Message]]:
    """Return the texts of this turn in order, and the user's earlier turns, the last one first."""
    system: list[_Message] = []
    users: list[_Message] = []
    results: list[_Message] = []
    for index, message in enumerate(messages_of(request)):
        role = message.get("role")
        if role in ("system", "developer") and len(system) < MOST_SYSTEM_TEXTS:
            system.append(_Message(index, "system", text_of(message.get("content"))))
        elif role == "user":
            text = text_of(message.get("content"))
            if text and not text.isspace():
                users.append(_Message(index, "user", text))
                if not message.get(BESIDE_RESULTS):
                    results.clear()
        elif role in ("tool", "function") or message.get("type") in _RESULTS:
            results.append(_Message(index, "tool", text_of(_result(message))))
    now = sorted([*system, *users[-1:], *results[-MOST_HOPS:]], key=lambda one: one.index)
    return now, users[-2 : -2 - _EARLIER : -1]


def _result(message: dict[str, Any]) -> Any:
    return message.get("output") if "output" in message else message.get("content")


class _Search:
    """Searches for texts in sequence, with a bound on the characters searched for missing texts."""

    def __init__(self, messages: Sequence[_Message]) -> None:
        self._messages = messages
        self._at, self._position = 0, 0
        total = sum(len(message.text) for message in messages)
        self._left = total + min(_LEAST_SEARCHED + _TIMES * total, MAX_SEARCHED)

    def next(self, wanted: str) -> tuple[int, int] | None:
        """Return (message, start) of the next occurrence of a text, else of the first one before."""
        for turn in range(len(self._messages) + 1):
            at = (self._at + turn) % len(self._messages)
            text, start = self._messages[at].text, self._position if turn == 0 else 0
            end = min(len(text), start + self._left)
            found = find(text, wanted, start, end)
            if found >= 0:
                self._at, self._position = at, found + len(wanted)
                self._left -= self._position - start
                return at, found
            self._left -= end - start
        return None

    def word(self, wanted: str, at: int, start: int, end: int, *, last: bool = False) -> int:
        """Return the offset of a text as a whole word between two offsets, or -1; optionally the last one."""
        text = self._messages[at].text
        for _ in range(_TRIES):
            start, end = (max(start, end - self._left), end) if last else (start, min(end, start + self._left))
            found = text.rfind(wanted, start, end) if last else text.find(wanted, start, end)
            if found < 0:
                self._left -= max(0, end - start)
                break
            self._left -= end - found if last else found + len(wanted) - start
            if _is_word(text, found, found + len(wanted)):
                return found
            start, end = (start, found + len(wanted) - 1) if last else (found + 1, end)
        return -1


def _mark_passages(passages: Sequence[str], now: list[_Message], earlier: list[_Message]) -> None:
    """Find the long passages first, then the short ones between them; search earlier turns only for the rest."""
    if _mark_in_order(passages, now):
        return
    places: dict[int, tuple[_Message, int]] = {}
    for messages in (now, earlier):
        if not messages or len(places) == len(passages):
            continue
        search = _Search(messages)
        found: dict[int, tuple[int, int]] = {}
        missing = [index for index, one in enumerate(passages) if index not in places and one and not one.isspace()]
        for index in missing:
            if len(passages[index]) >= _LONG and (place := search.next(passages[index])) is not None:
                found[index] = place
        if short := [index for index in missing if len(passages[index]) < _LONG]:
            _find_short(short, passages, search, found, messages)
        places |= {index: (messages[at], start) for index, (at, start) in found.items()}
    for index, (message, start) in places.items():
        message.found.append((start, start + len(passages[index]), index))
    for message in (*now, *earlier):
        if len(message.found) > 1:
            message.found = _apart(message.found)


def _mark_in_order(passages: Sequence[str], now: Sequence[_Message]) -> bool:
    """Mark long passages that stand one behind the other in the texts of this turn; return whether all do.

    Most do, and the search for each, from the end of the one before, is then what `_Search` does.
    """
    found: list[list[tuple[int, int, int | None]]] = [[] for _ in now]
    at = start = 0
    for index, one in enumerate(passages):
        if len(one) < _LONG or one.isspace():
            return False
        while True:
            if at == len(now):
                return False
            text = now[at].text
            if (place := find(text, one, start, len(text))) >= 0:
                break
            at, start = at + 1, 0
        start = place + len(one)
        found[at].append((place, start, index))
    for message, places in zip(now, found, strict=True):
        message.found = places
    return True


def _find_short(
    short: list[int],
    passages: Sequence[str],
    search: _Search,
    found: dict[int, tuple[int, int]],
    messages: Sequence[_Message],
) -> None:
    """Find short passages after the previous one, else before the next one; without neighbours, anywhere."""
    for index in short:
        if (before := found.get(index - 1)) is not None:
            at, start = before[0], before[1] + len(passages[index - 1])
            later = [place for one, (there, place) in found.items() if one > index and there == at and place >= start]
            if (place := search.word(passages[index], at, start, min(later, default=len(messages[at].text)))) >= 0:
                found[index] = (at, place)
    for index in reversed(short):
        if index not in found and (after := found.get(index + 1)) is not None:
            at, end = after
            if (place := search.word(passages[index], at, 0, end, last=True)) >= 0:
                found[index] = (at, place)
    at = start = 0
    for index in short if not found else ():
        for number in range(at, len(messages)):
            place = search.word(passages[index], number, start if number == at else 0, len(messages[number].text))
            if place >= 0:
                found[index] = (number, place)
                at, start = number, place + len(passages[index])
                break


def _mark_question(question: str | None, now: list[_Message], earlier: list[_Message]) -> None:
    """Find the question outside of the passages: in the user's turn, as an earlier turn, in another text.

    A long one is marked in the system's texts too, which may repeat it.
    """
    if not question or question.isspace():
        return
    marked = False
    for message in _where_it_may_be(question, now, earlier):
        if marked and (message.role != "system" or len(question) < _LONG):
            continue
        if places := _places(question, message):
            message.found = sorted([*message.found, *((start, end, None) for start, end in places)])
            marked = True


def _where_it_may_be(question: str, now: list[_Message], earlier: list[_Message]) -> Iterator[_Message]:
    yield from (text for text in now if text.role == "user")
    yield from [text for text in earlier if text.text.strip() == question][:1]
    yield from (text for text in now if text.role == "system")
    yield from earlier


def _places(question: str, message: _Message) -> list[tuple[int, int]]:
    """Return the occurrences of the question outside passages: all of a long one, the last of a short one.

    Only short texts are looked for backwards: `rfind` takes quadratic time for long ones.
    """
    text, gaps, length = message.text, list(_gaps(message)), len(question)
    if length < _LONG:
        search = _Search([message])
        gaps = [(start, end) for start, end in gaps if end - start >= length]
        found = (search.word(question, 0, start, end, last=True) for start, end in reversed(gaps))
        last = next((place for place in found if place >= 0), None)
        return [] if last is None else [(last, last + length)]
    places: list[tuple[int, int]] = []
    for start, end in gaps:
        place = text.find(question, start, end) if end - start >= length else -1
        while place >= 0 and len(places) < _REPEATED:
            places.append((place, place + length))
            place = text.find(question, place + length, end)
    return places


def _gaps(message: _Message) -> Iterator[tuple[int, int]]:
    at = 0
    for start, end, _ in message.found:
        yield at, start
        at = end
    yield at, len(message.text)


def _around(message: _Message) -> Iterator[tuple[int, int, int | None]]:
    """Yield the stretches around the parts that were found; those of a passage's record with the passage's index."""
    at, nearest = 0, None
    ends = [*message.found, (len(message.text), len(message.text), None)]
    for start, end, passage in ends:
        owner = passage if passage is not None else nearest
        for first, last in message.records:
            if at < start and first < start and last > at:
                if at < first:
                    yield at, first, None
                at = max(at, first)
                yield at, min(start, last), owner or 0
                at = min(start, last)
        if at < start:
            yield at, start, None
        at, nearest = end, owner


def _parts(message: _Message, *, content: bool) -> list[PromptPart]:
    """Return the parts of a message in order; no instructions where it is blank, or data around a tool's passages."""
    index, role = message.index, message.role
    parts: list[PromptPart] = []
    for start, end, passage in message.found:
        kind: Literal["question", "passage"] = "question" if passage is None else "passage"
        parts.append(PromptPart(role=role, kind=kind, start=start, end=end, message=index, passage=passage))
    for start, end, passage in message.around:
        if (text := message.text[start:end]).isspace():
            continue
        kept = text if content else ""
        part = PromptPart(
            role=role, kind="instructions", start=start, end=end, message=index, text=kept, passage=passage
        )
        parts.append(part)
    return sorted(parts, key=lambda part: part.start)


def find(text: str, wanted: str, start: int, end: int) -> int:
    """Like `str.find`, without its preprocessing, which dominates for long texts."""
    beginning, at = wanted[:_PROBE], start
    for _ in range(_PROBES):
        at = text.find(beginning, at, end)
        if at < 0 or (text.startswith(wanted, at) and at + len(wanted) <= end):
            return at
        at += 1
    return text.find(wanted, at, end)


def _apart(found: list[tuple[int, int, int | None]]) -> list[tuple[int, int, int | None]]:
    """Sort occurrences and drop those that overlap an earlier one."""
    kept: list[tuple[int, int, int | None]] = []
    for place in sorted(found, key=lambda span: (span[0], -span[1])):
        if not kept or place[0] >= kept[-1][1]:
            kept.append(place)
    return kept


def _is_word(text: str, start: int, end: int) -> bool:
    """Whether a span begins and ends at word boundaries; scripts without spaces have none."""
    before, after = text[max(start - 1, 0) : start + 1], text[end - 1 : end + 1]
    return not any(len(edge) > 1 and edge.isascii() and edge.isalnum() for edge in (before, after))
