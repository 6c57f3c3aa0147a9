"""Says which field of a JSON document is wrong, and how, in words of JSON instead of Python's."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gaugeway.settings import explained

MAX_SEARCHED_BYTES = 64 * 1024
"""The largest document in which the wrong member of a mapping is searched for; in others the mapping is named."""
MAX_NAME = 100
"""Characters of a client's own name in an error."""

_WORDS = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}
_GOT = {**_WORDS, "int": "a number", "bool": "a boolean"}
_TYPES = re.compile(r"Expected `([^`]+)`(?:, got `([^`]+)`)?")
_LENGTH = re.compile(r"Expected `(str|array)` of length (>=|<=) (\d+)")
_RANGE = re.compile(r"Expected `(?:int|float)` (>=|<=|>|<) (\S+)")
_BOUNDS = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_MEMBER = "[...]"
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


def located(error: Exception, document: bytes, kind: Any) -> tuple[str, str]:
    """Return the wrong field of `document` (".contexts[0].text", "" for all of it) and what is wrong.

    `error` is what decoding the document into `kind` raised: a msgspec.DecodeError or UnicodeDecodeError.

    >>> def wrong(document, kind):
    ...     try:
    ...         msgspec.json.decode(document, type=kind)
    ...     except msgspec.DecodeError as error:
    ...         return located(error, document, kind)
    >>> wrong(b'[1, "two"]', list[int]), wrong(b'{"a": "b", "c": 1}', dict[str, str | None])
    (('[1]', 'expected an integer, got a string'), ('.c', 'expected a string, got a number'))
    """
    if is_not_utf8(error):
        return "", "not valid UTF-8"
    path, message = explained(error, kind)
    for pattern, words in ((_UNKNOWN, "unknown field"), (_MISSING, "required, but missing")):
        if found := pattern.fullmatch(message):
            path, message = f"{path}.{found[1][:MAX_NAME]}", words
    if _MEMBER in path:
        path = _named(path, document, kind)
    return path, in_words(message)


def is_not_utf8(error: Exception) -> bool:
    """Whether decoding failed as bytes are not UTF-8; since 0.23 msgspec has an error of its own for that."""
    return isinstance(error, UnicodeDecodeError) or str(error).startswith("Invalid UTF-8")


def in_words(message: str) -> str:
    """Return what msgspec says of a value in words of JSON.

    >>> in_words("Expected `int`, got `str`"), in_words("Expected `float` <= 1.0")
    ('expected an integer, got a string', 'expected a number of at most 1')
    """
    if found := _LENGTH.fullmatch(message):
        unit = "character" if found[1] == "str" else "element"
        return f"expected {_BOUNDS[found[2]]} {int(found[3]):,} {unit}{'' if found[3] == '1' else 's'}"
    if found := _RANGE.fullmatch(message):
        return f"expected a number of {_BOUNDS[found[1]]} {found[2].removesuffix('.0')}"
    if found := _TYPES.fullmatch(message):
        kinds = [kind for kind in found[1].split(" | ") if kind != "null"] or ["null"]
        expected = " or ".join(_WORDS.get(kind, kind) for kind in kinds)
        if found[2] is None:
            return f"expected {expected}"
        got = "a fraction" if found[2] == "float" and "int" in kinds else _GOT.get(found[2], found[2])
        return f"expected {expected}, got {got}"
    return message[:1].lower() + message[1:] if message[1:2].islower() else message


def _named(path: str, document: bytes, kind: Any) -> str:
    """Replace the first `[...]` of a path, a member of a mapping, by the member's name.

    msgspec does not tell which member it is. It is found by bisection: by decoding with fewer and fewer members.
    """
    before, _, after = path.partition(_MEMBER)
    if len(document) > MAX_SEARCHED_BYTES:
        return before
    whole = msgspec.json.decode(document)
    if not _fails(msgspec.json.encode(whole), kind):  # the wrong member stands twice, and its last value is right
        return before
    mapping = whole
    for name, index in _STEP.findall(before):
        mapping = mapping[name] if name else mapping[int(index)]
    members = list(mapping.items())
    good, bad = 0, len(members)
    while bad - good > 1:
        middle = (good + bad) // 2
        mapping.clear()
        mapping.update(members[:middle])
        if _fails(msgspec.json.encode(whole), kind):
            bad = middle
        else:
            good = middle
    named = f"{before}.{members[bad - 1][0][:MAX_NAME]}"
    return named + after.partition(_MEMBER)[0]


def _fails(document: bytes, kind: Any) -> bool:
    try:
        msgspec.json.decode(document, type=kind)
    except msgspec.ValidationError:
        return True
    return False
