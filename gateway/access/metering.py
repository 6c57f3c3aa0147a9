"""The usage of an answer, metered independently of capture: as reported, otherwise estimated from its size.

Only the beginning and the end of an answer are kept. Usage counts only at the place where an API reports it: answers
may echo anything that a client sends, such as the schemas of its tools. Only events with the name "usage" are parsed.
"""

from __future__ import annotations

import math
import re
import string
from collections import deque
from collections.abc import Iterator
from json import decoder as json_decoder
from typing import Any, NamedTuple

import msgspec

from gateway.http import encoding, lenient_json
from gateway.http.json_cursor import JsonCursor, value_starts
from gateway.http.sse_events import Events
from gaugeway.exchange import Headers
from gaugeway.records import Usage

HEAD_BYTES = TAIL_BYTES = 64 * 1024
"""Bytes of an answer's beginning and of its end that are kept until it is complete."""
ENCODED_BYTES = 1024 * 1024
"""Bytes of an encoded answer that are kept: it can only be decoded from its beginning."""
DECODED_BYTES = 8 * 1024 * 1024
MOST_REPORTS = 20
"""Events with usage read at the beginning and at the end of a stream: some streams report with every event."""
MOST_MENTIONS = 10_000
"""Occurrences of the name "usage" in an answer without a stream."""
USAGE_BYTES = 4096
MOST_COUNTED = 10**9
"""The largest number of tokens that an answer may report."""
BYTES_PER_TOKEN = 4
BASE64_BYTES_PER_TOKEN = 50
SOUND_BYTES_PER_TOKEN = 1000
"""Base64 bytes of Realtime audio per token: 1,000 (G.711) to 6,400 (PCM)."""

_NAME = b'"usage"'
_USAGE = re.compile(rb'"usage"\s{0,8}:\s{0,8}(?=\{)')
_BLANK_LINE = b"\n\n"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed", "response.done"})
_RESPONSES = re.compile(rb'^event: ?response\.|^data: ?\{[^{}]{0,200}"type"\s{0,8}:\s{0,8}"response\.', re.MULTILINE)
"""The beginning of a stream of the Responses API."""
_BEGINNING_BYTES = 1000
_NOTHING_MORE = re.compile(rb"\n*(?:data: ?\[DONE\]\n*)?")
_MODEL = re.compile(rb'"model"\s{0,8}:\s{0,8}"([^"\\]{1,200})"')
_TEXT = re.compile(
    rb'"(?:content|text|delta|arguments|partial_json|thinking|reasoning|reasoning_content|refusal|transcript)"'
    rb'\s{0,8}:\s{0,8}"([^"\\]*(?:\\.[^"\\]*)*)',
    re.DOTALL,
)
_SPOKEN = re.compile(
    r'"(?:text|delta|transcript|instructions|output|arguments)"\s{0,8}:\s{0,8}"([^"\\]*(?:\\.[^"\\]*)*)', re.DOTALL
)
_UNFINISHED = frozenset({"queued", "in_progress"})
_STATUS_UNFINISHED = re.compile(rb'"status"\s{0,8}:\s{0,8}"(?:queued|in_progress)"')
_LAST_EVENT = re.compile(
    rb"^(?:data: ?\[DONE\]|event: ?(?:response\.(?:completed|incomplete|failed)|message_delta|message_stop)\s)",
    re.MULTILINE,
)
_NAMED_EVENT = re.compile(rb"^event:", re.MULTILINE)
_FINISH_REASON = re.compile(rb'"finish_reason"\s{0,8}:\s{0,8}"')
_DETAILS = ("prompt_tokens_details", "input_tokens_details", "input_token_details")
_BASE64_STARTS = (b"base64,", b'"data":"', b'"data": "')
_BASE64 = (string.ascii_letters + string.digits + "+/=_-").encode()


class _Report(msgspec.Struct):
    """The members of an answer, or of one event of a stream, that report usage or lead to it; nested ones undecoded."""

    type: Any = None
    status: Any = None
    usage: Any = None
    response: msgspec.Raw = msgspec.Raw()
    message: msgspec.Raw = msgspec.Raw()
    x_groq: msgspec.Raw = msgspec.Raw()
    choices: msgspec.Raw = msgspec.Raw()


_decode_report = msgspec.json.Decoder(_Report).decode
_decode = msgspec.json.Decoder().decode
_raw_decode = json_decoder.JSONDecoder().raw_decode


