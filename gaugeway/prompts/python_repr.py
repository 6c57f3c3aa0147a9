"""Parses Python reprs: `str()` of a tool's list or of a document's metadata, JSON except for a few tokens."""

from __future__ import annotations

import re
from typing import Any

import msgspec

LONGEST = 200_000
MOST_TOKENS = 20_000
"""Longest repr that is parsed, and most strings and constants in it; a longer one remains text."""

# A quote that is never closed ends with the text: looked for again from every later quote, it would cost the square.
_TOKEN = re.compile(
    r"'(?P<single>[^'\\]*+(?:\\.[^'\\]*+)*+)(?:'|\Z)"
    r'|"(?P<double>[^"\\]*+(?:\\.[^"\\]*+)*+)(?:"|\Z)'
    r"|\b(?P<constant>None|True|False)\b",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|(.))", re.DOTALL)
_CONSTANTS = {"None": "null", "True": "true", "False": "false"}
_CHARACTERS = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"'}

_decode = msgspec.json.Decoder().decode


def printed(text: str) -> Any:
    r"""Return the list or dict that `text` shows in Python's notation; None when it shows none. Never raises.

    Nothing is evaluated: strings and constants are written as JSON, and the rest has to be JSON already.

    >>> printed("[{'id': 'd1', 'text': \"It's open\", 'page': None}]")
    [{'id': 'd1', 'text': "It's open", 'page': None}]
    """
    if not ("'" in text and len(text) <= LONGEST and (text[0], text[-1]) in (("[", "]"), ("{", "}"))):
        return None
    try:
        return _decode(_TOKEN.sub(_as_json, text, count=MOST_TOKENS))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def _as_json(token: re.Match[str]) -> str:
    if (constant := token["constant"]) is not None:
        return _CONSTANTS[constant]
    said = token["single"] if token["single"] is not None else token["double"]
    if "\\" in said:
        said = _ESCAPE.sub(_character, said)
    return msgspec.json.encode(said).decode()


def _character(escape: re.Match[str]) -> str:
    """Raises ValueError for an escape Python never prints."""
    if code := escape[1] or escape[2] or escape[3]:
        return chr(int(code, 16))
    if (character := _CHARACTERS.get(escape[4])) is None:
        raise ValueError(escape[0])
    return character
