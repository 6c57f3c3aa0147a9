"""Checks an exchange's tool calls against the tools of its request, and looks for empty tool results.

Whether arguments fit a tool's JSON schema is found out within bounded work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

import msgspec

from gateway.capture.dialogue import Call, Dialogue, calls_in, decoded, json_of
from gaugeway.exchange import Exchange
from gaugeway.prompts import dicts
from gaugeway.records import ToolChecks
from gaugeway.runtime.logs import RateLimitedWarnings
from gaugeway.settings.bounds import MAX_CALLS

MAX_SCHEMA_BYTES = 32_768
"""Of a tool's schema as JSON; calls of a tool with a larger one are not validated."""
MAX_VALUES = 2_000
"""Values in the arguments of one call; larger ones are not validated."""
MAX_STEPS = 2_000
"""Keywords applied for one call; a validation that needs more is given up."""
_KNOWN_SCHEMAS = 256
_UNBOUNDED = ("pattern", "uniqueItems", "format")
"""Keywords whose work a step does not bound (a regular expression, comparing all pairs): not applied."""
_REFUSED = (b'"patternProperties"', b'"$dynamicRef"', b'"$recursiveRef"', b'"unevaluated')
MAX_TOOLS = 512
"""Tools of a request; with more, calls are not compared with them."""
MAX_ARGUMENT_BYTES = 65_536
"""Of the arguments of one call; larger ones are not validated, and repeat nothing."""
_MOST_EARLIER, _MOST_RESULTS = 64, 64
_LONGEST_EMPTY = 500
_EMPTY_WORDS = frozenset(
    {"", '""', "null", "none", "no results", "no results found", "nothing found", "undefined", "n/a"}
)
_warnings = RateLimitedWarnings(logging.getLogger("gaugeway"))


class _TooMuchWorkError(Exception):
    """The validation takes too many steps."""


def fits(schema: Any, arguments: Any) -> bool | None:
    """Return whether decoded `arguments` fit a schema; None for no valid schema, and beyond the bounds.

    No reference to another document is followed. `pattern`, `uniqueItems` and `format` are not applied.

    >>> schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    >>> fits(schema, {"n": 1}), fits(schema, {"n": "1"}), fits(schema, {}), fits("no schema", {})
    (True, False, False, None)
    """
    if not isinstance(schema, dict) or _count(arguments, MAX_VALUES) < 0:
        return None
    try:
        written = msgspec.json.encode(schema)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
    if len(written) > MAX_SCHEMA_BYTES or any(word in written for word in _REFUSED):
        return None
    try:
        return _checker(written)(arguments) if _is_valid(written) else None
    except _TooMuchWorkError:
        return None
    except Exception as error:  # noqa: BLE001 - a client's schema raises anything; the call is counted as not validated
        _not_validated(error)
        return None


@lru_cache(maxsize=_KNOWN_SCHEMAS)
def _is_valid(schema: bytes) -> bool:
    """Return whether a schema fits JSON Schema's own: `"required": "n"` does not, and no call could fit it."""
    from jsonschema import Draft202012Validator, SchemaError  # noqa: PLC0415 - with the first call of a tool

    decoded = msgspec.json.decode(schema)
    if _count(decoded, MAX_VALUES) < 0:
        return False
    try:
        Draft202012Validator.check_schema(decoded)
    except SchemaError:
        return False
    except Exception as error:  # noqa: BLE001 - as in `fits`
        _not_validated(error)
        return False
    return True


def _not_validated(error: Exception) -> None:
    kind = type(error).__name__
    _warnings.warn(kind, "calls of a tool are not validated: its schema raises %s", kind)


@lru_cache(maxsize=_KNOWN_SCHEMAS)
def _checker(schema: bytes) -> Callable[[Any], bool]:
    """Return the validation by a schema, with a count of steps of its own for each call."""
    from referencing import Registry  # noqa: PLC0415 - with the first call of a tool

    kind, steps = _validator()
    validator = kind(msgspec.json.decode(schema), registry=Registry())

    def check(arguments: Any) -> bool:
        steps[0] = MAX_STEPS
        return bool(validator.is_valid(arguments))

    return check


