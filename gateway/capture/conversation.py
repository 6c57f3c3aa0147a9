"""What joins an exchange to the others of its conversation: hashes of what was said before and now, and the history.

Apps rewrite the user's turns, trim the history at the front and drop passages from it, but hand the model's own words
back as they were. So the hashes are of the end of the history: its last items, and the user's text before. The time
does not grow with the length of the conversation, apart from counting its messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, Literal

from cachetools import LRUCache

from gateway.capture.dialogue import Call, Dialogue, Item, Key, calls_in, decoded, json_of
from gateway.http.sessions import SESSION_HEADERS, conversation_id
from gaugeway.exchange import Exchange, Request, Response
from gaugeway.prompts import Extraction, Extractor, evidence_of
from gaugeway.prompts.prompt_parts import LONGEST_SECRET, find
from gaugeway.prompts.structure import may_be_prompt
from gaugeway.records import TOOL_SOURCES, Links, Message, ToolCall
from gaugeway.settings.bounds import MAX_ARGUMENTS, MAX_CALLS, MAX_HISTORY_TEXT, MAX_LINKS, bounded_name
from gaugeway.text.cache import TextCache

_READ_PROMPTS = ("known prompt", "configured pattern", "structure")
_NOT_FROM_PROMPTS = frozenset({"explicit", *TOOL_SOURCES})
_REMEMBERED = 8_192
"""Turns, together about 1 MB."""
_NOTHING = Response(status=200, body={})

_Place = tuple[int, int] | None
_ENDS = 256
"""Bytes that are hashed at either end of a text, together with its length."""
_WITH_SPACES = 384
"""Characters in which mostly as many bytes are, without white space."""
_READ = 65_536
_LONG = 4 * _ENDS
"""Characters of a passage from which its length without white space is kept."""
_SPACES = b" \t\r\n\v\f"
_DIGEST_BYTES = 9
_SURE = 10_000
_RANDOM_ID = 12
_LEAST_ARGUMENT = 8
_lengths: TextCache[int] = TextCache()
"""Bytes of passages, which recur, without white space."""


class EarlierQuestions:
    """Reduces earlier turns to their questions; turns without passages stay as they are."""

    def __init__(self, extractors: Sequence[Extractor] = ()) -> None:
        self._extractors = [extractor for extractor in extractors if evidence_of(extractor) in _READ_PROMPTS]
        self._places: LRUCache[int, _Place] = LRUCache(_REMEMBERED)

    def __len__(self) -> int:
        """The number of turns that are remembered."""
        return len(self._places)

    def learn(self, turn: str, found: Extraction) -> None:
        """Remember what the extractors found in the last turn of an exchange."""
        if turn and found.source not in _NOT_FROM_PROMPTS:
            self._places[hash(turn)] = None if found.source == "none" else _place(turn, found.question)

    def of(self, turn: str) -> str:
        """Return the question in an earlier turn, or the turn itself if it has no passages."""
        if (key := hash(turn)) in self._places:
            place = self._places[key]
        elif len(turn) <= MAX_HISTORY_TEXT:
            place = self._read(turn) if may_be_prompt(turn) else None
            self._places[key] = place
        else:
            return turn
        return turn if place is None else turn[place[0] : place[1]]

    def _read(self, turn: str) -> _Place:
        body = {"messages": [{"role": "user", "content": turn}]}
        request = Request(route="chat_completions", headers={}, body=body)
        for extractor in self._extractors:
            if (found := extractor.extract(request, _NOTHING)) is not None:
                return _place(turn, found.question)
        return None


def _place(turn: str, question: str | None) -> _Place:
    """Where the question is in a turn; None where it is all of it, or not in it word for word."""
    start = turn.rfind(question) if question and len(question) < len(turn) else -1
    return None if start < 0 or question is None else (start, start + len(question))


class ConversationReader:
    """Reads links, history and tool calls of exchanges. `key` keys the hashes.

    `history_turns` messages before the question are kept, prompts among them as the `questions` in them;
    `session_headers`, in lower case, name a session. Without `content` the arguments of tool calls are left out.
    """

    def __init__(
        self,
        key: str,
        *,
        session_headers: Sequence[str] = SESSION_HEADERS,
        history_turns: int = 6,
        content: bool = True,
        questions: EarlierQuestions | None = None,
    ) -> None:
        secret = blake2b(_bytes(key)).digest()
        # Copying a prepared state takes a third of the time of making one.
        self._states = {
            kind: blake2b(kind.encode(), key=secret, digest_size=_DIGEST_BYTES)
            for kind in ("t", "c", "r", "p", "q", "d")
        }
        self.session_headers = tuple(name.lower() for name in session_headers)
        self._turns = history_turns
        self._content = content
        self._questions = EarlierQuestions() if questions is None else questions

    def read(
        self, exchange: Exchange, question: str | None, extraction: Extraction | None = None
    ) -> tuple[Links, tuple[Message, ...], tuple[ToolCall, ...]]:
        """Return the links of an exchange, the messages before its question, and the tools that its response calls.

        `extraction` is what was found in the request: the next one of the conversation has this question as history.
        """
        found = Dialogue(exchange)
        calls = calls_in(exchange.response, exchange.request.route)
        if extraction is not None and self._turns:
            self._questions.learn(found.user.strip(), extraction)
        passages = () if extraction is None else [passage.text for passage in extraction.contexts]
        return self._links(exchange, found, calls, question, passages), self._history(found), self._calls(calls)

    def _links(
        self, exchange: Exchange, found: Dialogue, calls: list[Call], question: str | None, passages: Sequence[str]
    ) -> Links:
        response = exchange.response
        stored = exchange.request.body.get("previous_response_id") if exchange.request.route == "responses" else None
        follows = self._item(found.last)
        if isinstance(stored, str) and stored:
            follows = self._id(stored)
        own = self._item(Item(found.prefill + response.text, calls) if response.text or calls else None)
        gives = [own.hash] if own is not None else []
        if exchange.request.route == "responses" and response.id is not None:
            gives.append(self._id(response.id).hash)
        asked = self._text(user := found.user, passages)
        question = None if not question or question == user else self._text(question)
        return Links(
            follows=None if follows is None else follows.hash,
            gives=tuple(gives),
            length=0 if follows is None else follows.length,
            pair_before=self._pair(found.answer_before if found.last is found.answer else found.answer, follows),
            pair_given=self._pair(found.answer, own),
            asked_before=asked if found.in_turn else self._text(found.user_before),
            asked=tuple(one for one in (asked, question) if one is not None),
            arguments=tuple(self._arguments(calls)) if calls else (),
            same=None if exchange.digest is None else self._hash("d", exchange.digest),
            again=exchange.resent,
            turn=max(found.turn, 1),
            hop=found.hop,
            within_turn=found.in_turn or (bool(stored) and not found.turn),
            recall=self._turns if stored or _is_kept_upstream(exchange) else 0,
        )

    def _id(self, response_id: str) -> Key:
        length = _SURE if len(response_id) >= _RANDOM_ID else len(response_id)
        return Key("r:" + self._hash("r", _bytes(response_id)), length)

    def _item(self, item: Item | None) -> Key | None:
        if item is not None and item.key is None:
            item.key = self._key_of(item)
        return None if item is None else item.key

    def _key_of(self, item: Item) -> Key | None:
        """Hash an item: the ids of its calls, where they are random, otherwise what is called; else its text."""
        if item.calls:
            ids = sorted(call.id for call in item.calls)
            if all(len(identity) >= _RANDOM_ID for identity in ids):
                return Key("c:" + self._hash("c", _bytes("\0".join(ids))), _SURE)
            said = _bytes(repr(sorted((call.id, call.name, _plain(call.arguments)) for call in item.calls)))
            return Key("c:" + self._hash("c", said[:_READ]), len(said))
        said = _squeezed(item.text)
        return Key("t:" + self._hash("t", said), len(said)) if said else None

    def _pair(self, first: Item | None, second: Key | None) -> str | None:
        before = self._item(first) if second is not None else None
        return None if before is None or second is None else f"{before.hash[2:]}{second.hash[2:]}"

    def _text(self, text: str, passages: Sequence[str] = ()) -> str | None:
        said = _squeezed(text, passages)
        return self._hash("q", said) if said else None

    def _arguments(self, calls: list[Call]) -> Iterator[str]:
        """Hash the texts in the arguments: a sub-agent is asked one of them."""
        texts = (
            value
            for call in calls[:MAX_LINKS]
            if isinstance(arguments := decoded(call.arguments), dict)
            for value in arguments.values()
            if isinstance(value, str) and len(value) >= _LEAST_ARGUMENT
        )
        for _, text in zip(range(MAX_LINKS), texts, strict=False):
            if (hashed := self._text(text)) is not None:
                yield hashed

    def _history(self, found: Dialogue) -> tuple[Message, ...]:
        """The last messages before the question; what is cut has some more than fits, for whoever redacts it."""
        kept: list[Message] = []
        for speaker, text in found.before_question():
            if len(kept) >= self._turns:
                break
            if text:
                role: Literal["user", "assistant"] = "user" if speaker == "user" else "assistant"
                said = self._questions.of(text) if role == "user" else text
                kept.append(Message(role=role, text=said[: MAX_HISTORY_TEXT + LONGEST_SECRET]))
        return tuple(reversed(kept))

    def _calls(self, calls: list[Call]) -> tuple[ToolCall, ...]:
        most = MAX_ARGUMENTS + LONGEST_SECRET if self._content else 0
        return tuple(
            ToolCall(name=bounded_name(call.name), arguments=json_of(call.arguments)[:most])
            for call in calls[:MAX_CALLS]
        )

    def _hash(self, kind: str, said: bytes) -> str:
        hashed = self._states[kind].copy()
        hashed.update(said)
        return hashed.hexdigest()


def _squeezed(text: str, passages: Sequence[str] = ()) -> bytes:
    """Return a text as it is hashed: without reasoning and white space, of a long one both ends and the length.

    `passages` are what may be in it, in this order. They change nothing but the time.
    """
    if "<" in text and "</think>" in text:  # one character is found in a fraction of the time
        text = text.rpartition("</think>")[2]
    text = text[:_READ]
    if passages and len(text) > _LONG and (short := _shortened(text, passages)) is not None:
        return short
    said = _solid(text)
    return said if len(said) <= 2 * _ENDS else b"%b%b%d" % (said[:_ENDS], said[-_ENDS:], len(said))


def _shortened(text: str, passages: Sequence[str]) -> bytes | None:
    """Return what `_squeezed` does for a long text, with the lengths of passages that are known; None if it may differ.

    Removing white space from a whole prompt takes most of the time of hashing it.
    """
    start, end = _solid(text[:_WITH_SPACES]), _solid(text[-_WITH_SPACES:])
    if len(start) < _ENDS or len(end) < _ENDS:
        return None
    length = at = gap = 0
    for passage in passages:
        if len(passage) < _LONG:
            continue
        if text.startswith(passage, at + gap):  # as far behind the one before as that was behind another
            place = at + gap
        elif (place := find(text, passage, at, len(text))) < 0:
            break
        gap = place - at
        if (known := _lengths.get(passage)) is None:
            _lengths.put(passage, known := len(_solid(passage)))
        length += len(_solid(text[at:place])) + known
        at = place + len(passage)
    length += len(_solid(text[at:]))
    return b"%b%b%d" % (start[:_ENDS], end[-_ENDS:], length) if length > 2 * _ENDS else None


def _solid(text: str) -> bytes:
    return _bytes(text).translate(None, _SPACES)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _is_kept_upstream(exchange: Exchange) -> bool:
    """Whether the upstream holds the earlier messages: the Responses API's `conversation` names the session."""
    said = exchange.request.body.get("conversation") if exchange.request.route == "responses" else None
    return exchange.session is not None and conversation_id(said) == exchange.session


def _plain(arguments: Any) -> str:
    """Return arguments in one form, whether they are JSON text or an object."""
    values = decoded(arguments)
    return repr(sorted(values.items(), key=str)) if isinstance(values, dict) else repr(values)
