"""What the names of the fields that a request demands as output say about the call; the rows are in a data file.

The fields are those of a schema, of an example, or the arguments of a tool by which an agent hands over its answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from gaugeway import data_files

MOST_FIELDS = 64
"""Fields of a schema or an example that are looked at."""
MOST_NAMES = 4_096
"""Names of fields that are remembered with what they say; they recur."""
_LONGEST_NAME = 60
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BETWEEN = re.compile(r"[\s\-_.]+")


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names of fields of one kind, and what may stand `beside`. With `by_response` only the response shows the kind."""

    kind: str
    names: list[str]
    beside: frozenset[str] = frozenset()
    by_response: bool = False


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The data file."""

    beside: frozenset[str]
    prose: frozenset[str]
    demands: list[str]
    lists: list[str]
    values: frozenset[str]
    output_tools: frozenset[str]
    last_actions: frozenset[str]
    rows: list[Row]


class Field(NamedTuple):
    """A field that the model has to fill in. `prose`: neither a number nor a truth value nor one of some choices."""

    name: str
    prose: bool = True


class Verdict(NamedTuple):
    """What kind of call fields belong to, "answer" among them, and whether the response has to confirm it."""

    kind: str
    by_response: bool = False


@cache
def table() -> Table:
    """Return the data file."""
    return msgspec.convert(data_files.table("gateway.capture", "output_fields.toml"), Table)


@cache
def _rows() -> dict[str, Row]:
    return {name: row for row in table().rows for name in row.names}


def is_answer(name: str) -> bool:
    """Whether a field of this name holds an answer.

    >>> [is_answer(name) for name in ("finalAnswer", "answer_text", "answer_relevance", "title")]
    [True, True, False, False]
    """
    row = row_of(name)
    return row is not None and row.kind == "answer"


def exact_row(name: str) -> Row | None:
    """Return the row that lists a name just so."""
    return _rows().get(name)


def holds_prose(name: str) -> bool:
    """Whether a field of this name holds what is written for a reader, an answer or not."""
    return is_answer(name) or normal(name) in table().prose


def verdict_of(fields: Iterable[Field]) -> Verdict | None:
    """Return what fields say together; None where they leave it open.

    >>> verdict_of([Field("thought"), Field("searchQueries")])
    Verdict(kind='query_generation', by_response=False)
    >>> verdict_of([Field("queries"), Field("answer")]).kind
    'answer'
    >>> verdict_of([Field("queries"), Field("colour")])
    """
    known = [(normal(field.name), field.prose, row_of(field.name)) for field in fields]
    if any(row is not None and row.kind == "answer" and prose for _, prose, row in known):
        return Verdict("answer")
    rows = [row for _, _, row in known if row is not None and row.kind != "answer"]
    if not rows:
        return None
    beside = table().beside.union(*(row.beside for row in rows))
    for name, prose, row in known:
        if (row is None or row.kind == "answer") and prose and name not in beside:
            return None
    return Verdict(rows[0].kind, all(row.by_response for row in rows))


@lru_cache(maxsize=MOST_NAMES)
def row_of(name: str) -> Row | None:
    """Return the row of a field's name: of the whole, else of its last words; an answer's also by its first word."""
    words = normal(name).split("_")
    for first in range(len(words)):
        if (row := _rows().get("_".join(words[first:]))) is not None:
            return row
    row = _rows().get(words[0])
    return row if row is not None and row.kind == "answer" else None


def normal(name: str) -> str:
    """Return a name in small letters, its words joined by "_".

    >>> normal("FollowUp-Questions ")
    'follow_up_questions'
    """
    return _BETWEEN.sub("_", _CAMEL.sub("_", name[:_LONGEST_NAME].strip()).lower()).strip("_")


def by_schema(body: dict[str, Any], route: str) -> str | None:
    """Return what the schema of the output says: of `response_format` or the like."""
    wanted = body.get("response_format")
    if route == "responses":
        wanted = text.get("format") if isinstance(text := body.get("text"), dict) else None
    schema = wanted if isinstance(wanted, dict) else body.get("guided_json") or body.get("format")
    if not isinstance(schema, dict):
        return None
    for key in ("json_schema", "schema"):
        schema = inner if isinstance(inner := schema.get(key), dict) else schema
    found = verdict_of_schema(schema)
    return None if found is None or found.by_response else found.kind


def verdict_of_schema(schema: dict[str, Any]) -> Verdict | None:
    """Return what the fields of a JSON schema say, those within where there is only one around them."""
    fields = [_field(name, about) for name, about in _properties(schema).items()]
    if (found := verdict_of(fields)) is not None or len(fields) != 1:
        return found
    inner = next(iter(_properties(schema).values()))
    inner = _referred(inner, schema)
    items = _referred(inner.get("items", inner), schema)
    return verdict_of(_field(name, about) for name, about in _properties(items).items())


def _properties(schema: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(found := schema.get("properties"), dict):
        return {}
    return {name: about if isinstance(about, dict) else {} for name, about in islice(found.items(), MOST_FIELDS)}


def _field(name: str, about: dict[str, Any]) -> Field:
    holds_data = about.get("type") in ("boolean", "integer", "number") or "enum" in about or "const" in about
    return Field(name, prose=not holds_data)


def _referred(schema: Any, root: dict[str, Any]) -> dict[str, Any]:
    """Return a schema, or the definition of the same document that it refers to."""
    if not isinstance(schema, dict):
        return {}
    definitions = root.get("$defs", root.get("definitions"))
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    found = definitions.get(name) if name and isinstance(definitions, dict) else schema
    return found if isinstance(found, dict) else {}
