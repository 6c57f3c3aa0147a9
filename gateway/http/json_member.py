"""JSON member removal: removes the `gaugeway` member from a request body and leaves every other byte unchanged.

Nothing is decoded. Whether a key is at the top level follows from the quotes and brackets before it, which are counted
window by window at C speed. `cutting_key` pauses between windows, so that a large body does not block the event loop.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from itertools import accumulate

from gateway.http.errors import Rejection
from gateway.http.json_cursor import WINDOW_BYTES, JsonCursor, mentions, unescaped

KEY = "gaugeway"
MAX_BODY_BYTES = 64 * 1024 * 1024
"""The largest body that may have the member. OpenAI takes 50 MB of images with one request."""
MAX_VALUE_BYTES = 4 * 1024 * 1024
"""The largest value of the member: as much as the feedback API takes."""
MOST_MENTIONS = 1_000
"""How many times the string "gaugeway" may occur in one body."""

_VALUE_WINDOW_BYTES = 4_096
_PIECE_BYTES = 1024 * 1024
"""Bytes scanned for the end of the value, or copied, between two pauses: about 0.1 ms."""

_BOM = b"\xef\xbb\xbf"
_BLANKS = b" \t\n\r"
_SPACE = re.compile(rb"[ \t\n\r]*+")
_SPELLINGS = b"".join(b"(?:%c|\\\\u%04x)" % (letter, letter) for letter in KEY.encode())
_LONGEST = len(r"\u0067") * len(KEY) + len('"":')  # internal bound: a number of the format or formula
_SPELLED = re.compile(b'"' + _SPELLINGS + b'"')
_MENTION = mentions(KEY)
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_NESTED = rb"[\[{](?:[^][{}\"]++|" + _STRING + b"|%b)*+[]}]"
# A value as the key mostly has it, nested three times at most. Everything is possessive: no byte is read twice.
_USUAL = re.compile(
    b"(?:" + _STRING + b"|" + _NESTED % (_NESTED % (_NESTED % b"(?!)")) + rb'|[^][{}",]++)[ \t\n\r]*+(?=[,}])',
    re.DOTALL,
)
_MARK = re.compile(rb'[][{},"]')
_LEVELS = bytes({0x5B: 1, 0x7B: 1, 0x5D: 0xFF, 0x7D: 0xFF}.get(byte, 0) for byte in range(256))
_NO_MARKS = bytes(byte for byte in range(256) if byte not in b"[]{},")
"""To translate brackets to steps of the nesting level, as signed bytes, and all but brackets and commas to nothing."""

_NOT_JSON = "The body is not valid JSON, so the key cannot be removed from it"

Cut = tuple[list[bytes], bytes | None]
"""The body without the member, in pieces, and the member's value; no pieces and None for an unchanged body."""


def mentions_key(body: bytes) -> bool:
    """Whether the body may have the member; a fast search that also matches the word elsewhere."""
    if not body.startswith(b'{"') and b"\0" in body[:4]:  # UTF-16 or UTF-32, which some servers take as well
        body = body.replace(b"\0", b"")
    return _SPELLED.search(body) is not None


def cut_key(body: bytes) -> tuple[bytes, bytes | None]:
    """Remove the top-level member `"gaugeway": ...` from a JSON object.

    Returns the body without it and the member's value as JSON bytes; the body unchanged and None when there is no such
    member. Of several members, the last one counts and all are removed. The key may be spelled with escapes, and a BOM
    may precede the object. Raises Rejection when the member cannot be removed: it must not go upstream.

    >>> cut_key(b'{"model": "m", "gaugeway": {"app": "x"}, "n": 1}')
    (b'{"model": "m", "n": 1}', b'{"app": "x"}')
    """
    steps = cutting_key(body)
    try:
        while True:
            next(steps)
    except StopIteration as stop:
        pieces, value = stop.value
        return (body if value is None else b"".join(pieces)), value


def cutting_key(body: bytes) -> Generator[None, None, Cut]:
    """Do what `cut_key` does, with a pause after each slice. Raises Rejection."""
    if not (yield from _mentioned(body)):
        return [], None
    if b"\0" in body[:4]:
        raise _refused("The body is not UTF-8, so the key cannot be removed from it")
    return (yield from _Scan(body).run())


def _mentioned(body: bytes) -> Generator[None, None, bool]:
    """Search for the key, slice by slice: most large bodies do not have it."""
    if len(body) <= WINDOW_BYTES:
        return mentions_key(body)
    wide = b"\0" in body[:4]
    for start in range(0, len(body), WINDOW_BYTES):
        window = body[start : start + WINDOW_BYTES + 4 * _LONGEST]
        if mentions_key(window.replace(b"\0", b"") if wide else window):
            return True
        yield
    return False


