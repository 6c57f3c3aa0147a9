"""Reads a request's messages as a dialogue: who spoke when, and what the model said last.

One pass identifies the speakers and counts the turns; texts and calls are read from the end, as far as needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from gaugeway.exchange import Exchange, Request, Response
from gaugeway.prompts import MOST_MESSAGES, dicts, messages_of, text_of
from gaugeway.prompts.written_steps import WRITTEN, WRITTEN_ID

CALL_TYPES = ("function_call", "custom_tool_call")
_PREFILL = 40
_ITEMS: dict[Any, str] = dict.fromkeys(CALL_TYPES, "assistant") | {
    f"{name}_output": "tool"
    for name in (*CALL_TYPES, "computer_call", "local_shell_call", "shell_call", "apply_patch_call")
}
"""Items of the Responses API without a role."""
_ROLES: dict[Any, str] = {"user": "user", "assistant": "assistant", "tool": "tool", "function": "tool"}
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


class Item(msgspec.Struct):
    """What the model said at once. `key` is set by whoever hashed it."""

    text: str = ""
    calls: list[Call] = []
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
        self._messages = _messages(exchange)
        self._speakers = _speakers(self._messages, exchange.request.route)
        for index in _written_results(exchange.request, len(self._messages)):
            self._speakers[index] = "tool"
        self._spoken: list[list[int]] = []
        self._user = self._user_before = -1
        self._question_at = 0
        ends_with = self._read(grouped=exchange.request.route == "responses")
        self.last: Item | None = self._item(self._spoken[-1]) if self._spoken else None
        if self.last and ends_with == "assistant" and not self.last.calls and len(self.last.text) < _PREFILL:
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
        return self._text(self._user)

    @property
    def user_before(self) -> str:
        """The user's last text in the turn before; "" without one."""
        return self._text(self._user_before)

    def before_question(self) -> Iterator[tuple[str, str]]:
        """Yield (speaker, text) of user and model before the last turn, the last one first."""
        for index in range(self._question_at - 1, -1, -1):
            if (speaker := self._speakers[index]) in ("user", "assistant"):
                yield speaker, self._text(index).strip()

    def calls_in_turn(self, most: int) -> list[Call]:
        """Return the last calls of the model since the user spoke, at most `most`."""
        items = self._spoken[-(self.hop - 1) :] if self.hop > 1 else []
        calls = [call for indices in items for index in indices for call in calls_of(self._messages[index])]
        return calls[-most:]

    def results(self, most: int) -> Iterator[str]:
        """Yield the texts of the tool results since the model's last item, the last one first, at most `most`."""
        for message, speaker in zip(reversed(self._messages), reversed(self._speakers), strict=True):
            if speaker == "assistant" or most <= 0:
                return
            if speaker == "tool":
                for text in _results_of(message):
                    yield text
                    most -= 1

    def _text(self, index: int) -> str:
        return text_of(self._messages[index].get("content")) if index >= 0 else ""

    def _read(self, *, grouped: bool) -> str:
        """Count turns and hops, and find where user and model spoke; return who spoke last."""
        spoken, last = self._spoken, ""
        for index, speaker in enumerate(self._speakers):
            if speaker == "assistant":
                if grouped and last == "assistant":
                    spoken[-1].append(index)
                else:
                    spoken.append([index])
                    self.hop += 1
            elif speaker == "user":
                if last != "user":
                    self.turn += 1
                    self.hop = 1
                    self._user_before, self._question_at = self._user, index
                self._user = index
            elif not speaker:
                continue
            last = speaker
        return last

    def _item(self, indices: list[int]) -> Item:
        calls = [call for index in indices if _has_calls(one := self._messages[index]) for call in calls_of(one)]
        return Item(self._text(indices[0]) if len(indices) == 1 else "".join(map(self._text, indices)), calls)

    def _answers(self) -> tuple[Item | None, Item | None]:
        found: Item | None = None
        for indices in reversed(self._spoken):
            if any(_has_calls(self._messages[index]) for index in indices):
                continue
            item = self.last if self.last is not None and indices is self._spoken[-1] else self._item(indices)
            if item.text and found is not None:
                return found, item
            if item.text:
                found = item
        return found, None


