"""Requests the usage of a stream that the client did not request, and hides it from the client."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gateway.http.json_cursor import value_starts
from gaugeway.exchange import Headers

ROUTES = frozenset({"chat_completions", "completions"})
_NAME, _ASKED = "stream_options", "include_usage"
_TRUE = b'"include_usage":true'
_OPTIONS = b"{" + _TRUE + b"}"
_END_OF_EVENT = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_END_BYTES = 4
MAX_EVENT_BYTES = 65_536
"""The largest event that is buffered: an event with usage alone has some hundred bytes."""


class _Body(msgspec.Struct):
    stream: bool = False
    stream_options: msgspec.Raw = msgspec.Raw()


class _Chunk(msgspec.Struct):
    choices: list[Any]
    usage: dict[str, Any] | None = None


MOST_MENTIONS = 1_000
"""How many times the string "stream_options" may occur in a body in which the options are changed."""
_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_read_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_read_body = msgspec.json.Decoder(_Body).decode
_read_chunk = msgspec.json.Decoder(_Chunk).decode


def ask_for_usage(body: bytes) -> bytes | None:
    """Set `stream_options.include_usage` in the body of a streamed request; all other bytes stay.

    Returns None when there is nothing to do: no stream, usage requested already, no JSON object, or options that no
    upstream accepts or that stand twice.

    >>> ask_for_usage(b'{"model": "m", "stream": true}')
    b'{"stream_options":{"include_usage":true},"model": "m", "stream": true}'
    >>> ask_for_usage(b'{"stream": true, "stream_options": null}')
    b'{"stream": true, "stream_options": {"include_usage":true}}'
    """
    try:
        said = _read_body(body)
        if not said.stream:
            return None
        if not (options := bytes(said.stream_options)):
            start = body.index(b"{") + 1
            return b'%b"%b":%b,%b' % (body[:start], _NAME.encode(), _OPTIONS, body[start:])
        asked = _asking(options)
        return None if asked is None else _replaced(body, _NAME, options, asked)
    except _UNDECODABLE:
        return None


def _asking(options: bytes) -> bytes | None:
    """Return the value of `stream_options` with `include_usage`, None when it stays; raises what decoding does."""
    if options == b"null":
        return _OPTIONS
    if _ASKED not in (members := _read_members(options)):
        return b"{%b%b%b" % (_TRUE, b"," if members else b"", options[1:])
    asked = bytes(members[_ASKED])
    return _replaced(options, _ASKED, asked, b"true") if asked in (b"false", b"null") else None


def _replaced(body: bytes, name: str, value: bytes, new: bytes) -> bytes | None:
    """Replace the value of the member `name`; None where it does not stand exactly once."""
    try:
        starts = list(value_starts(body, name, MOST_MENTIONS))
    except ValueError:
        return None
    return None if len(starts) != 1 else body[: starts[0]] + new + body[starts[0] + len(value) :]


class HideUsage:
    """Removes the chunk that carries only usage from a stream; every other byte passes unchanged.

    An event is buffered until it is complete, or has more than MAX_EVENT_BYTES: such an event passes. What is buffered
    is searched once for the end of the event.
    """

    def __init__(self) -> None:
        self._held = bytearray()
        self._passed = 0  # how much of what is held went on already, of an event that is too large

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the stream, and return those to send on."""
        held = self._held
        searched = max(len(held) - _END_BYTES + 1, 0)
        held += data
        passed: list[bytes] = []
        start = 0
        for end in _END_OF_EVENT.finditer(held, searched):
            event = bytes(held[start : end.end()])
            start = end.end()
            if self._passed:
                passed.append(event[self._passed :])
                self._passed = 0
            elif len(event) > MAX_EVENT_BYTES or not _is_usage(event):
                passed.append(event)
        del held[:start]
        if self._passed or len(held) > MAX_EVENT_BYTES:
            passed.append(bytes(held[self._passed :]))
            del held[: 1 - _END_BYTES]
            self._passed = len(held)
        return b"".join(passed)

    def flush(self) -> bytes:
        """Return what is still buffered at the end of the stream: an incomplete event."""
        left = bytes(self._held[self._passed :])
        self._held.clear()
        self._passed = 0
        return left


def can_be_hidden(response_headers: Headers) -> bool:
    """Whether an event can be removed from the response: a stream without Content-Encoding and Content-Length."""
    names = {name.lower(): value for name, value in response_headers}
    streams = names.get(b"content-type", b"").startswith(b"text/event-stream")
    return streams and not names.keys() & {b"content-encoding", b"content-length"}


def _is_usage(event: bytes) -> bool:
    if b'"usage"' not in event:
        return False
    lines = [line[5:] for line in event.splitlines() if line.startswith(b"data:")]
    try:
        chunk = _read_chunk(b"\n".join(lines))
    except _UNDECODABLE:
        return False
    return not chunk.choices and chunk.usage is not None
