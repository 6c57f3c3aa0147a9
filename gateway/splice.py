"""Taking our own key out of a JSON body by cutting bytes: everything else stays exactly as the client wrote it."""

from __future__ import annotations

import re
from json import decoder as json_decoder

KEY = "gaugeway"
_NEEDLE = f'"{KEY}"'.encode()
_SPACE = re.compile(r"[ \t\n\r]*")
_raw_decode = json_decoder.JSONDecoder().raw_decode
_scan_string = json_decoder.scanstring  # type: ignore[attr-defined]  # public by its use, missing in typeshed


def mentions_key(body: bytes) -> bool:
    """Whether `cut_key` is worth calling: a quick look, true also when the word only occurs inside a text."""
    return _NEEDLE in body


def cut_key(body: bytes) -> tuple[bytes, bytes | None]:
    """Cut the top-level member `"gaugeway": ...` out of a JSON object.

    Returns the body without it and the member's value as JSON bytes; the body unchanged and None when there is no such
    member or the body is no JSON object (which the upstream may then say). Of several members, the last one counts and
    all are cut.

    >>> cut_key(b'{"model": "m", "gaugeway": {"app": "x"}, "n": 1}')
    (b'{"model": "m", "n": 1}', b'{"app": "x"}')
    """
    try:
        text = body.decode()
        spans = list(_members(text))
    except (UnicodeDecodeError, ValueError, RecursionError, IndexError):
        return body, None
    kept: list[str] = []
    value: str | None = None
    for key, member, member_value in spans:
        if key == KEY:
            value = member_value
        else:
            kept.append(member)
    if value is None:
        return body, None
    opening = _SPACE.match(text)
    start = opening.end() if opening else 0
    end = text.rindex("}")
    return (text[: start + 1] + ",".join(kept) + text[end:]).encode(), value.encode()


def _members(text: str) -> list[tuple[str, str, str]]:
    """Return (key, the member as written up to its comma, its value as written) of the object `text`."""
    position = _skip(text, 0)
    if text[position] != "{":
        raise ValueError("not an object")
    members: list[tuple[str, str, str]] = []
    position += 1
    if text[_skip(text, position)] == "}":
        return members
    while True:
        start = position
        position = _skip(text, position)
        if text[position] != '"':
            raise ValueError("a key is a string")
        key, position = _scan_string(text, position + 1)
        position = _skip(text, position)
        if text[position] != ":":
            raise ValueError("a colon follows the key")
        value_start = _skip(text, position + 1)
        _, value_end = _raw_decode(text, value_start)
        position = _skip(text, value_end)
        members.append((key, text[start:position], text[value_start:value_end]))
        if text[position] == "}":
            break
        if text[position] != ",":
            raise ValueError("a comma or the end follows a member")
        position += 1
    if _skip(text, position + 1) != len(text):
        raise ValueError("text after the object")
    return members


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position
