"""Reads the result of a tool or search service into passages: common JSON shapes, MCP results, text.

What Python prints (`str()` of a list or of metadata) is JSON except for a few tokens.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from gaugeway.data_files import table
from gaugeway.prompts.notation import MOST_VALUES, FormRecord, decoded, form_records, runs_on, shown
from gaugeway.prompts.sizes import FEW, PAGE, SEVERAL
from gaugeway.records import Context

_PART_TYPES = ("text", "input_text", "output_text")
_MCP_KEYS = frozenset({"content", "structuredContent", "isError", "_meta"})
_DEPTH, _DEEPEST, _INTRODUCED = SEVERAL + 2, 2 * FEW, FEW
_SOURCE_BLOCK = re.compile(r"(?:\A|\n{1,2})Source: (?P<source>[^\n]*)\nContent: ")
_METADATA = 2 * PAGE
"""Characters of a block's `Source:` line up to which it may be printed metadata."""
_SECTION = re.compile(r"(?:\A|\n\n)# [^\n]*\nDocumentation URL:(?P<url>[^\n]*)\n\n")
_T = TypeVar("_T")


class _Keys:
    """Keys in the order in which they are tried. `known` are the same: most objects have none of them."""

    __slots__ = ("_order", "known")

    def __init__(self, *keys: str) -> None:
        self._order = keys
        self.known = frozenset(keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._order)


_NAMED: dict[str, list[str]] = table("gaugeway.prompts", "retrieval_words.toml")["keys"]
_PASSAGE_KEYS, _TEXT_KEYS, _INNER_KEYS, _SOURCE_KEYS, _ID_KEYS, _SCORE_KEYS, _RETRIEVED_KEYS = (
    _Keys(*_NAMED[name]) for name in ("passage", "text", "inner", "source", "id", "score", "retrieved")
)
SAYING_KEYS = _Keys(*_PASSAGE_KEYS, *_TEXT_KEYS)
_CONTAINER_KEYS = _Keys(*_RETRIEVED_KEYS, *_NAMED["list"])
_MORE_THAN_A_HIT = _CONTAINER_KEYS.known | _MCP_KEYS | {"type"}
"""An object with none of these is a hit or nothing: it holds no others, and is no part of a message."""


class Found(NamedTuple):
    """A passage; `certain` when its surroundings show that it was retrieved, otherwise its text must read like one."""

    context: Context
    certain: bool


def read(content: Any, *, by_form: bool = False) -> list[Found]:
    """Read a raw result: a text, a list of content parts, or decoded JSON; its first values only.

    With `by_form`, it may be introduced by a text, and records of any names are read that no known key shows.
    """
    found = list(_Reader(by_form=by_form).value(content, certain=False, depth=0))
    if not by_form or any(passage.certain for passage in found):
        return found
    return [Found(_of_form(record), certain=False) for record in form_records(content)] or found


def _of_form(record: FormRecord) -> Context:
    others = [{key: said for key, said in place.items() if said != record.text} for place in record.places]
    return Context(
        text=record.text,
        id=_first(_identity, others, _ID_KEYS),
        score=_first(_score, others, _SCORE_KEYS),
        source=_first(_name, others, _SOURCE_KEYS),
    )


