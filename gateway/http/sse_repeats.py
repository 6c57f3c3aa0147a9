"""Streams whose events differ only in a piece of text: reads the piece without decoding the rest again."""

from __future__ import annotations

import re
from operator import itemgetter
from typing import Any

import msgspec

from gateway.http.sse_events import Events

_decode = msgspec.json.Decoder().decode
_decode_text = msgspec.json.Decoder(str).decode
_decode_texts = msgspec.json.Decoder(list[str]).decode
_PROBE = "\x00probe"
_PROBE_JSON = rb"\u0000probe"
_PADDING = re.compile(rb',"obfuscation":"[A-Za-z0-9]*"\}\Z')
"""OpenAI pads its events to equal lengths; the padding means nothing."""
_PADDED = re.compile(rb',"obfuscation":"[A-Za-z0-9]*"\}\n\n')
_STRINGS = re.compile(rb'(?:[^"\\]++|\\.)*+')
"""The insides of JSON strings with newlines between them: no quote ends one early, no backslash escapes a newline."""
_MOST_LAST = 4  # internal bound: attempts at a short cut
"""Chunks at the end of a stream that need not be of a repeated event: usage, the end of the choice, `[DONE]`."""
_MOST_ATTEMPTS = 8  # internal bound: attempts at a short cut
_MOST_RUNS = 4  # internal bound: attempts at a short cut


class RepeatedEvents:
    """Recognises events that equal an earlier one in everything but the text under `keys`.

    An earlier event is kept as the bytes before and after that text. Where a later one has the same bytes around a JSON
    string, decoding it would give the same object with that string, so only the string is decoded. A stream whose
    events differ in more (log probabilities, say) is given up after `_MOST_ATTEMPTS`. Many in a row are read at once.
    """

    def __init__(self, *keys: str | int) -> None:
        self._keys = keys
        self._marker = f'"{keys[-1]}":'.encode()
        self._head = self._tail = b""
        self._padded = False
        self._attempts = self._runs = 0

    def run(self, events: Events) -> str:
        """Take the events from `events` that repeat the one learned, but the last of them; return their joined texts.

        Takes none where another event comes between them, nor after `_MOST_RUNS` times: looking reads all to the end.
        """
        if not self._head or self._runs >= _MOST_RUNS:
            return ""
        self._runs += 1
        begin = b"data: " + self._head
        if not self._padded and (found := self._whole_chunks(events, begin)) is not None:
            return found
        if self._padded:
            events.rest = _PADDED.sub(b"}\n\n", events.rest)
        if not (rest := events.rest).startswith(begin):
            return ""
        pieces, rest = self._split(rest, begin)
        if (found := _joined(pieces)) is None:
            return ""
        events.rest = rest
        return found

    def _whole_chunks(self, events: Events, begin: bytes) -> str | None:
        """Read the events that repeat the one learned, where each came as a chunk; None where they did not.

        The texts are cut out of the chunks as if all were such events, and compared with the stream at once.
        """
        end = self._tail + b"\n\n"
        chunks = events.chunks_to_come()
        last = len(chunks)
        while last and len(chunks) - last < _MOST_LAST and not chunks[last - 1].endswith(end):
            last -= 1
        if not last or not chunks[0].startswith(begin):
            return None
        pieces = list(map(itemgetter(slice(len(begin), -len(end))), chunks[:last]))
        if not (found := _joined(pieces)):
            return None
        pieces[0], pieces[-1] = begin + pieces[0], pieces[-1] + end
        return found if events.skip((end + begin).join(pieces)) else None

    def _split(self, stream: bytes, begin: bytes) -> tuple[list[bytes], bytes]:
        """Return the texts of the first events, which repeat the one learned, and the stream from the last such event.

        No texts where another event stands between them. Splitting at single bytes and comparing all at once takes a
        fraction of the time of looking for what stands between two texts.
        """
        between = self._tail + b"\n\n" + begin
        if (end := stream.rfind(between)) < 0:
            return [], stream
        end += len(self._tail)
        pieces = list(map(itemgetter(slice(len(begin), -len(self._tail))), stream[:end].split(b"\n")[::2]))
        if begin + between.join(pieces) + self._tail != stream[:end]:
            return [], stream
        return pieces, stream[end + 2 :]

    def piece(self, data: bytes) -> str | None:
        """Return the text of an event that repeats the one learned, else None."""
        head, tail = self._head, self._tail
        if not head or not data.startswith(head):
            return None
        if self._padded:
            data = _PADDING.sub(b"}", data)
        if not data.endswith(tail) or len(data) < len(head) + len(tail):
            return None
        try:
            # With the quotes that end the head and begin the tail.
            found = _decode_text(data[len(head) - 1 : 1 - len(tail) or None])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        self._attempts = 0
        return found

    def forget(self) -> None:
        """Forget the event that was learned: another one came since, and what is repeated must be the latest."""
        self._head = b""

    def learn(self, data: bytes, event: dict[str, Any]) -> None:
        """Learn a decoded event; only its text may have an effect that counts anew when it is repeated."""
        if self._attempts >= _MOST_ATTEMPTS:
            return
        self._attempts += 1
        self._padded = _PADDING.search(data) is not None
        plain = _PADDING.sub(b"}", data) if self._padded else data
        start = plain.find(b'"', plain.find(self._marker) + len(self._marker)) + 1
        end = _end_of_string(plain, start)
        head, tail = plain[:start], plain[end:]
        self._head, self._tail = (head, tail) if self._proven(head, tail, event) else (b"", b"")

    def _proven(self, head: bytes, tail: bytes, event: dict[str, Any]) -> bool:
        """Whether another string at this place changes the text under the keys and nothing else."""
        try:
            other = _decode(head + _PROBE_JSON + tail)
            found, expected = self._taken(other), self._taken(event)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError, TypeError):
            return False
        if self._padded:
            event = {key: value for key, value in event.items() if key != "obfuscation"}
        *path, last = self._keys
        holder: Any = other
        for key in path:
            holder = holder[key]
        holder[last] = expected
        return bool(found == _PROBE and other == event)

    def _taken(self, event: Any) -> Any:
        for key in self._keys:
            event = event[key]
        return event


def _joined(pieces: list[bytes]) -> str | None:
    """Decode and join the insides of JSON strings; None where one of them is none."""
    said = b"".join(pieces)
    if said.isascii() and not (b'"' in said or b"\\" in said or b"\n" in said):
        return _text(said)
    said = b"\n".join(pieces)
    if said.count(b"\n") >= len(pieces) or ((b'"' in said or b"\\" in said) and _STRINGS.fullmatch(said) is None):
        return None
    try:
        if said.isascii() and b"\\u" not in said:
            return _text(b"".join(pieces))
        # A character may be cut in two between two of them, which is an error in both: they are read apart.
        return "".join(_decode_texts(b'["' + b'","'.join(pieces) + b'"]'))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _text(inside: bytes) -> str | None:
    """Decode the inside of a JSON string; None where it is none."""
    try:
        return _decode_text(b'"' + inside + b'"')
    except msgspec.DecodeError:
        return None


def _end_of_string(data: bytes, start: int) -> int:
    """Return where a JSON string that begins at `start` ends: at the first quote that is not escaped."""
    end = data.find(b'"', start)
    while end > start and (end - start - len(data[start:end].rstrip(b"\\"))) % 2:
        end = data.find(b'"', end + 1)
    return end
