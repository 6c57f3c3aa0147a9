"""Structured output: the strict JSON schema sent to a judge, and the answer and its probabilities in the reply."""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, TypeVar

import msgspec

from monitors.judges.openai_client import Token

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
    are no defaults or titles. A definition that is used once is inlined, since the schema's tokens are paid for. Lists
    are bounded by maxItems; the lengths of texts, which strict mode refuses, are checked by `read` alone.
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


def unbounded(node: Any) -> Any:
    """Return a schema without the bounds on lists, for servers that refuse them."""
    if isinstance(node, list):
        return [unbounded(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {key: unbounded(value) for key, value in node.items() if key != "maxItems"}


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
        if key not in ("default", "maxLength") and not (key == "title" and isinstance(value, str))
    }
    if isinstance(strict.get("properties"), dict):
        strict["required"] = list(strict["properties"])
        strict["additionalProperties"] = False
    return strict


def read(text: str, answer_type: type[T]) -> T:
    r"""Find the JSON answer in `text`, ignoring code fences, prose and thoughts around it, and decode it strictly.

    An unpaired surrogate, which JSON may carry and no store can keep, becomes a question mark. An object with NaN or
    Infinity is not JSON. Of several objects that fit the last counts: an example or a draft comes before the answer.
    Raises UnreadableError with the problem of the first JSON object found.

    >>> read('Sure! ```json\n{"a": 1}\n``` Anything else?', dict[str, int])
    {'a': 1}
    """
    if len(text) > MAX_CHARACTERS:
        raise UnreadableError("wrong_shape", f"the answer has more than {MAX_CHARACTERS} characters")
    problem = ""
    text = _ESCAPE.sub(_whole, text.encode("utf-8", "replace").decode())
    for candidate in reversed([*_objects(_THOUGHTS.sub("", text, count=1))]):
        try:
            return msgspec.convert(candidate, answer_type)
        except msgspec.ValidationError as error:
            problem = str(error)
    if problem:
        raise UnreadableError("wrong_shape", problem)
    if _is_cut(text):
        raise UnreadableError("truncated", "the reply ends within its JSON object")
    raise UnreadableError("no_json" if text.strip() else "empty", "the reply contains no JSON object")


def _whole(escape: re.Match[str]) -> str:
    """Return a JSON escape unchanged, or a question mark for an unpaired surrogate."""
    return "?" if len(escape[0]) == _ONE_ESCAPE else escape[0]


def _is_cut(text: str) -> bool:
    """Whether a JSON object begins in `text` and is neither wrong nor complete where the text ends."""
    try:
        json.JSONDecoder().raw_decode(text, text.index("{"))
    except json.JSONDecodeError as error:
        return error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
    except (ValueError, RecursionError):
        pass
    return False


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


_SLACK = 1e-3
"""By how much a log-probability may exceed 0, from rounding."""
_QUOTES = " \t\r\n\"'`*"
_VALUE = re.compile(r':\s*(?:"([^"\\]*)"|(true|false)\b)')


def choice_in(text: str, choices: Sequence[str]) -> tuple[int, str] | None:
    """Return the offset and name of the one choice that `text` states; None when it states none or several.

    The text is the choice alone (quotes aside), or the choice is the last value of a JSON object in it, or it is the
    only choice in it.

    >>> choice_in(' "4" ', ["1", "4"]), choice_in('{"score": 4}', ["1", "4"]), choice_in("1 or 4", ["1", "4"])
    ((2, '4'), (10, '4'), None)
    """
    if (bare := text.strip(_QUOTES + ".")) in choices:
        return text.index(bare), bare
    names = "|".join(re.escape(choice) for choice in sorted(choices, key=len, reverse=True))
    if (values := list(re.finditer(rf':\s*"?({names})"?\s*[,}}]', text))) and "}" in text:
        return values[-1].start(1), values[-1][1]
    words = list(re.finditer(rf"(?<![\w.,-])({names})(?![\w%]|[.,]\d)", text))
    if len({word[1] for word in words}) == 1:
        return words[-1].start(1), words[-1][1]
    return None


def weights(tokens: Sequence[Token], choices: Sequence[str]) -> dict[str, float] | None:
    """Return the probabilities of the answer token's alternatives: all choices first, then tokens that are no choice.

    They are the model's own and sum to at most 1: the rest belongs to alternatives that the endpoint left out. For a
    choice of several tokens only the first counts, and its probability goes to the choice that was given. None when the
    tokens state no choice or have no usable probabilities. Raises ValueError for a probability of more than 1.
    """
    if (found := choice_in("".join(token.token for token in tokens), choices)) is None:
        return None
    offset, given = found
    place = bisect_right(_ends(tokens), offset)
    odds = {alternative.token: alternative.logprob for alternative in tokens[place].top_logprobs}
    odds.setdefault(tokens[place].token, tokens[place].logprob)
    shares = dict.fromkeys(choices, 0.0)
    for token, logprob in odds.items():
        text = token.strip(_QUOTES)
        if token == tokens[place].token and text not in shares:
            text = given
        if logprob is not None and logprob > _SLACK:
            raise ValueError(f"log-probability {logprob:g} of {token[:20]!r} is positive")
        if (chance := _probability(logprob)) is not None:
            shares[text] = shares.get(text, 0.0) + chance
    return shares if any(shares[choice] for choice in choices) else None


def sureness(tokens: Sequence[Token], schema: Mapping[str, Any]) -> float | None:
    """Return the probability of the least likely verdict: the smallest product over the tokens of one enumerated value.

    None when the tokens have no probabilities or hold no verdict.
    """
    text = "".join(token.token for token in tokens)
    verdicts = set(_enumerated(schema))
    ends = _ends(tokens)
    least: float | None = None
    for match in _VALUE.finditer(text):
        group = 1 if match[1] is not None else 2
        if group == 1 and match[1] not in verdicts:
            continue
        chance = 1.0
        for place in range(bisect_right(ends, match.start(group)), bisect_right(ends, match.end(group) - 1) + 1):
            if (probability := _probability(tokens[place].logprob)) is None:
                return None
            chance *= probability
        least = chance if least is None else min(least, chance)
    return least


def _ends(tokens: Sequence[Token]) -> list[int]:
    """Return the end offset of each token; the first end beyond a character is that of the token that covers it."""
    return list(accumulate(len(token.token) for token in tokens))


def _probability(logprob: float | None) -> float | None:
    return None if logprob is None or math.isnan(logprob) or logprob > _SLACK else math.exp(min(0.0, logprob))


def _enumerated(node: Any) -> Iterator[str]:
    """Yield every enumerated string in a JSON schema."""
    if isinstance(node, Mapping):
        yield from (value for value in node.get("enum", ()) if isinstance(value, str))
        for child in node.values():
            yield from _enumerated(child)
    elif isinstance(node, list):
        for child in node:
            yield from _enumerated(child)
