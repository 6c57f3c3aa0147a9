"""The events of a finished stream, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

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
            lines = [line for line in event.split(b"\n") if line.startswith(b"data:")]
            if lines:
                return b"\n".join(line[6:] if line.startswith(b"data: ") else line[5:] for line in lines)
        raise StopIteration