class Metered(NamedTuple):
    """The reported usage and model of an answer, and the estimated tokens of its text.

    `output_tokens` is 0 where the reported usage is final. `ended`: although bytes are missing, the stream's last event
    arrived, so that the reported usage is final. `finished` is False when a complete answer reports that its text is
    still being generated, or cannot be read. `size` is its bytes, decompressed where it can be.
    """

    usage: Usage | None
    model: str | None
    output_tokens: int
    ended: bool = False
    finished: bool = True
    size: int = 0


class Meter:
    """Collects the answer of one request while it streams."""

    __slots__ = ("_encoding", "_head", "_head_bytes", "_limit", "_tail", "_tail_bytes", "begun", "received", "status")

    def __init__(self) -> None:
        self.begun = False
        self.status = 0
        self.received = 0
        self._encoding = ""
        self._limit = HEAD_BYTES
        self._head: list[bytes] = []
        self._tail: deque[bytes] = deque()
        self._head_bytes = self._tail_bytes = 0

    def begin(self, status: int, headers: Headers) -> None:
        """Take the status and headers."""
        self.begun, self.status = True, status
        codings = [value for name, value in headers if name.lower() == b"content-encoding"]
        self._encoding = b",".join(codings).decode("latin-1").strip()
        if self._encoding:
            self._limit = ENCODED_BYTES

    def feed(self, chunk: bytes) -> None:
        """Take bytes of the body."""
        size = len(chunk)
        self.received += size
        if self._head_bytes < self._limit:
            self._head.append(chunk)
            self._head_bytes += size
            return
        self._tail.append(chunk)
        self._tail_bytes += size
        while self._tail_bytes - len(self._tail[0]) >= TAIL_BYTES:
            self._tail_bytes -= len(self._tail.popleft())

    @property
    def is_expensive(self) -> bool:
        """Whether `read` takes so long that other requests would notice."""
        return bool(self._encoding) and self._head_bytes > HEAD_BYTES

    def read(self, *, complete: bool = True) -> Metered:
        """Return the metered usage; `complete`: no byte of the answer is missing. Never raises."""
        whole = self.received == self._head_bytes + self._tail_bytes
        head, tail = b"".join(self._head), b"".join(self._tail)
        scale = self.received / max(len(head) + len(tail), 1)
        if self._encoding:
            try:
                head, tail = encoding.decode(head, self._encoding, DECODED_BYTES), b""
            except ValueError:
                tokens = math.ceil(self.received / BYTES_PER_TOKEN)
                return Metered(None, None, tokens, finished=False, size=self.received)
        held = head + tail if whole else head + b"\n" + tail
        usage, finished = None, True
        if held.lstrip(_BYTE_ORDER_MARK + b" \t\r\n").startswith(b"{"):
            answer = _parsed(held) if whole else None
            finished = _is_finished(answer, held)
            if answer is not None:
                usage = _usage_in(answer)
            elif finished:  # a queued answer has none yet
                usage = _largest(_at_the_top(held if whole else head))
                if usage is None and not whole and complete:
                    usage = _largest(_from_the_end(tail, 1))
        else:
            usage = _largest(_streamed(held, b"") if whole else _streamed(head, tail, complete=complete))
        ended = not (finished and complete) and _has_ended(held)
        is_final = usage is not None and (ended or (finished and complete))
        model = _MODEL.search(held)
        return Metered(
            usage,
            model[1].decode("latin-1") if model else None,
            0 if is_final else _estimate(held, scale),
            ended=ended,
            finished=finished,
            size=max(self.received, len(held)),
        )


def usage_of(reported: Any) -> Usage | None:
    """Read a usage object of any of the APIs. Tokens written to a cache count as input."""
    if not isinstance(reported, dict):
        return None
    details: dict[str, Any] = next((reported[name] for name in _DETAILS if isinstance(reported.get(name), dict)), {})
    cached = details.get("cached_tokens", reported.get("cache_read_input_tokens"))
    given = _count(reported.get("prompt_tokens", reported.get("input_tokens")))
    answered = _count(reported.get("completion_tokens", reported.get("output_tokens")))
    if given is None and answered is None and (given := _count(reported.get("total_tokens"))) is None:
        return None
    if written := _count(reported.get("cache_creation_input_tokens")):
        given = (given or 0) + written
    return Usage(input_tokens=given, output_tokens=answered, cached_tokens=_count(cached))


