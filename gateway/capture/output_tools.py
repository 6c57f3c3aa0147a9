"""Answers that a tool call hands over: of a tool whose call ends the turn, with prose for the user as its argument.

That a call ends the turn is known from the request: it forces the tool; it wants some call, so that one of the tools
has to carry the answer; in earlier turns the user spoke next; or the tool's name or description says so.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import islice
from typing import Any

from gateway.capture.dialogue import Call, calls_in, calls_of, decoded
from gateway.capture.instructions import speaks_of_a_user, speaks_of_retrieval
from gateway.capture.output_fields import Field, holds_prose, is_answer, normal, row_of, table, verdict_of
from gaugeway.exchange import Request, Response
from gaugeway.prompts import dicts, messages_of
from gaugeway.records import changed

MAX_ARGUMENTS = 262_144
"""Characters of the arguments in which an answer is looked for."""
MOST_TOOLS = 128
"""Tools of a request that are looked at."""
_ABOUT = 1_000
_LEAST_PROSE = 24
_END_OF_SENTENCE = re.compile(r"[.!](?:\s|\Z)|[\u3002\uff01]")
_WORD = re.compile(r"[^\W\d_]+")


def with_answer_by_tool(request: Request, response: Response) -> Response:
    """Return a response with the text that its only tool call hands over; any other response as it is."""
    if response.tool_calls != 1 or response.text.strip():
        return response
    for call in calls_in(response, request.route):
        if (text := _answer_in(call, request)) is not None:
            return changed(response, text=text, by_tool=True)
    return response


def _answer_in(call: Call, request: Request) -> str | None:
    """Return the prose for the user in the arguments of a call that ends the turn."""
    too_long = isinstance(call.arguments, str) and len(call.arguments) > MAX_ARGUMENTS
    arguments, about = None if too_long else decoded(call.arguments), _about(request.body, call.name)
    if not isinstance(arguments, dict):
        return None
    texts = {key: value for key, value in arguments.items() if isinstance(value, str) and value.strip()}
    name, tools = normal(call.name), table().output_tools
    named = any(name == tool or name.startswith(f"{tool}_") for tool in tools)
    sure = named or _is_forced(request.body, call.name)
    if sure and (found := next(filter(is_answer, texts), None)) is not None:
        return texts[found]
    verdict = verdict_of(Field(key, isinstance(value, str)) for key, value in arguments.items())
    if verdict is not None and verdict.kind != "answer":
        return None  # fields of an auxiliary call
    if named and (found := next(filter(holds_prose, texts), None)) is not None:
        return texts[found]
    closed = [key for key, field in _properties(about).items() if not {"enum", "const", "format"}.isdisjoint(field)]
    prose = [text for key, text in texts.items() if key not in closed and _is_prose(key, text)]
    if not prose or speaks_of_retrieval(_said_of(about or {"name": name})):
        return None
    alone = len(prose) == 1 and len(texts) <= 1 + len(closed)
    return "\n\n".join(prose) if sure or (alone and _ends_the_turn(request, about, name)) else None


def _is_prose(key: str, text: str) -> bool:
    """Whether a text states something: it has sentences, and its field is none of an auxiliary call, or of reasons."""
    if ((row := row_of(key)) is not None and row.kind != "answer") or normal(key) in table().beside:
        return False
    return len(text.encode()) >= _LEAST_PROSE and _END_OF_SENTENCE.search(text) is not None


def _ends_the_turn(request: Request, about: dict[str, Any], name: str) -> bool:
    """Whether a tool with prose as its only text ends the turn, where neither its name nor the request is proof."""
    ended = went_on = 0
    pending = False
    for message in messages_of(request):
        if (role := message.get("role")) in ("user", "assistant"):
            ended, went_on = ended + (pending and role == "user"), went_on + (pending and role == "assistant")
            pending = any(normal(call.name) == name for call in calls_of(message))
    if ended or went_on:
        return not went_on
    said = _said_of(about)
    if name.partition("_")[0] in table().last_actions or (
        speaks_of_a_user(said) and not _answer_words().isdisjoint(_WORD.findall(said))
    ):
        return True
    choice, tools = request.body.get("tool_choice"), list(_tools(request.body))
    wanted = choice == "required" or (isinstance(choice, dict) and choice.get("type") == "any")
    others = [tool for tool in tools if tool is not about]
    return wanted and bool(about and others) and all(speaks_of_retrieval(_said_of(tool)) for tool in others)


@cache
def _answer_words() -> frozenset[str]:
    """Return the words for an answer of all languages."""
    return frozenset(name for row in table().rows if row.kind == "answer" for name in row.names)


def _tools(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what a request of any API says about its tools, the first ones."""
    listed = [*dicts(body.get("tools")), *dicts(body.get("functions"))]
    return [inner if isinstance(inner := tool.get("function"), dict) else tool for tool in islice(listed, MOST_TOOLS)]


def _about(body: dict[str, Any], name: str) -> dict[str, Any]:
    return next((tool for tool in _tools(body) if tool.get("name") == name), {})


def _said_of(about: dict[str, Any]) -> str:
    """Return what a tool is for by its name and description, in small letters: "to search. to finds passages"."""
    name = normal(str(about.get("name", ""))).replace("_", " ")
    return f"to {name}. to {about.get('description', '')}"[:_ABOUT].lower()


def _properties(about: dict[str, Any]) -> dict[str, dict[str, Any]]:
    schema = about.get("parameters", about.get("input_schema"))
    found = schema.get("properties") if isinstance(schema, dict) else None
    return {key: field for key, field in found.items() if isinstance(field, dict)} if isinstance(found, dict) else {}


def _is_forced(body: dict[str, Any], name: str) -> bool:
    """Whether the request leaves the model no choice but this tool."""
    choice, tools = body.get("tool_choice", body.get("function_call")), body.get("tools")
    if choice == "required" or (isinstance(choice, dict) and choice.get("type") == "any"):
        return isinstance(tools, list) and len(tools) == 1
    if not isinstance(choice, dict):
        return False
    inner = choice.get("function")
    return name == (inner if isinstance(inner, dict) else choice).get("name")
