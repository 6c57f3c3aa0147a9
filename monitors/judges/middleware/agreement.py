"""How much two answers to the same question agree: their verdicts are compared, not their words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

_NAMES = ("id", "index")
_JUDGED = ("boolean", "integer", "number")


def agreement(one: Any, other: Any) -> float | None:
    """The share of verdicts that two answers of one type have in common, each counted once (Dice's coefficient).

    Verdicts are enumerated texts, booleans and numbers, told apart by the key they stand under and the `id` or `index`
    of the objects around them; what has none (claims each judge splits in its own way) is compared as a collection.
    None when neither holds any.

    Reference: L. R. Dice (1945), Measures of the amount of ecologic association between species.

    >>> class Mood(msgspec.Struct):
    ...     good: bool
    ...     why: str
    >>> agreement(Mood(True, "sun"), Mood(True, "warm")), agreement(Mood(True, "sun"), Mood(False, "rain"))
    (1.0, 0.0)
    """
    ours, theirs = Counter(_verdicts(one)), Counter(_verdicts(other))
    total = ours.total() + theirs.total()
    return 2.0 * (ours & theirs).total() / total if total else None


def _verdicts(answer: Any) -> Iterator[tuple[str, ...]]:
    schema = msgspec.json.schema(type(answer))
    yield from _walk(msgspec.to_builtins(answer), schema, schema.get("$defs", {}), ())


def _walk(
    value: Any, node: Mapping[str, Any], known: Mapping[str, Any], path: tuple[str, ...]
) -> Iterator[tuple[str, ...]]:
    if "$ref" in node:
        node = known[node["$ref"].rpartition("/")[2]]
    if isinstance(value, dict):
        path += tuple(f"{name}={value[name]}" for name in _NAMES if name in value)
        for key, item in value.items():
            if key not in _NAMES:
                yield from _walk(item, node.get("properties", {}).get(key, {}), known, (*path, key))
    elif isinstance(value, list):
        inside = node.get("items", {})
        if "$ref" in inside:  # a list of bare numbers names things (contexts), it judges nothing
            for item in value:
                yield from _walk(item, inside, known, path)
    elif "enum" in node or node.get("type") in _JUDGED:
        yield (*path, str(value))