class _Scan(JsonCursor):
    """One pass through a body."""

    def __init__(self, body: bytes) -> None:
        super().__init__(body)
        self._mentions = 0
        self._seen = False
        self._removed: list[tuple[int, int]] = []
        self._value: bytes | None = None

    def run(self) -> Generator[None, None, Cut]:
        body, size = self.body, len(self.body)
        self.position = yield from self._behind_blanks(len(_BOM) if body.startswith(_BOM) else 0)
        if body[self.position : self.position + 1] != b"{":
            return [], None  # no object: it has no members
        while self.position < size:
            yield from self._window(self.window_end())
            yield
        if self._seen and (self.inside or self.depth):
            raise _refused(_NOT_JSON)
        if self._value is None:
            return [], None
        return (yield from self._kept()), self._value

    def _window(self, end: int) -> Generator[None, None, None]:
        body = self.body
        for mention in _MENTION.finditer(body, self.position, end + _LONGEST):
            if mention.start() >= end:
                break
            self._mentions += 1
            if self._mentions > MOST_MENTIONS:
                raise _refused(f"The body names the key more than {MOST_MENTIONS} times")
            colon = yield from self._behind_blanks(mention.end())
            if body[colon : colon + 1] != b":":
                continue
            self._seen = True
            self.count(mention.start())
            if self.depth == 1 and not self.inside:
                yield from self._member(mention.start(), colon + 1)
                return
        self.count(end)

    def _member(self, name: int, start: int) -> Generator[None, None, None]:
        """Take out the member whose name stands at `name`, and whose value begins at `start` or behind blanks there."""
        if len(body := self.body) > MAX_BODY_BYTES:
            raise _too_large(f"The key is only read from bodies of up to {MAX_BODY_BYTES} bytes")
        first = yield from self._before_blanks(name)
        start = yield from self._behind_blanks(start)
        end = yield from self._value_end(start)
        if body[first - 1 : first] not in (b"{", b","):
            raise _refused(_NOT_JSON)
        self._value = body[start:end].rstrip(_BLANKS)
        self.position = end
        if body[end : end + 1] == b",":
            self.position = end = end + 1
        else:
            # The last member takes the comma in front of it along, which may belong to one that was cut already.
            while self._removed and self._removed[-1][1] == first:
                first, _ = self._removed.pop()
            first -= body[first - 1 : first] == b","
        self._removed.append((first, end))

    def _value_end(self, start: int) -> Generator[None, None, int]:
        """Return where the comma or bracket stands that ends the value at `start`."""
        if usual := _USUAL.match(self.body, start, start + WINDOW_BYTES):
            return usual.end()
        level = 0
        limit = min(start + MAX_VALUE_BYTES, len(self.body))
        self.position = start
        while self.position < limit:
            begin, end, inside = self.position, self.window_end(_VALUE_WINDOW_BYTES), self.inside
            text = unescaped(self.body[begin:end])
            marks = self.outside(text).translate(_LEVELS, _NO_MARKS)
            levels = list(accumulate(memoryview(marks).cast("b"), initial=level))
            if marks and min(levels) <= 0 and (found := _end_of_value(text, level, inside=inside)) is not None:
                self.inside = False
                return begin + found
            level = levels[-1]
            self.position = end
            yield
        if limit < len(self.body):
            raise _too_large(f"The key's value is larger than {MAX_VALUE_BYTES} bytes")
        raise _refused(_NOT_JSON)

    def _kept(self) -> Generator[None, None, list[bytes]]:
        pieces: list[bytes] = []
        start = 0
        for first, end in [*self._removed, (len(self.body), 0)]:
            while start < first:
                pieces.append(self.body[start : min(start + _PIECE_BYTES, first)])
                start += len(pieces[-1])
                if len(pieces[-1]) == _PIECE_BYTES:
                    yield
            start = end
        return pieces

    def _behind_blanks(self, position: int) -> Generator[None, None, int]:
        while True:
            limit = position + WINDOW_BYTES
            position = _SPACE.match(self.body, position, limit).end()  # type: ignore[union-attr]  # always matches
            if position < limit:
                return position
            yield

    def _before_blanks(self, position: int) -> Generator[None, None, int]:
        while position:
            start = max(position - WINDOW_BYTES, 0)
            if (position := start + len(self.body[start:position].rstrip(_BLANKS))) > start:
                break
            yield
        return position


def _end_of_value(text: bytes, level: int, *, inside: bool) -> int | None:
    """Return where the value that begins in or before `text` ends; None when it goes on. Raises Rejection."""
    opened = level > 0
    for mark in _MARK.finditer(text):
        if (character := mark[0]) == b'"':
            inside = not inside
        elif inside:
            continue
        elif character in b"{[":
            if level == 0 and opened:
                break
            level, opened = level + 1, True
        elif level == 0:
            if character == b"]":
                break
            return mark.start()
        elif character != b",":
            level -= 1
    else:
        return None
    raise _refused(_NOT_JSON)


def _refused(message: str) -> Rejection:
    return Rejection(400, "invalid_value", f"Invalid '{KEY}': {message}.", KEY)


def _too_large(message: str) -> Rejection:
    return Rejection(413, "request_too_large", f"Invalid '{KEY}': {message}; send x-gaugeway-* headers instead.", KEY)
