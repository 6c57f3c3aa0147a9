"""Why bytes are not JSON, in words that name the line."""

from __future__ import annotations

import re

_BYTE = re.compile(r"\(byte (\d+)\)")
_NUMBER = re.compile(rb"-?(?:NaN|Infinity)")


def problem(content: bytes, error: Exception) -> tuple[int, str]:
    r"""Return the line in `content`, from 1, and the reason for an error of msgspec's decoder.

    >>> problem(b'{"a":\n NaN}', ValueError("JSON is malformed: invalid character (byte 7)"))
    (2, 'not JSON: NaN is no JSON number, write null')
    """
    if isinstance(error, UnicodeDecodeError):
        return _not_utf8(content, error)
    match = _BYTE.search(str(error))
    at = int(match[1]) if match else 0
    line = content[:at].count(b"\n") + 1
    # The decoder names a byte of the number, which may be the one behind its sign.
    number = next(filter(None, (_NUMBER.match(content, max(0, at - back)) for back in (2, 1, 0))), None)
    if number is not None:
        return line, f"not JSON: {number[0].decode()} is no JSON number, write null"
    return line, f"not JSON: {error}"


def _not_utf8(content: bytes, error: UnicodeDecodeError) -> tuple[int, str]:
    """The error counts from the beginning of a string inside; find it in the whole."""
    try:
        content.decode()
    except UnicodeDecodeError as whole:
        error = whole
    return content[: error.start].count(b"\n") + 1, f"not UTF-8: {error.reason} 0x{error.object[error.start]:02x}"
