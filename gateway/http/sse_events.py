"""The events of a finished stream, one after the other."""

from __future__ import annotations


class Events:
    r"""Iterates over the data of each event, several data lines joined by a newline; other fields are passed over.

    An event that the end of the stream cuts off is not among them (as the specification asks).

    >>> list(Events(b": hi\n\ndata: a\ndata: b\n\ndata: cut"))
    [b'a\nb']
    """

    def __init__(self, stream: bytes) -> None:
        self._plain = stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in stream else stream
        self._at = 0

    @property
    def rest(self) -> bytes:
        """The bytes of the events to come; setting them replaces these events."""
        return self._plain[self._at :]

    @rest.setter
    def rest(self, rest: bytes) -> None:
        self._plain, self._at = rest, 0

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
