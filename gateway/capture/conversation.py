"""What joins an exchange to the others of its conversation: hashes of what was said before and now, and the history.

Apps rewrite the user's turns, trim the history at the front and drop passages from it, but hand the model's own words
back as they were. So the hashes are of the end of the history: its last items, and the user's text before. The time
does not grow with the length of the conversation, apart from counting its messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import msgspec

from gateway.contexts import BESIDE_RESULTS, messages_of, text_of
from gateway.contexts.prompt_parts import LONGEST_SECRET
from gateway.exchange import Exchange
from gateway.http.sessions import SESSION_HEADERS
from monitors.records import Links, Message, ToolCall
from monitors.runtime.bounds import MAX_CALLS, MAX_HISTORY_TEXT, MAX_LINKS, bounded_calls, bounded_name

_ENDS = 1_024
"""Bytes that are hashed at either end of a text."""
_READ = 65_536
_SPACES = b" \t\r\n\v\f"
_DIGEST_BYTES = 9
_SURE = 10_000
_RANDOM_ID = 12
_PREFILL = 40
_LEAST_ARGUMENT = 8
_CALL_TYPES = ("function_call", "custom_tool_call")
_decode = msgspec.json.Decoder().decode


class _Call(NamedTuple):
    id: str
    name: str
    arguments: Any


@dataclass(slots=True)
class _Item:
    """What the model said at once."""

    text: str = ""
    calls: list[_Call] = field(default_factory=list)


class _Key(NamedTuple):
    hash: str
    length: int


@dataclass(slots=True)
class _Read:
    """A request's messages. `last` is the model's last item and `earlier` the one before it; `answer` is its last item
    without calls, `answer_before` the one before that. `user` is the user's last content, `user_before` that of the
    turn before. `texts` are all (role, content), of which `question_at` is the first of the last turn.
    """

    turn: int = 0
    hop: int = 1
    last: _Item | None = None
    earlier: _Item | None = None
    answer: _Item | None = None
    answer_before: _Item | None = None
    user: Any = None
    user_before: Any = None
    prefill: str = ""
    texts: list[tuple[str, Any]] = field(default_factory=list)
    question_at: int = 0

    @property
    def in_turn(self) -> bool:
        """Whether the user said nothing since the model's last item."""
        return self.hop > 1


