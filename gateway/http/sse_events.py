"""The events of a finished stream, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from gateway.http import lenient_json

_MARK = b"\xef\xbb\xbf"
"""A byte order mark, which the specification has readers pass over."""


class Events:
    r"""Iterates over the data of each event, several data lines joined by a newline; other fields are passed over.

    An event that the end of the stream cuts off is not among them (as the specification asks). `chunks` are the pieces
    in which the stream came, if they are known: most upstreams send each event as one.

    >>> list(Events(b": hi\n\ndata: a\ndata: b\n\ndata: cut"))
    [b'a\nb']
    """

    def __init__(self, stream: bytes, chunks: Sequence[bytes] = ()) -> None:
        marked = stream.startswith(_MARK)
        stream = stream.removeprefix(_MARK)
        self._plain = stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in stream else stream
        self._at = 0
        self._chunks = chunks if self._plain is stream and not marked else ()

    @property
    def rest(self) -> bytes:
        """The bytes of the events to come; setting them replaces these events."""
        return self._plain[self._at :]

    @rest.setter
    def rest(self, rest: bytes) -> None:
        self._plain, self._at, self._chunks = rest, 0, ()

    def chunks_to_come(self) -> Sequence[bytes]:
        """Return the chunks of the events to come; none where they are not known, or an event has part of a chunk."""
        read = 0
        for number, chunk in enumerate(self._chunks):
            if read >= self._at:
                return self._chunks[number:] if read == self._at else ()
            read += len(chunk)
        return ()

    def skip(self, begin: bytes) -> bool:
        """Pass over the events to come if they are, or begin with, these bytes; return whether they did."""
        if not self._plain.startswith(begin, self._at):
            return False
        self._at += len(begin)
        return True

    def __iter__(self) -> Events:
        return self

    def __next__(self) -> bytes:
        while (end := self._plain.find(b"\n\n", self._at)) >= 0:
            event, self._at = self._plain[self._at : end], end + 2
            if event.startswith(b"data: ") and b"\n" not in event:
                return event[6:]
            if lines := [line for line in event.split(b"\n") if line.startswith(b"data:")]:
                return b"\n".join(line[6:] if line.startswith(b"data: ") else line[5:] for line in lines)
        raise StopIteration


DONE = b"[DONE]"
_decode = msgspec.json.Decoder().decode


class Objects:
    """Decodes events.

    An event that is no valid JSON for its characters alone is read all the same (`lenient_json`): to drop it would
    leave its text out of the answer. Half of a surrogate pair waits for its other half, which may come with the next
    event, so after such an event `whole` must be called on what was made of all.
    """

    def __init__(self) -> None:
        self._odd = False

    def of(self, stream: bytes) -> Iterator[dict[str, Any]]:
        """Yield every event that is a JSON object; `[DONE]` and what is no JSON is skipped."""
        for data in Events(stream):
            if (event := self.read(data)) is not None:
                yield event

    def read(self, data: bytes) -> dict[str, Any] | None:
        """Decode an event; None if it is no JSON object."""
        if data == DONE:
            return None
        try:
            event = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            event = self._leniently(data)
        return event if isinstance(event, dict) else None

    def whole(self, value: dict[str, Any]) -> dict[str, Any]:
        """Return what was made of the events, without halves of surrogate pairs."""
        if self._odd:
            lenient_json.mend(value)
        return value

    def _leniently(self, data: bytes) -> Any:
        try:
            event = lenient_json.read(data)
        except (ValueError, RecursionError):
            return None
        self._odd = True
        return event