def leaves(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield every string in decoded JSON with the name of its field; of values nested too deep, none."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, dict | list) and depth < _DEEPEST:
        for key, inner in value.items() if isinstance(value, dict) else ((name, entry) for entry in value):
            yield from leaves(inner, key, depth + 1)


class _Reader:
    """Walks through a result, bounded in depth and number of values."""

    def __init__(self, *, by_form: bool = False) -> None:
        self._left = MOST_VALUES
        self._by_form = by_form

    def value(self, value: Any, *, certain: bool, depth: int) -> Iterator[Found]:
        self._left -= 1
        if depth > _DEPTH or self._left < 0:
            return
        if isinstance(value, str):
            yield from self._text(value, certain=certain, depth=depth)
        elif isinstance(value, list):
            for entry in value[:MOST_VALUES]:
                yield from self.value(entry, certain=certain, depth=depth + 1)
        elif isinstance(value, dict):
            yield from self._object(value, certain=certain, depth=depth)

    def _text(self, text: str, *, certain: bool, depth: int) -> Iterator[Found]:
        if (value := decoded(text)) is not None:
            yield from self.value(value, certain=certain, depth=depth + 1)
        elif (stripped := text.strip()).startswith("Source: ") and _SOURCE_BLOCK.match(stripped):
            yield from _source_blocks(stripped)
        elif stripped.startswith("<") and (inside := _elements(stripped)):
            yield from (Found(inner, certain=True) for inner in inside)
        elif stripped.startswith("# ") and _SECTION.match(stripped):
            yield from _sections(stripped)
        elif found := self._shown(stripped, certain=certain, depth=depth):
            yield from found
        elif stripped:
            yield Found(Context(text=text if depth else stripped), certain)

    def _shown(self, text: str, *, certain: bool, depth: int) -> list[Found]:
        """Read the data in a text that introduces it, where it holds records: an example in a passage is its text."""
        if not self._by_form or depth > _INTRODUCED or (value := shown(text)) is None:
            return []
        records = [Found(_of_form(record), certain) for record in form_records(value)]
        found = list(self.value(value, certain=certain, depth=depth + 1)) if records else []
        return found if any(passage.certain for passage in found) else records

    def _object(self, value: dict[str, Any], *, certain: bool, depth: int) -> Iterator[Found]:
        if _MORE_THAN_A_HIT.isdisjoint(value):
            yield from _entry(value, certain=certain)
            return
        if value.get("isError") is True:
            return
        if value.get("type") in _PART_TYPES and isinstance(value.get("text"), str):
            yield from self._text(value["text"], certain=certain, depth=depth + 1)
            return
        is_hit = any(isinstance(value[key], str) for key in _in(value, _PASSAGE_KEYS))
        found = [] if is_hit else list(self._inside(value, certain=certain, depth=depth + 1))
        yield from found or _entry(value, certain=certain)

    def _inside(self, value: dict[str, Any], *, certain: bool, depth: int) -> Iterator[Found]:
        """Read a container of hits: an MCP result, a search service's response."""
        parts = value.get("content") if value.keys() <= _MCP_KEYS else None
        if "structuredContent" in value:
            # MCP says the same thing twice: as values, and as text for models that only read text.
            found = list(self.value(value["structuredContent"], certain=certain, depth=depth))
            if found and (any(record.certain for record in found) or not isinstance(parts, list)):
                yield from found
                return
        if isinstance(parts, list):
            yield from self.value(parts, certain=certain, depth=depth)
            return
        containers = _in(value, _CONTAINER_KEYS)
        has_text = bool(containers) and any(isinstance(value[key], str) for key in _in(value, _TEXT_KEYS))
        for key in containers:
            inner = value[key]
            if isinstance(inner, list | dict) or (isinstance(inner, str) and not has_text):
                known = certain or key in _RETRIEVED_KEYS.known
                if found := list(self.value(inner, certain=known, depth=depth)):
                    yield from found
                    return


def _elements(text: str) -> list[Context]:
    from gaugeway.prompts.form.divisions import elements_in  # noqa: PLC0415 - which reads data with this module

    return elements_in(text)


def _in(value: dict[str, Any], keys: _Keys) -> list[str]:
    """Return those of the keys that an object has: most hits have a handful of the many that are known."""
    return [] if keys.known.isdisjoint(value) else [key for key in keys if key in value]


def with_ends(found: Sequence[re.Match[str]], end: int) -> Iterator[tuple[re.Match[str], int]]:
    """Pair each match with where the next one begins, and the last one with `end`."""
    return zip(found, [*(match.start() for match in found[1:]), end][: len(found)], strict=True)


def _source_blocks(text: str) -> Iterator[Found]:
    """Read LangChain's blocks: `Source: ...`, `Content: ...`, a blank line (Python) or none (JavaScript) between two.

    The source is mostly a document's whole metadata as Python prints it.
    """
    blocks = list(islice(_SOURCE_BLOCK.finditer(text), MOST_VALUES))
    for block, end in with_ends(blocks, len(text)):
        source = block["source"].strip()
        said = decoded(source) if len(source) <= _METADATA else None
        known = (said,) if isinstance(said, dict) else ()
        identity, name = _first(_identity, known, _ID_KEYS), _first(_name, known, _SOURCE_KEYS)
        yield Found(Context(text=text[block.end() : end], id=identity, source=name or source or None), certain=True)


def _sections(text: str) -> Iterator[Found]:
    """Read the sections of Pydantic AI's documentation: a heading, `Documentation URL:`, the text."""
    headings = list(islice(_SECTION.finditer(text), MOST_VALUES))
    for heading, end in with_ends(headings, len(text)):
        if body := text[heading.end() : end].removesuffix("\n"):
            yield Found(Context(text=body, source=heading["url"].strip() or None), certain=True)


def _entry(entry: dict[str, Any], *, certain: bool) -> Iterator[Found]:
    """Read one hit: its text, possibly one level down, and its metadata."""
    places = entry, *[entry[key] for key in _in(entry, _INNER_KEYS) if isinstance(entry[key], dict)]
    for place in places:
        for key in _in(place, SAYING_KEYS):
            text = _parts(place[key])
            if not text or text.isspace():
                continue
            score = _first(_score, places[:1], _SCORE_KEYS)
            context = Context(
                text=text,
                id=_first(_identity, places, _ID_KEYS),
                score=score,
                source=_first(_name, places, _SOURCE_KEYS),
            )
            known = key in _PASSAGE_KEYS.known or score is not None or entry.get("type") == "search_result"
            yield Found(context, certain or known)
            return
    if (longest := _longest(entry)) is not None:
        sources = _Keys(*(key for key in _SOURCE_KEYS if key != longest))
        yield Found(Context(text=entry[longest], source=_first(_name, places, sources)), certain)


def _longest(entry: dict[str, Any]) -> str | None:
    """Return the key of the text that is most of a record, whatever it is called; None where there is none."""
    texts = sorted(((len(said), key) for key, said in entry.items() if isinstance(said, str)), reverse=True)
    if not texts or not runs_on(entry[texts[0][1]]):
        return None
    return texts[0][1] if len(texts) == 1 or texts[0][0] >= 2 * texts[1][0] else None


def _first(read: Callable[[Any], _T | None], places: Sequence[dict[str, Any]], keys: _Keys) -> _T | None:
    for place in places:
        for key in () if keys.known.isdisjoint(place) else keys:
            if key in place and (one := read(place[key])) is not None:
                return one
    return None


def _parts(said: Any) -> str | None:
    """Return the text of a value: itself, that of a list of content parts, or of an object around it (Bedrock's)."""
    if isinstance(said, str):
        return said
    if isinstance(said, dict):
        return said["text"] if isinstance(said.get("text"), str) else None
    if not isinstance(said, list):
        return None
    return "\n".join(part["text"] for part in said if isinstance(part, dict) and isinstance(part.get("text"), str))


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _identity(value: Any) -> str | None:
    if isinstance(value, str):
        return value or None
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < sys.maxsize:
        return str(value)
    return None


def _score(value: Any) -> float | None:
    """Return a retriever's score; None when it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > sys.float_info.max:
        return None
    return float(value) if value == value else None  # noqa: PLR0124 - NaN is not equal to itself
