"""Decodes data in any notation, and finds records in it by their form: siblings with one field of varying prose.

Nothing is evaluated: what Python prints is written as JSON. No name of a field is known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from gaugeway.prompts.sizes import BOOK, CHAPTER, CROWD, FEW, LINE, REMEMBERED, SEVERAL, WORD

LONGEST = BOOK
MOST_TOKENS = CHAPTER
"""Longest repr that is parsed, and most tokens in it; a longer one remains text."""
MOST_VALUES = REMEMBERED
"""Most values of one result that are read: more than the limits keep."""
_DEEPEST, _BESIDE, _TRIES, _SHOWS = SEVERAL, 2 * LINE, FEW, 2
_MANY, _MOST_CELLS = 2, CROWD
WIDE = 0x2E80
"""From here on a character is a syllable or a word (Chinese, Japanese, Korean)."""
_WORDS, _WORDS_OF_A_SENTENCE, _CHARACTERS, _LOOKED_AT = SEVERAL, FEW + 1, WORD, 2 * LINE
# A quote that is never closed ends with the text: looked for again from every later quote, it would cost the square.
_TOKEN = re.compile(
    r"'(?P<single>[^'\\]*+(?:\\.[^'\\]*+)*+)(?:'|\Z)"
    r'|"(?P<double>[^"\\]*+(?:\\.[^"\\]*+)*+)(?:"|\Z)'
    r"|(?P<rest>\d[\d.e+-]*+|[^'\"A-Za-z_()\[\]{}<0-9]++)|(?P<open>[(\[{])|(?P<close>[)\]}])"
    r"|(?P<key>\b[A-Za-z_]\w*+)\s*+=|(?P<call>\b[A-Za-z_][\w.]*+)\((?P<named>(?=\s*+[A-Za-z_]\w*+\s*+=))?"
    r"|(?P<name>[A-Za-z_]\w*+)|(?P<shown><[^<>\n]{1,200}>)",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|(.))", re.DOTALL)
_CONSTANTS = {"None": "null", "True": "true", "False": "false", "nan": "null", "inf": "null"}
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_CLOSES = {"(": "]", "[": "]", "{": "}"}
_BEGINS = re.compile(r"(?:\A|(?<=[\s:>`[]))(?:[\[{(](?=[\s\[{(\"'\w])|[A-Z]\w{2,60}\()")
_ENDS = re.compile(r"[\]})](?=\s|\Z|</|<\||```|\]\]>|[.;]\s)")
_decode = msgspec.json.Decoder().decode
Path = tuple[str, ...]


class FormRecord(NamedTuple):
    """A record found by form: its prose, and the objects in which it stands, the nearest one first."""

    text: str
    places: tuple[dict[str, Any], ...]


def json_value(text: str) -> Any:
    """Return the value of a text that is JSON; None for anything else."""
    try:
        return _decode(text.encode())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def printed(text: str) -> Any:
    r"""Return the values that `text` shows in Python's notation, objects as dicts; None when none. Never raises.

    >>> printed("[Document(id='d1', text=\"It's open\", pages=(3, None))]")
    [{'id': 'd1', 'text': "It's open", 'pages': [3, None]}]
    """
    if len(text) > LONGEST or not text or text[-1] not in ")]}" or ("'" not in text and '"' not in text):
        return None
    try:
        return _decode("".join(_as_json(text)))
    except (msgspec.DecodeError, ValueError, RecursionError, UnicodeEncodeError):
        return None


def _as_json(text: str) -> list[str]:
    """Raises ValueError for what Python never prints."""
    written: list[str] = []
    closing: list[str] = []
    end = 0
    for number, token in enumerate(_TOKEN.finditer(text)):
        if number >= MOST_TOKENS or token.start() != end:
            raise ValueError(number)
        end, kind, said = token.end(), token.lastgroup, token[0]
        if kind in ("single", "double"):
            inner = token[kind]
            written.append(msgspec.json.encode(_ESCAPE.sub(_character, inner) if "\\" in inner else inner).decode())
        elif kind == "key":
            written.append(f'"{token["key"]}":')
        elif kind in ("call", "named", "open"):
            if kind == "call" and "." not in said and not said[0].isupper():
                raise ValueError(said)  # print('a')
            shape = said if kind == "open" else "{" if token["named"] is not None else "("
            closing.append(_CLOSES[shape])
            written.append("{" if shape == "{" else "[")
        elif kind == "close":
            if written[-1].strip() == ",":
                written.pop()  # ('one',)
            written.append(closing.pop() if closing else said)
        elif kind == "name":
            written.append(_CONSTANTS.get(said) or _refuse(said))
        else:
            written.append(msgspec.json.encode(said).decode() if kind == "shown" else said)
    return written


def _refuse(said: str) -> str:
    raise ValueError(said)


def _character(escape: re.Match[str]) -> str:
    """Raises ValueError for an escape Python never prints."""
    if code := escape[1] or escape[2] or escape[3]:
        return chr(int(code, 16))
    if (character := _ESCAPES.get(escape[4])) is None:
        raise ValueError(escape[0])
    return character


def decoded(text: str) -> Any:
    """Decode `text` as JSON, JSON lines, or what Python prints; None for anything else."""
    stripped = text.strip()
    if not stripped or not (stripped[0] in "[{(" or (stripped[-1] == ")" and _BEGINS.match(stripped[:LINE]))):
        return None
    value = json_value(stripped)
    if value is None and stripped[0] == "{" and "\n" in stripped:
        value = _of_lines(stripped)
    value = printed(stripped) if value is None else value
    return value if isinstance(value, dict | list) else None


def _of_lines(text: str) -> list[dict[str, Any]] | None:
    """Decode an object a line, as JSON or as Python prints it; None where a line is none."""
    found: list[dict[str, Any]] = []
    for line in text.split("\n", MOST_VALUES):
        if line and not line.isspace():
            value = json_value(line)
            value = printed(line.strip()) if value is None else value
            if not isinstance(value, dict):
                return None
            found.append(value)
    return found


def shown(text: str) -> Any:
    """Decode the data that is most of a text: between a short introduction, fences, tags or tokens; None without."""
    if text[:1] == '"' and isinstance(said := json_value(text), str):
        text = said
    if (value := decoded(text)) is not None:
        return value
    ends = [match.end() for match in _ENDS.finditer(text, max(0, len(text) - _BESIDE))]
    if not ends and text[-1:] not in ")]}":
        return None
    for number, start in enumerate(_BEGINS.finditer(text, 0, _BESIDE)):
        if number == _TRIES:
            break
        for end in ends[: -_TRIES - 1 : -1]:
            if _SHOWS * (end - start.start()) < len(text):
                continue
            if (value := decoded(text[start.start() : end])) is not None and value:
                return value
    return None


def form_records(value: Any) -> list[FormRecord]:
    """Return the records of decoded data: siblings of one shape with a field of prose that varies, in order."""
    return _Tree().records(value, (), 0)


class _Tree:
    """Walks through decoded data, bounded in depth and number of values."""

    def __init__(self) -> None:
        self._left = MOST_VALUES

    def records(self, value: Any, around: tuple[dict[str, Any], ...], depth: int) -> list[FormRecord]:
        self._left -= 1
        if depth > _DEEPEST or self._left < 0:
            return []
        if isinstance(value, str):
            inner = decoded(value)
            return [] if inner is None else self.records(inner, around, depth + 1)
        if isinstance(value, dict):
            if rows := _rows(value):
                return self.records(rows, around, depth + 1)
            inside = list(value.values())[:MOST_VALUES]
            if len(inside) >= _MANY and all(
                isinstance(inner, dict) and inner.keys() == inside[0].keys() for inner in inside
            ):
                return self._siblings(inside, (value, *around), depth)
            found = [self.records(inner, (value, *around), depth + 1) for inner in inside]
            return max(found, key=_length, default=[])
        return self._siblings(value[:MOST_VALUES], around, depth) if isinstance(value, list) else []

    def _siblings(self, members: list[Any], around: tuple[dict[str, Any], ...], depth: int) -> list[FormRecord]:
        members = [_content_of(member) for member in members]
        within = [record for member in members for record in self.records(member, around, depth + 1)]
        if not within and (width := _width(members)):
            members = [{str(place): member[place] for place in range(width)} for member in members]
        if members and all(isinstance(member, str) and runs_on(member) for member in members):
            own = [FormRecord(member, around) for member in members] if not within else []
        elif members and all(isinstance(member, dict) for member in members):
            own = _of_one_shape(members)
        else:
            own = []
        own = own if len({record.text for record in own}) == len(own) else []
        return own if _length(own) > _length(within) else within


def _content_of(member: Any) -> Any:
    """Return the data that a text or a content part is; anything else as it is."""
    is_part = isinstance(member, dict) and member.keys() == {"type", "text"}
    said = member["text"] if is_part else member
    value = (shown if is_part else decoded)(said) if isinstance(said, str) else None
    return member if value is None else value


def _width(members: list[Any]) -> int:
    """Return the length of members that are lists of one length, such as pairs of a document and its score."""
    sizes = {len(member) if isinstance(member, list) else 0 for member in members}
    return sizes.pop() if len(sizes) == 1 and max(sizes) in range(_MANY, _MOST_CELLS + 1) else 0


def _length(records: list[FormRecord]) -> int:
    return sum(len(record.text) for record in records)


def _of_one_shape(members: list[dict[str, Any]]) -> list[FormRecord]:
    """Return the records of siblings that have most of their fields in common, by their longest field of prose."""
    paths = [dict(islice(_texts(member, ()), _MOST_CELLS)) for member in members]
    common = [path for path in paths[0] if sum(path in texts for texts in paths) == len(members)]
    prose = [path for path in common if _MANY * sum(runs_on(texts[path]) for texts in paths) >= len(members)]
    if not prose or any(len(member) < _MANY and len(members) < _MANY for member in members):
        return []
    *others, (_, path) = sorted((sum(len(texts[path]) for texts in paths), path) for path in prose)
    if others and _MANY * others[-1][0] > sum(len(texts[path]) for texts in paths):
        return []  # two texts a record: either may be the passage
    return [FormRecord(texts[path], tuple(_places(member, path))) for member, texts in zip(members, paths, strict=True)]


def _texts(value: dict[str, Any], path: Path) -> Iterator[tuple[Path, str]]:
    for key, inner in value.items():
        if isinstance(inner, str):
            yield (*path, key), inner
        elif isinstance(inner, dict) and len(path) < _MANY:
            yield from _texts(inner, (*path, key))


def _places(member: dict[str, Any], path: Path) -> Iterator[dict[str, Any]]:
    place: Any = member
    yield member
    for key in path[:-1]:
        place = place[key]
        yield place
    yield from (inner for inner in member.values() if isinstance(inner, dict) and inner is not place)


def _rows(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Turn columns into records: lists of one length (for each query), or a list of names beside one of rows."""
    columns = {key: said for key, said in value.items() if isinstance(said, list) and said}
    if not _MANY <= len(columns) <= _MOST_CELLS:
        return []
    flat = {key: said[0] if len(said) == 1 and isinstance(said[0], list) else said for key, said in columns.items()}
    sizes = {len(said) for said in flat.values()}
    if len(sizes) == 1 and any(all(isinstance(cell, str) for cell in said) for said in flat.values()):
        return [dict(zip(flat, cells, strict=True)) for cells in zip(*flat.values(), strict=True)]
    for names in columns.values():
        for table in columns.values():
            if all(isinstance(name, str) for name in names) and all(
                isinstance(row, list) and len(row) == len(names) for row in table
            ):
                return [dict(zip(names, row, strict=True)) for row in table]
    return []


def runs_on(text: str) -> bool:
    """Whether a text is at least a sentence rather than a name."""
    words = len(text.split(None, _WORDS))
    ends = text.rstrip()[-1:] in (".", "!", "?", "\u3002", "\u2026")
    return words >= _WORDS or (ends and words >= _WORDS_OF_A_SENTENCE) or is_wide(text)


def is_wide(text: str) -> bool:
    """Whether a text has a sentence in a script without spaces between words."""
    return sum(ord(character) >= WIDE for character in text[:_LOOKED_AT]) >= _CHARACTERS