class ConversationMeter:
    """Meters the messages of a Realtime connection in both directions until an answer reports their usage.

    `size` is their total, in characters and bytes; each answer reads the conversation so far again.
    """

    __slots__ = ("_answered", "_given", "size")

    def __init__(self) -> None:
        self._given = self._answered = self.size = 0

    def up(self, message: str | bytes) -> None:
        """Meter a message from the client."""
        self.size += len(message)
        self._given += _message_tokens(message)

    def down(self, message: str | bytes) -> Usage | None:
        """Meter a message from the upstream; return the usage that it reports for earlier messages."""
        self.size += len(message)
        if isinstance(message, str) and '"usage"' in message:
            report = _parsed(message.encode("utf-8", "surrogatepass"))
            if report is not None and (usage := _usage_in(report)) is not None:
                self._given = self._answered = 0
                return usage
        self._answered += _message_tokens(message)
        return None

    def rest(self) -> Usage | None:
        """Return the estimated unreported usage; input without an answer is free, as at OpenAI."""
        return None if not self._answered else Usage(input_tokens=self._given, output_tokens=self._answered)


def text_tokens(body: bytes) -> int:
    """Estimate the tokens of a request body from its size; images and audio count for much less than text."""
    encoded = 0
    for mark in _BASE64_STARTS:
        start = body.find(mark)
        while start >= 0:
            start += len(mark)
            if (end := body.find(b'"', start)) < 0:
                break
            if _is_base64(body, start, end):
                encoded += end - start
            start = body.find(mark, end)
    encoded = min(encoded, len(body))
    return math.ceil((len(body) - encoded) / BYTES_PER_TOKEN) + encoded // BASE64_BYTES_PER_TOKEN


def _is_base64(body: bytes, start: int, end: int) -> bool:
    step = 256 * 1024  # other threads get a turn in between
    return not any(body[at : min(at + step, end)].translate(None, _BASE64) for at in range(start, end, step))


def _parsed(document: bytes) -> _Report | None:
    """Parse an answer or the data of an event; None if it is no JSON object."""
    try:
        return _decode_report(document)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:
        content = lenient_json.read(document)
    except (ValueError, RecursionError):
        return None
    return _Report(**{name: content.get(name) for name in _Report.__struct_fields__}) if _dict(content) else None


def _nested(member: Any) -> Any:
    """Return a nested member decoded; None if it is absent."""
    if not isinstance(member, msgspec.Raw):
        return member
    return _decode(member) if bytes(member) else None


def _usage_in(report: _Report) -> Usage | None:
    """Return the usage that an answer or an event reports at its API's place.

    That is `response` in the last event of the Responses API, `message` in Anthropic's first event, and the top of all
    others; some providers report with a choice (Moonshot) or in `x_groq` instead.
    """
    if (kind := report.type) == "message_start":
        return usage_of(_dict(_nested(report.message)).get("usage"))
    if isinstance(kind, str) and kind.startswith("response."):
        return usage_of(_dict(_nested(report.response)).get("usage")) if kind in _TERMINAL else None
    if (usage := usage_of(report.usage)) is not None:
        return usage
    if (usage := usage_of(_dict(_nested(report.x_groq)).get("usage"))) is not None:
        return usage
    choices = _nested(report.choices)
    return _largest(usage_of(_dict(choice).get("usage")) for choice in (choices if isinstance(choices, list) else ()))


def _largest(reports: Iterator[Usage | None]) -> Usage | None:
    """Return the largest of each count: a stream may report repeatedly."""
    largest = None
    for usage in reports:
        if usage is not None:
            largest = usage if largest is None else larger(largest, usage)
    return largest


def _at_the_top(document: bytes) -> Iterator[Usage | None]:
    """Yield the usage at the top of a JSON object whose end may be missing, or that a strict decoder refuses."""
    try:
        for start in value_starts(document, "usage", MOST_MENTIONS):
            yield _usage_at(document, start)
    except ValueError:
        return