@cache
def _validator() -> tuple[Any, list[int]]:
    """Return the validator class, and the steps that are left to it."""
    from jsonschema import Draft202012Validator, validators  # noqa: PLC0415 - as above

    steps = [0]

    def counted(keyword: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
        def apply(*given: Any) -> Iterator[Any]:
            steps[0] -= 1
            if steps[0] < 0:
                raise _TooMuchWorkError
            yield from keyword(*given) or ()

        return apply

    keywords = {name: counted(one) for name, one in Draft202012Validator.VALIDATORS.items()}
    keywords["multipleOf"] = counted(_not_a_multiple)
    keywords |= dict.fromkeys(_UNBOUNDED, lambda *_: iter(()))
    return validators.extend(Draft202012Validator, keywords), steps


def _not_a_multiple(validator: Any, factor: Any, value: Any, _: Any) -> Iterator[Any]:
    """Yield an error unless `value` is a multiple, as the numbers are written: 19.99 is one of 0.01."""
    from jsonschema import ValidationError  # noqa: PLC0415 - as above

    if validator.is_type(value, "number") and (_as_written(value) / _as_written(factor)).denominator != 1:
        yield ValidationError(f"not a multiple of {factor}")


def _as_written(number: float) -> Fraction:
    """Return the decimal fraction that a JSON number was written as; a float's shortest form is that."""
    return Fraction(number) if isinstance(number, int) else Fraction(Decimal(repr(number)))


def _count(value: Any, room: int) -> int:
    """Return what is left of `room` after the values in `value`; negative if there are more."""
    waiting = [value]
    while waiting and room >= 0:
        one = waiting.pop()
        room -= 1
        if isinstance(one, dict):
            waiting.extend(one.values() if len(one) <= room else [None] * (room + 1))
        elif isinstance(one, list):
            waiting.extend(one if len(one) <= room else [None] * (room + 1))
    return room


def tool_checks(exchange: Exchange) -> ToolChecks | None:
    """Return what the tools of an exchange show; None for one without tools."""
    offered = dict(_tools(exchange.request.body))
    if not offered and not exchange.response.tool_calls:
        return None
    dialogue = Dialogue(exchange)
    results = [_is_empty(text) for text in dialogue.results(_MOST_RESULTS)]
    calls = calls_in(exchange.response, exchange.request.route)[:MAX_CALLS]
    verdicts = [_verdict(call, offered) for call in calls]
    return ToolChecks(
        calls=len(calls),
        offered=len(offered),
        unknown=sum(call.name not in offered for call in calls) if offered else 0,
        validated=sum(verdict is not None for verdict in verdicts),
        invalid=sum(verdict is False for verdict in verdicts),
        repeated=_repeated(calls, dialogue.calls_in_turn(_MOST_EARLIER)) if calls else 0,
        results=len(results),
        empty_results=sum(results),
    )


def _tools(body: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the name and the schema of each tool in a request of any API; None for tools without a schema."""
    listed = body.get("tools") or body.get("functions")
    for tool in dicts(listed) if isinstance(listed, list) and len(listed) <= MAX_TOOLS else ():
        kind = tool.get("type")
        inner = tool.get(kind) if isinstance(kind, str) else None
        about = inner if isinstance(inner, dict) else tool
        name = about.get("name", kind)
        if isinstance(name, str):
            yield name, about.get("parameters", about.get("input_schema"))


def _verdict(call: Call, offered: dict[str, Any]) -> bool | None:
    """Return whether the arguments of a call fit its tool's schema; None without a schema, or beyond the bounds."""
    schema = offered.get(call.name)
    if schema is None or len(written := json_of(call.arguments)) > MAX_ARGUMENT_BYTES:
        return None
    arguments = decoded(written) if written.strip() else None
    if isinstance(arguments, str) and isinstance(call.arguments, str):
        # arguments are an object: this is no JSON, or a text
        return None if fits(schema, {}) is None else False
    return fits(schema, {} if arguments is None else arguments)  # models leave out the arguments of tools without any


def _repeated(calls: list[Call], earlier: list[Call]) -> int:
    """Count the calls that are the same as an earlier one of the turn, or of the response."""
    seen = {key for call in earlier if (key := _key(call)) is not None}
    count = 0
    for call in calls:
        if (key := _key(call)) is None:
            continue
        count += key in seen
        seen.add(key)
    return count


def _key(call: Call) -> tuple[str, bytes] | None:
    """Return what two equal calls have in common, whatever the order of their arguments."""
    if len(written := json_of(call.arguments)) > MAX_ARGUMENT_BYTES:
        return None
    try:
        return call.name, msgspec.json.encode(decoded(written), order="sorted")
    except (TypeError, ValueError, OverflowError, RecursionError):
        return call.name, written.encode("utf-8", "surrogatepass")


def _is_empty(text: str) -> bool:
    text = text.strip()
    if len(text) > _LONGEST_EMPTY:
        return False
    if text.lower().rstrip(".!") in _EMPTY_WORDS:
        return True
    return text[0] in "[{" and _holds_nothing(decoded(text))


def _holds_nothing(value: Any) -> bool:
    """Whether a decoded result is an empty list or object, or an object of such and of zeros.

    >>> [_holds_nothing(one) for one in ([], {"hits": [], "total": 0}, {"total": 0}, {"id": 7, "notes": []})]
    [True, True, False, False]
    """
    if isinstance(value, list):
        return all(inner is None or (isinstance(inner, list | dict) and _holds_nothing(inner)) for inner in value)
    if not isinstance(value, dict):
        return False
    parts = [inner for inner in value.values() if isinstance(inner, list | dict)]
    others = [inner for inner in value.values() if not isinstance(inner, list | dict)]
    return (bool(parts) or not others) and all(map(_holds_nothing, parts)) and not any(others)
