"""A position in a JSON text that advances without decoding: quotes and brackets are counted at C speed."""

from __future__ import annotations

import re
from collections.abc import Iterator

WINDOW_BYTES = 65_536
"""Bytes counted in one step, which takes about 0.1 ms."""

_VALUE = re.compile(rb"[ \t\n\r]*+:[ \t\n\r]*+")
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")


class JsonCursor:
    """A position in `body`, with its nesting depth and whether it is inside a string."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.position = 0
        self.depth = 0
        self.inside = False

    def window_end(self, size: int = WINDOW_BYTES) -> int:
        """Return where the next window ends: not between a backslash and what it escapes."""
        body, start = self.body, self.position
        if body.endswith(b"\\", start, (end := min(start + size, len(body)))):
            window = body[start:end]
            end += (len(window) - len(window.rstrip(b"\\"))) % 2
        return min(end, len(body))

    def count(self, end: int) -> None:
        """Advance to `end`, which must not follow an escaping backslash."""
        outside = self.outside(unescaped(self.body[self.position : end]))
        self.position = end
        brackets = outside.translate(None, _NO_BRACKETS)
        opening = len(brackets) - len(brackets.translate(None, b"{["))
        self.depth += 2 * opening - len(brackets)

    def advance(self, end: int) -> None:
        """Advance to `end` as `count` does, window by window, which bounds the memory used."""
        while self.position < end:
            self.count(min(self.window_end(), end))

    def outside(self, text: bytes) -> bytes:
        """Return the part of `text`, the next bytes without their escapes, that is outside strings."""
        parts = text.split(b'"')
        outside = b"".join(parts[self.inside :: 2])
        self.inside ^= not len(parts) % 2
        return outside


def value_starts(body: bytes, name: str, most: int) -> Iterator[int]:
    """Yield where the values of the top-level members `name` begin in `body`, which must be a valid JSON object.

    Raises ValueError where the name occurs more than `most` times.
    """
    cursor = JsonCursor(body)
    for count, mention in enumerate(mentions(name).finditer(body)):
        if count == most:
            raise ValueError("too many to look at")
        cursor.advance(mention.start())
        value = _VALUE.match(body, mention.end())
        if cursor.depth == 1 and not cursor.inside and value is not None:
            yield value.end()


def unescaped(text: bytes) -> bytes:
    """Return `text` with escaped quotes and backslashes replaced by blanks; it must not begin within an escape."""
    return text.replace(rb"\\", b"  ").replace(rb"\"", b"  ") if b"\\" in text else text


def mentions(name: str) -> re.Pattern[bytes]:
    """Return a pattern for `name` as a JSON string in any spelling, followed by a colon or a blank.

    A quote after a backslash does not open a string.
    """
    spellings = b"".join(b"(?:%c|\\\\u(?i:%04x))" % (letter, letter) for letter in name.encode("ascii"))
    return re.compile(rb'"(?<!\\")' + spellings + rb'"(?=[: \t\n\r])')