class ConversationReader:
    """Reads links, history and tool calls of exchanges. `key` keys the hashes.

    `history_turns` messages before the question are kept; `session_headers`, in lower case, name a session. Without
    `content` the arguments of tool calls are left out.
    """

    def __init__(
        self,
        key: str,
        *,
        session_headers: Sequence[str] = SESSION_HEADERS,
        history_turns: int = 6,
        content: bool = True,
    ) -> None:
        self._key = blake2b(key.encode("utf-8", "surrogatepass")).digest()
        self.session_headers = tuple(name.lower() for name in session_headers)
        self._turns = history_turns
        self._content = content

    def read(self, exchange: Exchange, question: str | None) -> tuple[Links, tuple[Message, ...], tuple[ToolCall, ...]]:
        """Return the links of an exchange, the messages before its question, and the tools that its response calls."""
        found = _walk(exchange)
        calls = _calls_of_response(exchange)
        return self._links(exchange, found, calls, question), self._history(found), self._calls(calls)

    def _links(self, exchange: Exchange, found: _Read, calls: list[_Call], question: str | None) -> Links:
        app, response = exchange.app, exchange.response
        stored = exchange.request.body.get("previous_response_id") if exchange.request.route == "responses" else None
        follows = self._item(app, found.last)
        if isinstance(stored, str) and stored:
            follows = self._id(app, stored)
        own = self._item(app, _Item(found.prefill + response.text, calls) if response.text or calls else None)
        gives = [own.hash] if own is not None else []
        if exchange.request.route == "responses" and response.id is not None:
            gives.append(self._id(app, response.id).hash)
        asked = [text_of(found.user), question or ""]
        hashed = (self._text(app, text) for text in dict.fromkeys(asked))
        return Links(
            follows=None if follows is None else follows.hash,
            gives=tuple(gives),
            length=0 if follows is None else follows.length,
            pair_before=self._pair(app, found.answer_before if found.last is found.answer else found.answer, follows),
            pair_given=self._pair(app, found.answer, own),
            asked_before=self._text(app, text_of(found.user if found.in_turn else found.user_before)),
            asked=tuple(one for one in hashed if one is not None),
            arguments=tuple(self._arguments(app, calls)),
            same=None if exchange.digest is None else self._hash("d", app, exchange.digest),
            again=exchange.resent,
            turn=max(found.turn, 1),
            hop=found.hop,
            within_turn=found.in_turn or (bool(stored) and not found.turn),
        )

    def _id(self, app: str, response_id: str) -> _Key:
        return _Key("r:" + self._hash("r", app, _bytes(response_id)), _SURE)

    def _item(self, app: str, item: _Item | None) -> _Key | None:
        """Hash an item: the ids of its calls, where they are random, otherwise what is called; else its text."""
        if item is None:
            return None
        if item.calls:
            ids = sorted(call.id for call in item.calls)
            if all(len(one) >= _RANDOM_ID for one in ids):
                return _Key("c:" + self._hash("c", app, _bytes("\0".join(ids))), _SURE)
            said = _bytes(repr(sorted((one.id, one.name, _plain(one.arguments)) for one in item.calls)))
            return _Key("c:" + self._hash("c", app, said[:_READ]), len(said))
        said = _squeezed(item.text)
        return _Key("t:" + self._hash("t", app, said), len(said)) if said else None

    def _pair(self, app: str, first: _Item | None, second: _Key | None) -> str | None:
        before = self._item(app, first) if second is not None else None
        if before is None or second is None:
            return None
        return self._hash("p", app, f"{before.hash}\0{second.hash}".encode())

    def _text(self, app: str, text: str) -> str | None:
        said = _squeezed(text)
        return self._hash("q", app, said) if said else None

    def _arguments(self, app: str, calls: list[_Call]) -> Iterator[str]:
        """Hash the texts in the arguments: a sub-agent is asked one of them."""
        texts = (
            value
            for call in calls[:MAX_LINKS]
            if isinstance(arguments := _decoded(call.arguments), dict)
            for value in arguments.values()
            if isinstance(value, str) and len(value) >= _LEAST_ARGUMENT
        )
        for _, text in zip(range(MAX_LINKS), texts, strict=False):
            if (hashed := self._text(app, text)) is not None:
                yield hashed

    def _history(self, found: _Read) -> tuple[Message, ...]:
        """The last messages before the question; what is cut has some more than fits, for whoever redacts it."""
        kept: list[Message] = []
        for role, content in reversed(found.texts[: found.question_at]):
            if len(kept) >= self._turns:
                break
            text = text_of(content).strip()
            if text:
                speaker: Literal["user", "assistant"] = "user" if role == "user" else "assistant"
                kept.append(Message(role=speaker, text=text[: MAX_HISTORY_TEXT + LONGEST_SECRET]))
        return tuple(reversed(kept))

    def _calls(self, calls: list[_Call]) -> tuple[ToolCall, ...]:
        made = tuple(
            ToolCall(name=bounded_name(one.name), arguments=_json(one.arguments) if self._content else "")
            for one in calls[:MAX_CALLS]
        )
        return bounded_calls(made, margin=LONGEST_SECRET)

    def _hash(self, kind: str, app: str, said: bytes) -> str:
        hashed = blake2b(_bytes(f"{kind}\0{app}\0"), key=self._key, digest_size=_DIGEST_BYTES)
        hashed.update(said)
        return hashed.hexdigest()


