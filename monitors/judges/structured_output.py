"""Structured output: the strict JSON schema sent to a judge, and tolerant parsing of its text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_MAX_STARTS = 64
MAX_CHARACTERS = 1_000_000
"""Longest answer that is parsed; bounded because the search for JSON may start 64 times."""

_ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\.")
_ONE_ESCAPE = 6
_THOUGHTS = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)


class UnreadableError(ValueError):
    """The text holds no answer of the requested type.

    `reason` is one of empty, no_json, wrong_shape, truncated, no_completion, no_choice: a label.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def strict_schema(answer_type: type[Any]) -> dict[str, Any]:
    """Return the JSON schema of `answer_type` in the dialect that strict structured output accepts; do not change it.

    The root is an object rather than a reference, every property is required, additional ones are forbidden, and there
    are no defaults or titles. A definition that is used once is inlined, since the schema's tokens are paid for.
    """
    return _strict_schema(answer_type)  # type: ignore[arg-type] # a class is hashable


@lru_cache(maxsize=64)
def _strict_schema(answer_type: Any) -> dict[str, Any]:
    schema: dict[str, Any] = _strict(msgspec.json.schema(answer_type))
    definitions = schema.pop("$defs", {})
    text = json.dumps([schema, definitions])
    once = {
        f"#/$defs/{name}": definition
        for name, definition in definitions.items()
        if text.count(f'"#/$defs/{name}"') == 1
    }
    schema = _placed(schema, once)
    left = {
        name: _placed(definition, once) for name, definition in definitions.items() if f"#/$defs/{name}" not in once
    }
    if (reference := schema.pop("$ref", "").rpartition("/")[2]) in left:
        schema |= left[reference]
    return schema | ({"$defs": left} if left else {})


def _placed(node: Any, once: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_placed(item, once) for item in node]
    if not isinstance(node, dict):
        return node
    if node.get("$ref") in once:
        return _placed(once[node["$ref"]], once)
    return {key: _placed(value, once) for key, value in node.items()}


def _strict(node: Any) -> Any:
    if isinstance(node, list):
        return [_strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    strict = {
        key: _strict(value)
        for key, value in node.items()
        if key != "default" and not (key == "title" and isinstance(value, str))
    }
    if isinstance(strict.get("properties"), dict):
        strict["required"] = list(strict["properties"])
        strict["additionalProperties"] = False
    return strict


def read(text: str, answer_type: type[T]) -> T:
    r"""Find the JSON answer in `text`, ignoring code fences, prose and thoughts around it, and decode it strictly.

    An unpaired surrogate, which JSON may carry and no store can keep, becomes a question mark. An object with NaN or
    Infinity is not JSON. Raises UnreadableError with the problem of the first JSON object found.

    >>> read('Sure! ```json\n{"a": 1}\n``` Anything else?', dict[str, int])
    {'a': 1}
    """
    if len(text) > MAX_CHARACTERS:
        raise UnreadableError("wrong_shape", f"the answer has more than {MAX_CHARACTERS} characters")
    problem = ""
    text = _ESCAPE.sub(_whole, text.encode("utf-8", "replace").decode())
    for candidate in _objects(_THOUGHTS.sub("", text, count=1)):
        try:
            return msgspec.convert(candidate, answer_type)
        except msgspec.ValidationError as error:
            problem = problem or str(error)
    if problem:
        raise UnreadableError("wrong_shape", problem)
    raise UnreadableError("no_json" if text.strip() else "empty", "the reply contains no JSON object")


def _whole(escape: re.Match[str]) -> str:
    """Return a JSON escape unchanged, or a question mark for an unpaired surrogate."""
    return "?" if len(escape[0]) == _ONE_ESCAPE else escape[0]


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the outermost JSON objects in `text`; stops after 64 candidates, for texts full of stray braces."""
    decoder = json.JSONDecoder(parse_constant=_no_number)
    start = text.find("{")
    for _ in range(_MAX_STARTS):
        if start < 0:
            return
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            yield value
        start = text.find("{", end)
