"""What a judge's text is turned into: the answer's JSON schema on the way out, tolerant reading on the way in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_MAX_STARTS = 64
MAX_CHARACTERS = 1_000_000
"""Of an answer: it may be searched for JSON 64 times."""

_ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\.")
_ONE_ESCAPE = 6
_THOUGHTS = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)


class UnreadableError(ValueError):
    """The text holds no answer of the type asked for.

    `reason` is one of empty, no_json, wrong_shape, truncated, no_completion, no_choice: a label.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def strict_schema(answer_type: type[Any]) -> dict[str, Any]:
    """The JSON schema of `answer_type` in the dialect strict structured output accepts.

    The root is an object rather than a reference, every property is required, nothing else is allowed, and there are
    no defaults and no titles. What is referred to once stands where it is used: the schema is paid for.
    """
    schema: dict[str, Any] = _strict(msgspec.json.schema(answer_type))
    definitions = schema.pop("$defs", {})
    text = json.dumps([schema, definitions])
    once = {f"#/$defs/{name}": one for name, one in definitions.items() if text.count(f'"#/$defs/{name}"') == 1}
    schema = _placed(schema, once)
    left = {name: _placed(one, once) for name, one in definitions.items() if f"#/$defs/{name}" not in once}
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
    r"""Find the answer in `text`, whatever is around it (code fences, prose, thoughts), and read it strictly.

    Half a surrogate pair, which JSON may carry and no store can keep, becomes a question mark. An object with NaN or
    Infinity in it is no JSON. Raises UnreadableError that says what was wrong with the first JSON object found.

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
    raise UnreadableError("no_json" if text.strip() else "empty", "the answer holds no JSON object")


def _whole(escape: re.Match[str]) -> str:
    """An escape of JSON as it is, or a question mark for one half of a pair without the other."""
    return "?" if len(escape[0]) == _ONE_ESCAPE else escape[0]


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The outermost JSON objects in `text`; a text full of stray braces is given up on."""
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
