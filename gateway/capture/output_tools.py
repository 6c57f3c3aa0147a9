"""Answers that an agent hands over as the argument of a tool: `final_result`, or one that the request forces."""

from __future__ import annotations

from typing import Any

from gateway.capture.dialogue import Call, calls_in, decoded
from gateway.capture.output_fields import Field, holds_prose, is_answer, normal, table, verdict_of
from gaugeway.exchange import Request, Response
from gaugeway.records import changed

MAX_ARGUMENTS = 262_144
"""Characters of the arguments in which an answer is looked for."""


def with_answer_by_tool(request: Request, response: Response) -> Response:
    """Return a response with the text that its only tool call hands over; any other response as it is."""
    if response.tool_calls != 1 or response.text.strip():
        return response
    for call in calls_in(response, request.route):
        if (text := _answer_in(call, forced=_is_forced(request.body, call.name))) is not None:
            return changed(response, text=text, by_tool=True)
    return response


def _answer_in(call: Call, *, forced: bool) -> str | None:
    """Return the prose in the arguments of an output tool; a forced tool has to have a field for an answer."""
    name, tools = normal(call.name), table().output_tools
    output = any(name == tool or name.startswith(f"{tool}_") for tool in tools)
    if not (output or forced) or (isinstance(call.arguments, str) and len(call.arguments) > MAX_ARGUMENTS):
        return None
    arguments = decoded(call.arguments)
    if not isinstance(arguments, dict):
        return None
    texts = {key: value for key, value in arguments.items() if isinstance(value, str) and value.strip()}
    found = next(filter(is_answer, texts), None)
    if found is None and output and _is_open(arguments):
        found = next(filter(holds_prose, texts), None)
    return None if found is None else texts[found]


def _is_open(arguments: dict[str, Any]) -> bool:
    """Whether the fields belong to no auxiliary call."""
    return verdict_of(map(Field, arguments)) is None


def _is_forced(body: dict[str, Any], name: str) -> bool:
    """Whether the request leaves the model no choice but this tool."""
    choice, tools = body.get("tool_choice", body.get("function_call")), body.get("tools")
    if choice == "required" or (isinstance(choice, dict) and choice.get("type") == "any"):
        return isinstance(tools, list) and len(tools) == 1
    if not isinstance(choice, dict):
        return False
    inner = choice.get("function")
    return name == (inner if isinstance(inner, dict) else choice).get("name")
