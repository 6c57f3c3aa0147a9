"""Errors of data files: the problems of a file, and why bytes are not JSON, in words that name the line."""

from __future__ import annotations

import re

from gaugeway.settings import ConfigError
from gaugeway.settings.field_errors import is_not_utf8

_BYTE = re.compile(r"\(byte (\d+)\)")
_NUMBER = re.compile(rb"-?(?:NaN|Infinity)")


class DataError(ConfigError):
    """Raised for an invalid data set; `problems` has one line per error."""


def json_problem(content: bytes, error: Exception) -> tuple[int, str]:
    r"""Return the line in `content`, from 1, and the reason for an error of msgspec's decoder.

    >>> json_problem(b'{"a":\n NaN}', ValueError("JSON is malformed: invalid character (byte 7)"))
    (2, 'not JSON: NaN is no JSON number, write null')
    """
    if is_not_utf8(error):
        return utf8_problem(content)
    match = _BYTE.search(str(error))
    at = int(match[1]) if match else 0
    line = content[:at].count(b"\n") + 1
    # The decoder names a byte of the number, which may be the one behind its sign.
    number = next(filter(None, (_NUMBER.match(content, max(0, at - back)) for back in (2, 1, 0))), None)
    if number is not None:
        return line, f"not JSON: {number[0].decode()} is no JSON number, write null"
    return line, f"not JSON: {error}"


def utf8_problem(content: bytes) -> tuple[int, str]:
    """Return the line in `content`, from 1, and the reason why it is not UTF-8."""
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        return line, f"not UTF-8: {error.reason} 0x{content[error.start]:02x}"
    return 1, "not UTF-8"