def _from_the_end(document: bytes, depth: int) -> Iterator[Usage | None]:
    """Yield the usage in objects nested `depth` deep in a JSON object whose beginning may be missing.

    A name followed by a colon stands outside strings, so the brackets from there to the end give its depth.
    """
    level, end = 0, len(document)
    for match in reversed(list(_USAGE.finditer(document))[-MOST_MENTIONS:]):
        cursor = JsonCursor(document[match.start() : end])
        cursor.advance(end - match.start())
        if cursor.inside:
            return
        level, end = level - cursor.depth, match.start()
        if level == depth:
            yield _usage_at(document, match.end())


def _usage_at(document: bytes, start: int) -> Usage | None:
    try:
        reported, _ = _raw_decode(document[start : start + USAGE_BYTES].decode("latin-1"))
    except (ValueError, RecursionError):
        return None
    return usage_of(reported)


def _streamed(head: bytes, tail: bytes, *, complete: bool = True) -> Iterator[Usage | None]:
    """Yield the usage that events report; between `head` and `tail`, if there is one, bytes are missing.

    Of the event whose end is at the beginning of `tail`, the depth decides: its type may be among what is missing. In
    the Responses API it must be the last event of a complete stream.
    """
    head, tail = _with_plain_line_breaks(head), _with_plain_line_breaks(tail)
    first = tail.find(_BLANK_LINE)
    for events in (head, tail[first:] if first >= 0 else b""):
        for event in _with_usage(events):
            data = next(Events(event + _BLANK_LINE), None)
            report = None if data is None else _parsed(data)
            yield None if report is None else _usage_in(report)
    if first >= 0:
        is_responses = _RESPONSES.search(head[:_BEGINNING_BYTES]) is not None
        if not is_responses:
            yield from _from_the_end(tail[:first], 1)
        elif complete and _NOTHING_MORE.fullmatch(tail, first):
            yield from _from_the_end(tail[:first], 2)


def _with_plain_line_breaks(stream: bytes) -> bytes:
    return stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in stream else stream


def _with_usage(stream: bytes) -> Iterator[bytes]:
    """Yield the first and the last events in which the name "usage" occurs."""
    start = count = 0
    while count < MOST_REPORTS and (found := stream.find(_NAME, start)) >= 0:
        begin, start = _event_around(stream, found, start, len(stream))
        yield stream[begin:start]
        count += 1
    end, count = len(stream), 0
    while count < MOST_REPORTS and (found := stream.rfind(_NAME, start, end)) >= 0:
        begin, stop = _event_around(stream, found, start, end)
        yield stream[begin:stop]
        end = begin
        count += 1


def _event_around(stream: bytes, position: int, start: int, end: int) -> tuple[int, int]:
    before, after = stream.rfind(_BLANK_LINE, start, position), stream.find(_BLANK_LINE, position, end)
    return (before + len(_BLANK_LINE) if before >= 0 else start), (after if after >= 0 else end)


def _is_finished(answer: _Report | None, held: bytes) -> bool:
    """Whether a complete answer is final: background Responses are generated later."""
    if answer is not None:
        return not (isinstance(answer.status, str) and answer.status in _UNFINISHED)
    return _STATUS_UNFINISHED.search(held) is None


def _has_ended(held: bytes) -> bool:
    """Whether the stream's last event arrived. A text cannot forge lines; an echoed schema can forge members."""
    if _LAST_EVENT.search(held) is not None:
        return True
    return _FINISH_REASON.search(held) is not None and _NAMED_EVENT.search(held) is None


def larger(usage: Usage, other: Usage) -> Usage:
    """Return the larger of each count."""

    def of(first: int | None, second: int | None) -> int | None:
        return first if second is None else max(first or 0, second)

    return Usage(
        input_tokens=of(usage.input_tokens, other.input_tokens),
        output_tokens=of(usage.output_tokens, other.output_tokens),
        cached_tokens=of(usage.cached_tokens, other.cached_tokens),
    )


def _estimate(held: bytes, scale: float) -> int:
    size = sum(match.end(1) - match.start(1) for match in _TEXT.finditer(held)) or len(held)
    return min(math.ceil(size * scale / BYTES_PER_TOKEN), MOST_COUNTED)


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        return None
    return int(min(value, MOST_COUNTED))


def _message_tokens(message: str | bytes) -> int:
    if isinstance(message, bytes) or ".audio" in message[:200] or "_audio" in message[:200]:
        return len(message) // SOUND_BYTES_PER_TOKEN
    return sum(len(text) for text in _SPOKEN.findall(message)) // BYTES_PER_TOKEN


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