def _walk(exchange: Exchange) -> _Read:
    """Read the messages of a request in order."""
    found = _Read()
    grouped = exchange.request.route == "responses"  # there a message and each call are items of their own
    speaker = ""
    for message in messages_of(exchange.request):
        role, kind = message.get("role"), message.get("type")
        if role == "user":
            if not message.get(BESIDE_RESULTS):
                _user(found, message.get("content"), begins=speaker != "user")
                speaker = "user"
        elif role == "assistant" or (grouped and kind in _CALL_TYPES):
            if speaker != "assistant" or not grouped:
                found.earlier, found.last = found.last, _Item()
                found.hop += 1
            speaker = "assistant"
            _assistant(found, message)
        elif role in ("tool", "function") or (isinstance(kind, str) and kind.endswith("_output")):
            speaker = "tool"
    if speaker == "assistant" and found.last is found.answer and found.last and len(found.last.text) < _PREFILL:
        _take_prefill(found)
    return found


def _user(found: _Read, content: Any, *, begins: bool) -> None:
    if begins:
        found.turn += 1
        found.hop = 1
        found.user_before = found.user
        found.question_at = len(found.texts)
    found.texts.append(("user", content))
    found.user = content


def _assistant(found: _Read, message: dict[str, Any]) -> None:
    item = found.last
    if item is None:
        return
    item.calls += _calls_of_message(message)
    content = message.get("content")
    if text := text_of(content):
        item.text += text
        found.texts.append(("assistant", content))
    if item.calls:
        if found.answer is item:
            found.answer = found.answer_before
    elif item.text and found.answer is not item:
        found.answer_before, found.answer = found.answer, item


def _take_prefill(found: _Read) -> None:
    """Take the beginning of this response, which the app puts into the model's mouth, out of the history."""
    found.prefill = found.answer.text if found.answer else ""
    found.last, found.answer = found.earlier, found.answer_before
    found.hop -= 1


def _calls_of_message(message: dict[str, Any]) -> Iterator[_Call]:
    """Yield the calls of an assistant message of any API, and of an item of the Responses API."""
    if message.get("type") in _CALL_TYPES:
        yield _Call(_string(message.get("call_id")), _string(message.get("name")), _arguments_of(message))
        return
    listed = message.get("tool_calls")
    for call in listed if isinstance(listed, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            yield _Call(_string(call.get("id")), _string(function.get("name")), function.get("arguments"))
    if isinstance(legacy := message.get("function_call"), dict):
        yield _Call("", _string(legacy.get("name")), legacy.get("arguments"))
    blocks = message.get("content")
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict) and block.get("type") == "tool_use":
            yield _Call(_string(block.get("id")), _string(block.get("name")), block.get("input"))


def _calls_of_response(exchange: Exchange) -> list[_Call]:
    if not exchange.response.tool_calls:
        return []
    body = exchange.response.body
    if exchange.request.route == "messages":
        messages = [body]
    elif exchange.request.route == "responses":
        messages = [
            item for item in _list(body.get("output")) if isinstance(item, dict) and item.get("type") in _CALL_TYPES
        ]
    else:
        messages = [
            one["message"]
            for one in _list(body.get("choices"))[:1]
            if isinstance(one, dict) and isinstance(one.get("message"), dict)
        ]
    return [call for message in messages for call in _calls_of_message(message)]


def _arguments_of(item: dict[str, Any]) -> Any:
    return item.get("arguments", item.get("input"))


def _squeezed(text: str) -> bytes:
    """Return a text as it is hashed: without reasoning and white space, of a long one both ends."""
    if "</think>" in text:
        text = text.rpartition("</think>")[2]
    said = _bytes(text[:_READ]).translate(None, _SPACES)
    return said if len(said) <= 2 * _ENDS else said[:_ENDS] + said[-_ENDS:]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _plain(arguments: Any) -> str:
    """Return arguments in one form, whether they are JSON text or an object."""
    decoded = _decoded(arguments)
    return repr(sorted(decoded.items(), key=str)) if isinstance(decoded, dict) else repr(decoded)


def _decoded(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return _decode(_bytes(arguments[:_READ]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return arguments


def _json(arguments: Any) -> str:
    if isinstance(arguments, str):
        return arguments
    try:
        return "" if arguments is None else msgspec.json.encode(arguments).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
