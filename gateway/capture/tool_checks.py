"""Checks an exchange's tool calls against the tools of its request, and looks for empty tool results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from gateway.capture.dialogue import Call, Dialogue, calls_in, decoded, json_of
from gaugeway.exchange import Exchange
from gaugeway.prompts import dicts
from gaugeway.records import ToolChecks
from gaugeway.settings.bounds import MAX_CALLS
from gaugeway.text.json_schema import fits

MAX_TOOLS = 512
"""Tools of a request; with more, calls are not compared with them."""
MAX_ARGUMENT_BYTES = 65_536
"""Of the arguments of one call; larger ones are not validated, and repeat nothing."""
_MOST_EARLIER, _MOST_RESULTS = 64, 64
_LONGEST_EMPTY = 500
_EMPTY_WORDS = frozenset(
    {"", '""', "null", "none", "no results", "no results found", "nothing found", "undefined", "n/a"}
)


def tool_checks(exchange: Exchange) -> ToolChecks | None:
    """Return what the tools of an exchange show; None for one without tools."""
    if not (offered := dict(_tools(exchange.request.body))) and not exchange.response.tool_calls:
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
        if isinstance(name := about.get("name", kind), str):
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
    if len(text := text.strip()) > _LONGEST_EMPTY:
        return False
    return text.lower().rstrip(".!") in _EMPTY_WORDS or (text[0] in "[{" and _holds_nothing(decoded(text)))


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
