"""Reads a request's messages as a dialogue: who spoke when, and what the model said last.

One pass tells speakers and counts turns; texts and calls are read from the end, and only as far as they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from gateway.contexts import MOST_MESSAGES, text_of
from gateway.exchange import Exchange

CALL_TYPES = ("function_call", "custom_tool_call")
_PREFILL = 40
_TOOL = ("tool", None)
_decode = msgspec.json.Decoder().decode


class Call(NamedTuple):
    """A tool call of the model; `arguments` is JSON text or an object."""

    id: str
    name: str
    arguments: Any


class Key(NamedTuple):
    """The hash of an item, and how many characters were hashed."""

    hash: str
    length: int


@dataclass(slots=True)
class Item:
    """What the model said at once. `key` is set by whoever hashed it."""

    text: str = ""
    calls: list[Call] = field(default_factory=list)
    key: Key | None = None


class Dialogue:
    """The messages of a request.

    `turn` counts the user's turns, `hop` the exchanges of the last one so far, with the one that is under way. `last`
    is the model's last item; `answer` its last item without calls, `answer_before` the one before that. `prefill` is
    the beginning of the response, which the app puts into the model's mouth.
    """

    def __init__(self, exchange: Exchange) -> None:
        self.turn, self.hop = 0, 1
        self.prefill = ""
        self._said: list[tuple[str, Any]] = []
        self._spoken: list[int] = []
        self._user, self._user_before = -1, -1
        self._question_at = 0
        self._read(_messages(exchange), exchange.request.route)
        self.last: Item | None = self._item(self._spoken[-1]) if self._spoken else None
        if self.last and self._said[-1][0] == "assistant" and not self.last.calls and len(self.last.text) < _PREFILL:
            self.prefill = self.last.text
            self._spoken.pop()
            self.last = self._item(self._spoken[-1]) if self._spoken else None
            self.hop -= 1
        self.answer, self.answer_before = self._answers()

    @property
    def in_turn(self) -> bool:
        """Whether the user said nothing since the model's last item."""
        return self.hop > 1

    @property
    def user(self) -> str:
        """The user's last text; "" without one."""
        return text_of(self._said[self._user][1]) if self._user >= 0 else ""

    @property
    def user_before(self) -> str:
        """The user's last text in the turn before; "" without one."""
        return text_of(self._said[self._user_before][1]) if self._user_before >= 0 else ""

    def before_question(self) -> Iterator[tuple[str, str]]:
        """Yield (speaker, text) of user and model before the last turn, the last one first."""
        for index in range(self._question_at - 1, -1, -1):
            speaker, content = self._said[index]
            if speaker == "user":
                yield speaker, text_of(content).strip()
            elif speaker == "assistant":
                yield speaker, "\n".join(text for one in content if (text := text_of(one.get("content")).strip()))

    def _read(self, messages: list[Any], route: str) -> None:
        said, spoken, grouped, speaker = self._said, self._spoken, route == "responses", ""
        for message in messages:
            if not isinstance(message, dict):
                continue
            role = message.get("role")
            if role == "user":
                content = message.get("content")
                if route == "messages" and _has_results(content):
                    speaker = "tool"
                    continue
                if speaker != "user":
                    self.turn += 1
                    self.hop = 1
                    self._user_before, self._question_at = self._user, len(said)
                    speaker = "user"
                self._user = len(said)
                said.append(("user", content))
            elif role == "assistant" or (grouped and message.get("type") in CALL_TYPES):
                if grouped and speaker == "assistant":
                    said[-1][1].append(message)
                    continue
                speaker = "assistant"
                self.hop += 1
                spoken.append(len(said))
                said.append(("assistant", [message]))
            elif role in ("tool", "function") or (grouped and str(message.get("type")).endswith("_output")):
                speaker = "tool"
        if speaker == "tool":
            said.append(_TOOL)

    def _item(self, index: int) -> Item:
        messages = self._said[index][1]
        text = "".join(text_of(one.get("content")) for one in messages)
        return Item(text, [call for one in messages for call in calls_of(one)])

    def _answers(self) -> tuple[Item | None, Item | None]:
        found: list[Item] = []
        for index in reversed(self._spoken):
            if any(_has_calls(one) for one in self._said[index][1]):
                continue
            item = self.last if index == self._spoken[-1] and self.last else self._item(index)
            if item.text:
                found.append(item)
                if len(found) == 2:  # noqa: PLR2004 - a pair
                    break
        return found[0] if found else None, found[1] if len(found) > 1 else None


def calls_of_response(exchange: Exchange) -> list[Call]:
    """Return the tools that a response calls; of several choices those of the first."""
    if not exchange.response.tool_calls:
        return []
    body = exchange.response.body
    if exchange.request.route == "messages":
        messages = [body]
    elif exchange.request.route == "responses":
        messages = [item for item in _dicts(body.get("output")) if item.get("type") in CALL_TYPES]
    else:
        messages = [one["message"] for one in _dicts(body.get("choices"))[:1] if isinstance(one.get("message"), dict)]
    return [call for message in messages for call in calls_of(message)]


def calls_of(message: dict[str, Any]) -> Iterator[Call]:
    """Yield the calls of an assistant message of any API, and of an item of the Responses API."""
    if message.get("type") in CALL_TYPES:
        yield Call(_string(message.get("call_id")), _string(message.get("name")), _arguments_of(message))
        return
    for call in _dicts(message.get("tool_calls")):
        if isinstance(function := call.get("function"), dict):
            yield Call(_string(call.get("id")), _string(function.get("name")), function.get("arguments"))
    if isinstance(legacy := message.get("function_call"), dict):
        yield Call("", _string(legacy.get("name")), legacy.get("arguments"))
    for block in _dicts(message.get("content")):
        if block.get("type") == "tool_use":
            yield Call(_string(block.get("id")), _string(block.get("name")), block.get("input"))


def decoded(arguments: Any) -> Any:
    """Return the arguments of a call as values, where they are JSON text."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return _decode(arguments.encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return arguments


def json_of(arguments: Any) -> str:
    """Return the arguments of a call as JSON text; "" where they are none."""
    if isinstance(arguments, str):
        return arguments
    try:
        return "" if arguments is None else msgspec.json.encode(arguments).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return ""


def _messages(exchange: Exchange) -> list[Any]:
    """The messages of any API without instructions, the last ones."""
    request = exchange.request
    listed = request.body.get("input" if request.route == "responses" else "messages")
    if isinstance(listed, list):
        return listed[-MOST_MESSAGES:]
    prompt = listed if request.route == "responses" else request.body.get("prompt")
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else []


def _has_results(content: Any) -> bool:
    return isinstance(content, list) and any(one.get("type") == "tool_result" for one in _dicts(content))


def _has_calls(message: dict[str, Any]) -> bool:
    if message.get("tool_calls") or message.get("function_call") or message.get("type") in CALL_TYPES:
        return True
    content = message.get("content")
    return isinstance(content, list) and any(one.get("type") == "tool_use" for one in _dicts(content))


def _arguments_of(item: dict[str, Any]) -> Any:
    return item.get("arguments", item.get("input"))


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
