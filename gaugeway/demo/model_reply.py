"""One request to the scripted model, read, and what the model replies: pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gaugeway.demo import model_answer as answering
from gaugeway.demo import model_judge as judging
from gaugeway.prompts import text_of

_PIECE = re.compile(r"\s*\S+\s*(?:\S+\s*){0,2}")
_TOKEN = re.compile(r"\s*\S+\s*")
_WANTED = re.compile(r"\b(?:use|call|run|invoke)\b[^.?!]{0,40}\b(?:tool|function)\b", re.IGNORECASE)
_MAX_CHOICES = 8


@dataclass(frozen=True, slots=True)
class Tool:
    """A function the client offers."""

    name: str
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A request as the model sees it. `forced` names the tool that must be called, `"*"` for any."""

    model: str
    messages: tuple[tuple[str, str], ...]
    tools: tuple[Tool, ...] = ()
    forced: str | None = None
    tools_allowed: bool = True
    max_tokens: int | None = None
    choices: int = 1
    fingerprint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the model says: a text, or a call of a tool with arguments in JSON."""

    text: str = ""
    tool: str | None = None
    arguments: str = ""
    cut: bool = False
    task: str | None = None
    prompt_tokens: int = 0

    @property
    def said(self) -> str:
        """What is streamed piece by piece."""
        return self.arguments if self.tool else self.text

    @property
    def completion_tokens(self) -> int:
        """The length of what was said, a word counted as a token."""
        return len(self.said.split())


def read_chat(body: dict[str, Any]) -> Turn:
    """Read the body of `POST /v1/chat/completions`. Raises ValueError naming the field that is wrong."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ValueError("messages")
    choice = body.get("tool_choice")
    named = choice.get("function", choice).get("name") if isinstance(choice, dict) else None
    return Turn(
        model=str(body.get("model") or "handbook-1"),
        messages=tuple(_pairs(messages)),
        tools=tuple(_tools(body.get("tools"))),
        forced=named or ("*" if choice == "required" else None),
        tools_allowed=choice != "none",
        max_tokens=_count(body, "max_completion_tokens") or _count(body, "max_tokens"),
        choices=min(_count(body, "n") or 1, _MAX_CHOICES),
        fingerprint=_fingerprint(body),
    )


def read_completion(body: dict[str, Any]) -> Turn:
    """Read the body of `POST /v1/completions`. Raises ValueError naming the field that is wrong."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and all(isinstance(item, str) for item in prompt):
        prompt = "\n".join(prompt)
    if not isinstance(prompt, str):
        raise ValueError("prompt")  # noqa: TRY004 - bad content, not a bad call
    return read_chat({**body, "messages": [{"role": "user", "content": prompt}], "tools": None})


def read_responses(body: dict[str, Any]) -> Turn:
    """Read the body of `POST /v1/responses`. Raises ValueError naming the field that is wrong."""
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list) or not items:
        raise ValueError("input")
    instructions = body.get("instructions")
    system = [{"role": "system", "content": instructions}] if isinstance(instructions, str) else []
    outputs = [
        {"role": "tool", "content": item.get("output")} if item.get("type") == "function_call_output" else item
        for item in items
        if isinstance(item, dict)
    ]
    limit = _count(body, "max_output_tokens")
    return read_chat({**body, "messages": [*system, *outputs], "max_tokens": limit, "n": 1})


def reply(turn: Turn, *, slips: bool = False) -> Reply:
    """Decide what the model says: a judge's verdicts, a tool call or an answer."""
    prompt_tokens = sum(len(text.split()) for _, text in turn.messages)
    if task := judging.task_of(turn.messages):
        text = msgspec.json.encode(judging.judge(task, turn.messages)).decode()
        return Reply(text=text, task=task, prompt_tokens=prompt_tokens)
    prompt = answering.read(turn.messages)
    if tool := _tool_to_call(turn, prompt.question):
        arguments = msgspec.json.encode(_arguments(tool.parameters, prompt.question)).decode()
        return Reply(tool=tool.name, arguments=arguments, prompt_tokens=prompt_tokens)
    text = answering.answer(prompt, slips=slips)
    tokens = _TOKEN.findall(text)
    if turn.max_tokens is not None and len(tokens) > turn.max_tokens:
        return Reply(text="".join(tokens[: turn.max_tokens]).rstrip(), cut=True, prompt_tokens=prompt_tokens)
    return Reply(text=text, prompt_tokens=prompt_tokens)


def pieces(text: str) -> list[str]:
    """Cut a text into streamable pieces of up to three words.

    >>> pieces("One two three four.")
    ['One two three ', 'four.']
    """
    return _PIECE.findall(text)


def _tool_to_call(turn: Turn, question: str) -> Tool | None:
    """Choose a tool: the forced one, or one that the question asks for. After a tool's result there is an answer."""
    if not turn.tools or not turn.tools_allowed or turn.messages[-1][0] == "tool":
        return None
    if turn.forced:
        return next((tool for tool in turn.tools if turn.forced in ("*", tool.name)), None)
    for tool in turn.tools:
        if tool.name in question or _WANTED.search(question):
            return tool
    return None


def _arguments(schema: dict[str, Any], question: str) -> dict[str, Any]:
    """Fill a function's parameters with plausible values of the right types; texts get the question."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    values: dict[str, Any] = {"integer": 3, "number": 0.5, "boolean": True, "array": [], "object": {}, "null": None}
    filled: dict[str, Any] = {}
    for name, kind in properties.items():
        kind = kind if isinstance(kind, dict) else {}  # noqa: PLW2901 - the same thing, made safe
        options = kind.get("enum")
        chosen = kind.get("type", "string")
        filled[name] = options[0] if options else values.get(str(chosen), question)
    return filled


def _pairs(messages: Sequence[Any]) -> Iterator[tuple[str, str]]:
    for message in messages:
        if isinstance(message, dict) and (role := message.get("role")):
            yield ("tool" if role == "function" else str(role)), text_of(message.get("content"))


def _tools(tools: Any) -> Iterator[Tool]:
    """Read the tools of either API: chat nests the function, responses does not."""
    for tool in tools if isinstance(tools, list) else []:
        if isinstance(tool, dict) and tool.get("type", "function") == "function":
            function = tool.get("function", tool)
            parameters = function.get("parameters")
            yield Tool(str(function.get("name")), parameters if isinstance(parameters, dict) else {})


def _count(body: dict[str, Any], key: str) -> int | None:
    value = body.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _fingerprint(body: dict[str, Any]) -> str:
    return hashlib.blake2b(msgspec.json.encode(body, order="deterministic"), digest_size=12).hexdigest()