def calls_in(response: Response, route: str) -> list[Call]:
    """Return the tools that the response of a route calls; of several choices those of the first."""
    if not response.tool_calls:
        return []
    body = response.body
    if route == "messages":
        messages = [body]
    elif route == "responses":
        messages = [item for item in dicts(body.get("output")) if item.get("type") in CALL_TYPES]
    else:
        messages = [
            choice["message"] for choice in dicts(body.get("choices"))[:1] if isinstance(choice.get("message"), dict)
        ]
    return [call for message in messages for call in calls_of(message)]


def calls_of(message: dict[str, Any]) -> Iterator[Call]:
    """Yield the calls of an assistant message of any API, and of an item of the Responses API."""
    if message.get("type") in CALL_TYPES:
        yield Call(
            _string(message.get("call_id")),
            _string(message.get("name")),
            message.get("arguments", message.get("input")),
        )
        return
    for call in dicts(message.get("tool_calls")):
        if isinstance(function := call.get("function"), dict):
            yield Call(_string(call.get("id")), _string(function.get("name")), function.get("arguments"))
    if isinstance(legacy := message.get("function_call"), dict):
        yield Call("", _string(legacy.get("name")), legacy.get("arguments"))
    for block in dicts(message.get("content")):
        if block.get("type") == "tool_use":
            yield Call(_string(block.get("id")), _string(block.get("name")), block.get("input"))


def _results_of(message: dict[str, Any]) -> Iterator[str]:
    """Yield the results in a message of any API, and in an item of the Responses API, but those that are no text."""
    blocks = [block.get("content") for block in dicts(message.get("content")) if block.get("type") == "tool_result"]
    for content in blocks or [message.get("output", message.get("content"))]:
        if content is None or isinstance(content, str) or all("text" in part for part in dicts(content)):
            yield text_of(content)


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


def _written_results(request: Request, count: int) -> Iterator[int]:
    """Yield the indices of the user's turns that are a tool's results, written as text."""
    if request.route == "chat_completions" and count < MOST_MESSAGES:
        for message in messages_of(request):
            place = str(message.get("tool_call_id", "")).removeprefix(WRITTEN_ID) if message.get(WRITTEN) else ""
            if place.isdecimal() and int(place) < count:
                yield int(place)


def _speakers(messages: list[Any], route: str) -> list[str]:
    """Who speaks in each message; "" for instructions and what cannot be read."""
    try:
        if route == "responses":
            return [_ROLES.get(message.get("role")) or _ITEMS.get(message.get("type"), "") for message in messages]
        known = [_ROLES.get(message.get("role"), "") for message in messages]
    except (AttributeError, TypeError):  # not all are objects, or their roles are no texts
        return [_speaker_of(message) if isinstance(message, dict) else "" for message in messages]
    if route == "messages":
        for index, role in enumerate(known):
            if role == "user" and _has(messages[index].get("content"), "tool_result"):
                known[index] = "tool"
    return known


def _speaker_of(message: dict[str, Any]) -> str:
    role, kind = message.get("role"), message.get("type")
    if role == "user" and _has(message.get("content"), "tool_result"):
        return "tool"
    if isinstance(role, str):
        return _ROLES.get(role, "")
    return _ITEMS.get(kind, "") if isinstance(kind, str) else ""


def _has(content: Any, kind: str) -> bool:
    """Whether a message has a block of a kind."""
    return any(block.get("type") == kind for block in dicts(content))


def _has_calls(message: dict[str, Any]) -> bool:
    if message.get("tool_calls") or message.get("function_call") or message.get("type") in CALL_TYPES:
        return True
    return _has(message.get("content"), "tool_use")


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
