"""JSON Schema within bounded work, for schemas that a client wrote."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

import msgspec

from gaugeway.runtime.logs import RateLimitedWarnings

MAX_SCHEMA_BYTES = 32_768
"""Of a schema as JSON; nothing is validated by a larger one."""
MAX_VALUES = 2_000
"""Values in what is validated; of more, nothing is."""
MAX_STEPS = 2_000
"""Keywords applied to one value; a validation that needs more is given up."""
_KNOWN_SCHEMAS = 256
_UNBOUNDED = ("pattern", "uniqueItems", "format")
"""Keywords whose work a step does not bound (a regular expression, comparing all pairs): not applied."""
_REFUSED = (b'"patternProperties"', b'"$dynamicRef"', b'"$recursiveRef"', b'"unevaluated')
_warnings = RateLimitedWarnings(logging.getLogger("gaugeway"))


class _TooMuchWorkError(Exception):
    """The validation takes too many steps."""


def fits(schema: Any, value: Any) -> bool | None:
    """Return whether decoded `value` fits a schema; None for no valid schema, and beyond the bounds.

    No reference to another document is followed. `pattern`, `uniqueItems` and `format` are not applied.

    >>> schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    >>> fits(schema, {"n": 1}), fits(schema, {"n": "1"}), fits(schema, {}), fits("no schema", {})
    (True, False, False, None)
    """
    if not isinstance(schema, dict) or _count(value, MAX_VALUES) < 0:
        return None
    try:
        written = msgspec.json.encode(schema)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
    if len(written) > MAX_SCHEMA_BYTES or any(word in written for word in _REFUSED):
        return None
    try:
        return _checker(written)(value) if _is_valid(written) else None
    except _TooMuchWorkError:
        return None
    except Exception as error:  # noqa: BLE001 - a client's schema raises anything; nothing is said of the value
        _not_validated(error)
        return None


@lru_cache(maxsize=_KNOWN_SCHEMAS)
def _is_valid(schema: bytes) -> bool:
    """Return whether a schema fits JSON Schema's own: `"required": "n"` does not, and no call could fit it."""
    from jsonschema import Draft202012Validator, SchemaError  # noqa: PLC0415 - with the first call of a tool

    if _count((decoded := msgspec.json.decode(schema)), MAX_VALUES) < 0:
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
    _warnings.warn(kind, "a schema of a request is not applied: it raises %s", kind)


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
