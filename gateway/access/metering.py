"""The usage of an answer, metered independently of capture: as reported, otherwise estimated from its size.

Only the beginning and the end of an answer are kept. Reported usage is read from the parsed answer if it is complete,
otherwise found by its member name: generated text cannot imitate it, since quotes in strings are escaped.
"""

from __future__ import annotations

import math
import re
import string
from collections import deque
from json import decoder as json_decoder
from typing import Any, NamedTuple

import msgspec

from gateway.exchange import Headers
from gateway.http import encoding
from monitors.records import Usage

HEAD_BYTES = TAIL_BYTES = 64 * 1024
"""Bytes of an answer's beginning and of its end that are kept until it is complete."""
ENCODED_BYTES = 1024 * 1024
"""Bytes of an encoded answer that are kept: it can only be decoded from its beginning."""
DECODED_BYTES = 8 * 1024 * 1024
MOST_REPORTS = 100
"""Usage reports read at the beginning and at the end of the kept bytes: some streams report with every event."""
USAGE_BYTES = 4096
MOST_COUNTED = 10**9
"""The largest number of tokens that an answer may report."""
BYTES_PER_TOKEN = 4
BASE64_BYTES_PER_TOKEN = 50
SOUND_BYTES_PER_TOKEN = 1000
"""Base64 bytes of Realtime audio per token: 1,000 (G.711) to 6,400 (PCM)."""

_USAGE = re.compile(rb'"usage"\s{0,8}:\s{0,8}(?=\{)')
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


class _Answer(msgspec.Struct):
    usage: Any = None
    model: Any = None
    status: Any = None


_decode_answer = msgspec.json.Decoder(_Answer).decode
_decode = msgspec.json.Decoder().decode
_raw_decode = json_decoder.JSONDecoder().raw_decode


class Metered(NamedTuple):
    """The reported usage and model of an answer, and the estimated tokens of its text.

    `ended`: the stream's last event arrived, so that the reported usage is final even if bytes are missing. `finished`
    is False when a complete answer reports that its text is still being generated, or cannot be read.
    """

    usage: Usage | None
    model: str | None
    output_tokens: int
    ended: bool = False
    finished: bool = True


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

    def read(self) -> Metered:
        """Return the metered usage. Never raises."""
        whole = self.received == self._head_bytes + self._tail_bytes
        head, tail = b"".join(self._head), b"".join(self._tail)
        scale = self.received / max(len(head) + len(tail), 1)
        if self._encoding:
            try:
                head, tail = encoding.decode(head, self._encoding, DECODED_BYTES), b""
            except ValueError:
                return Metered(None, None, math.ceil(self.received / BYTES_PER_TOKEN), finished=False)
        held = head + tail if whole else head + b"\n" + tail
        answer = _structure(held) if whole else None
        finished = _is_finished(answer, held)
        usage = usage_of(answer.usage) if answer is not None else None
        if usage is None and (finished or answer is None):  # a queued answer repeats the client's own members
            usage = _find_usage(held)
        model = _MODEL.search(held)
        return Metered(
            usage,
            model[1].decode("latin-1") if model else None,
            _estimate(held, scale),
            ended=_has_ended(held),
            finished=finished,
        )


def usage_of(reported: Any) -> Usage | None:
    """Read a usage object of any of the APIs. Tokens written to a cache count as input."""
    if not isinstance(reported, dict):
        return None
    details: dict[str, Any] = next((reported[name] for name in _DETAILS if isinstance(reported.get(name), dict)), {})
    cached = details.get("cached_tokens", reported.get("cache_read_input_tokens"))
    given = _count(reported.get("prompt_tokens", reported.get("input_tokens")))
    answered = _count(reported.get("completion_tokens", reported.get("output_tokens")))
    if given is None and answered is None:
        given = _count(reported.get("total_tokens"))
        if given is None:
            return None
    written = _count(reported.get("cache_creation_input_tokens"))
    if written:
        given = (given or 0) + written
    return Usage(input_tokens=given, output_tokens=answered, cached_tokens=_count(cached))


class ConversationMeter:
    """Meters the messages of a Realtime connection in both directions until an answer reports their usage."""

    __slots__ = ("_answered", "_given")

    def __init__(self) -> None:
        self._given = self._answered = 0

    def up(self, message: str | bytes) -> None:
        """Meter a message from the client."""
        self._given += _message_tokens(message)

    def down(self, message: str | bytes) -> Usage | None:
        """Meter a message from the upstream; return the usage that it reports for earlier messages."""
        if isinstance(message, str) and '"usage"' in message:
            content = _structured(message)
            for reported in (content.get("usage"), _dict(content.get("response")).get("usage")):
                if (usage := usage_of(reported)) is not None:
                    self._given = self._answered = 0
                    return usage
        self._answered += _message_tokens(message)
        return None

    def rest(self) -> Usage | None:
        """Return the estimated unreported usage; input without an answer is free, as at OpenAI."""
        if not self._answered:
            return None
        return Usage(input_tokens=self._given, output_tokens=self._answered)


def text_tokens(body: bytes) -> int:
    """Estimate the tokens of a request body from its size; images and audio count for much less than text."""
    encoded = 0
    for mark in _BASE64_STARTS:
        start = body.find(mark)
        while start >= 0:
            start += len(mark)
            end = body.find(b'"', start)
            if end < 0:
                break
            if _is_base64(body, start, end):
                encoded += end - start
            start = body.find(mark, end)
    encoded = min(encoded, len(body))
    return math.ceil((len(body) - encoded) / BYTES_PER_TOKEN) + encoded // BASE64_BYTES_PER_TOKEN


def _is_base64(body: bytes, start: int, end: int) -> bool:
    step = 256 * 1024  # other threads get a turn in between
    return not any(body[at : min(at + step, end)].translate(None, _BASE64) for at in range(start, end, step))


def _structure(body: bytes) -> _Answer | None:
    try:
        return _decode_answer(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _is_finished(answer: _Answer | None, held: bytes) -> bool:
    """Whether a complete answer is final: background Responses are generated later."""
    if answer is not None:
        return not (isinstance(answer.status, str) and answer.status in _UNFINISHED)
    return not held.lstrip().startswith(b"{") or _STATUS_UNFINISHED.search(held) is None


def _has_ended(held: bytes) -> bool:
    """Whether the stream's last event arrived. A text cannot forge lines; an echoed schema can forge members."""
    if _LAST_EVENT.search(held) is not None:
        return True
    return _FINISH_REASON.search(held) is not None and _NAMED_EVENT.search(held) is None


def _find_usage(held: bytes) -> Usage | None:
    """Return the largest of several counts: a stream may report repeatedly."""
    found = None
    matches = list(_USAGE.finditer(held))
    for match in matches[:MOST_REPORTS] + matches[MOST_REPORTS:][-MOST_REPORTS:]:
        try:
            reported, _ = _raw_decode(held[match.end() : match.end() + USAGE_BYTES].decode("latin-1"))
        except (ValueError, RecursionError):
            continue
        if (usage := usage_of(reported)) is not None:
            found = usage if found is None else larger(found, usage)
    return found


def larger(one: Usage, other: Usage) -> Usage:
    """Return the larger of each count."""

    def of(first: int | None, second: int | None) -> int | None:
        return first if second is None else max(first or 0, second)

    return Usage(
        input_tokens=of(one.input_tokens, other.input_tokens),
        output_tokens=of(one.output_tokens, other.output_tokens),
        cached_tokens=of(one.cached_tokens, other.cached_tokens),
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


def _structured(message: str) -> dict[str, Any]:
    try:
        return _dict(_decode(message))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
