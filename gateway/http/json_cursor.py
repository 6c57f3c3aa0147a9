"""A position in a JSON text that is moved on without decoding: quotes and brackets are counted at C speed."""

from __future__ import annotations

import re

WINDOW_BYTES = 65_536
"""Bytes counted in one step: mostly a tenth of a millisecond."""

_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")


class JsonCursor:
    """A position in `body`, with the nesting depth there and whether it is inside of a string."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.position = 0
        self.depth = 0
        self.inside = False

    def window_end(self, size: int = WINDOW_BYTES) -> int:
        """Return where the next window ends: not between a backslash and what it escapes."""
        body, start = self.body, self.position
        end = min(start + size, len(body))
        if body.endswith(b"\\", start, end):
            window = body[start:end]
            end += (len(window) - len(window.rstrip(b"\\"))) % 2
        return min(end, len(body))

    def count(self, end: int) -> None:
        """Move on to `end`, which is not behind a backslash that escapes it."""
        outside = self.outside(unescaped(self.body[self.position : end]))
        self.position = end
        brackets = outside.translate(None, _NO_BRACKETS)
        opening = len(brackets) - len(brackets.translate(None, b"{["))
        self.depth += 2 * opening - len(brackets)

    def advance(self, end: int) -> None:
        """Move on to `end` as `count` does, window by window: memory stays small whatever stands there."""
        while self.position < end:
            self.count(min(self.window_end(), end))

    def outside(self, text: bytes) -> bytes:
        """Return what of the next bytes, without their escapes, stands outside of strings."""
        parts = text.split(b'"')
        outside = b"".join(parts[self.inside :: 2])
        self.inside ^= not len(parts) % 2
        return outside


def unescaped(text: bytes) -> bytes:
    """Return `text` with blanks in place of escaped quotes and backslashes; it does not begin in an escape."""
    return text.replace(rb"\\", b"  ").replace(rb"\"", b"  ") if b"\\" in text else text


def mentions(name: str) -> re.Pattern[bytes]:
    """Return a pattern for `name` as a JSON string, in all its spellings, in front of what may lead to a colon.

    A quote behind a backslash opens no string.
    """
    spellings = b"".join(b"(?:%c|\\\\u(?i:%04x))" % (letter, letter) for letter in name.encode("ascii"))
    return re.compile(rb'"(?<!\\")' + spellings + rb'"(?=[: \t\n\r])')
