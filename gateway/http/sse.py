"""Server-sent events: splits a finished stream, and merges its chunks into the response without streaming."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from gateway.http.sse_events import DONE, Events, Objects
from gateway.http.sse_repeats import RepeatedEvents


class _Texts:
    """Collects the pieces of texts and joins them once, at the end, in linear time."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[int, str], tuple[dict[str, Any], list[str]]] = {}

    def add(self, target: dict[str, Any], key: str, piece: Any) -> None:
        """Append `piece`, if it is a text, to the text under `key` of `target`."""
        if isinstance(piece, str):
            self.pieces_of(target, key).append(piece)

    def pieces_of(self, target: dict[str, Any], key: str) -> list[str]:
        """Return the pieces of the text under `key` of `target`, to append to."""
        if (kept := self._pieces.get((id(target), key))) is None:
            kept = self._pieces[id(target), key] = (target, [str(target.get(key) or "")])
            target[key] = ""
        return kept[1]

    def join(self) -> None:
        """Join the pieces, and store the texts in their objects."""
        for (_, key), (target, pieces) in self._pieces.items():
            target[key] = "".join(pieces)


def fold(route: str, stream: bytes, chunks: Sequence[bytes] = ()) -> dict[str, Any]:
    """Merge a stream of `route` into the body that the same request would have without `stream`.

    `chunks` are the pieces in which the stream came, where they are known: it is read faster then.
    """
    objects = Objects()
    if route == "responses":
        return objects.whole(_fold_responses(stream, objects))
    if route == "messages":
        return objects.whole(_fold_messages(stream, chunks, objects))
    return objects.whole(_fold_choices(stream, chunks, objects))


def _fold_choices(stream: bytes, chunks: Sequence[bytes], objects: Objects) -> dict[str, Any]:
    """Merge chat completion chunks or (legacy) completion chunks."""
    folded: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    texts = _Texts()
    repeated = RepeatedEvents("choices", 0, "delta", "content")
    pieces: list[str] = []
    events = Events(stream, chunks)
    for data in events:
        if (text := repeated.piece(data)) is not None:
            pieces.append(text)
        elif data == DONE:
            break  # what follows reaches no client's code
        elif (event := objects.read(data)) is not None:
            _fold_chunk(event, folded, choices, texts)
            repeated.forget()
            if (index := _of_content_alone(event)) is not None:
                repeated.learn(data, event)
                pieces = texts.pieces_of(choices[index]["message"], "content")
                pieces.append(repeated.run(events))
    texts.join()
    folded["choices"] = [{"index": index, **choice} for index, choice in sorted(choices.items())]
    for choice in folded["choices"]:
        if isinstance((calls := choice.get("message", {}).get("tool_calls")), _Calls):
            choice["message"]["tool_calls"] = calls.in_order()
    return folded


def _fold_chunk(
    event: dict[str, Any], folded: dict[str, Any], choices: dict[int, dict[str, Any]], texts: _Texts
) -> None:
    for key in ("id", "model", "created", "system_fingerprint", "service_tier", "usage", "error"):
        if event.get(key) is not None:
            folded[key] = event[key]
    for piece in _dicts(event.get("choices")):
        choice = choices.setdefault(_index(piece.get("index")) or 0, {})
        if piece.get("finish_reason") is not None:
            choice["finish_reason"] = piece["finish_reason"]
        texts.add(choice, "text", piece.get("text"))
        if isinstance(piece.get("delta"), dict):
            _fold_delta(choice.setdefault("message", {}), piece["delta"], texts)


def _of_content_alone(event: dict[str, Any]) -> int | None:
    """Return the index of the choice to whose content an event adds, if nothing else changes when it comes again."""
    choices = list(_dicts(event.get("choices")))
    if len(choices) != 1 or not isinstance(delta := choices[0].get("delta"), dict):
        return None
    alone = (
        isinstance(delta.get("content"), str)
        and not isinstance(choices[0].get("text"), str)
        and not isinstance(delta.get("refusal"), str)
        and not isinstance(delta.get("reasoning_content"), str)
        and not delta.get("function_call")
        and not delta.get("tool_calls")
    )
    return (_index(choices[0].get("index")) or 0) if alone else None


def _fold_delta(message: dict[str, Any], delta: dict[str, Any], texts: _Texts) -> None:
    for key in ("content", "refusal", "reasoning_content"):
        texts.add(message, key, delta.get(key))
    for part in _dicts(delta.get("content")):  # as reasoning models of Mistral send it; their thoughts have no text
        texts.add(message, "content", part.get("text"))
    for key in ("role", "context"):
        if delta.get(key):
            message[key] = delta[key]
    if isinstance(legacy := delta.get("function_call"), dict):
        _fold_function(message.setdefault("function_call", {}), legacy, texts)
    for piece in _dicts(delta.get("tool_calls")):
        call = message.setdefault("tool_calls", _Calls()).at(piece.get("index"), piece.get("id"))
        for key in ("id", "type"):
            if piece.get(key):
                call[key] = piece[key]
        if isinstance(piece.get("function"), dict):
            _fold_function(call.setdefault("function", {}), piece["function"], texts)


class _Calls:
    """The tool calls of a message by index. Some servers give all of them the index 0: a new id begins a new call."""

    def __init__(self) -> None:
        self._calls: dict[tuple[int, int], dict[str, Any]] = {}
        self._latest: dict[int, int] = {}

    def at(self, index: Any, name: Any) -> dict[str, Any]:
        """Return the call to which a piece with this index and id belongs."""
        place = index if isinstance(index, int) else len(self._calls)
        number = self._latest.get(place, 0)
        known = self._calls.get((place, number), {}).get("id")
        if name and known and name != known:
            number += 1
        self._latest[place] = number
        return self._calls.setdefault((place, number), {})

    def in_order(self) -> list[dict[str, Any]]:
        """Return all of them."""
        return [call for _, call in sorted(self._calls.items(), key=itemgetter(0))]


def _fold_function(function: dict[str, Any], piece: dict[str, Any], texts: _Texts) -> None:
    for key in ("name", "arguments"):
        texts.add(function, key, piece.get(key))


_TERMINAL = ("response.completed", "response.incomplete", "response.failed")
DECIDING = (b'"response"', b'"error"', b"\\u", *(b'"%b"' % kind.encode() for kind in _TERMINAL))
"""One of these is in every event that has the terminal event's effect, whatever its keys' order and spelling."""


def _fold_responses(stream: bytes, objects: Objects) -> dict[str, Any]:
    """Return the terminal event's response; without one (a truncated stream) merge the deltas."""
    deciding = (data for data in Events(stream) if any(mark in data for mark in DECIDING))
    complete = _fold_response_events(filter(None, map(objects.read, deciding)))
    return complete if complete is not None else _fold_response_deltas(objects.of(stream))


def _fold_response_events(events: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the response of the terminal event; None without one."""
    latest: dict[str, Any] = {}
    failed: dict[str, Any] = {}
    for event in events:
        if isinstance(event.get("response"), dict):
            latest, failed = event["response"], {}
        if event.get("type") in _TERMINAL:
            return latest | failed
        if event.get("type") == "error":
            failed = {"status": "failed", "error": event}
    return None


def _fold_response_deltas(events: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Merge the deltas of a response without a terminal event."""
    latest: dict[str, Any] = {}
    failed: dict[str, Any] = {}
    parts: dict[tuple[int | None, int | None], dict[str, Any]] = {}
    texts = _Texts()
    items: list[dict[str, Any]] = []
    for event in events:
        if isinstance(event.get("response"), dict):
            latest, failed = event["response"], {}
        if (kind := event.get("type")) == "error":
            failed = {"status": "failed", "error": event}
        elif kind == "response.output_text.delta" and isinstance(event.get("delta"), str):
            part = _index(event.get("output_index")), _index(event.get("content_index"))
            texts.add(parts.setdefault(part, {"type": "output_text", "text": ""}), "text", event.get("delta"))
        elif kind == "response.output_item.done" and isinstance(event.get("item"), dict):
            items.append(event["item"])
    texts.join()
    if not any(item.get("type") == "message" for item in items) and parts:
        items.append({"type": "message", "content": list(parts.values())})
    return {**latest, **failed, "output": items or latest.get("output", [])}


def _index(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _fold_messages(stream: bytes, chunks: Sequence[bytes], objects: Objects) -> dict[str, Any]:
    """Merge the events of Anthropic's API into the message."""
    message: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    texts = _Texts()
    repeated = RepeatedEvents("delta", "text")
    pieces: list[str] = []
    events = Events(stream, chunks)
    for data in events:
        if (text := repeated.piece(data)) is not None:
            pieces.append(text)
        elif (event := objects.read(data)) is not None:
            message = _fold_message_event(event, message, blocks, texts)
            repeated.forget()
            if _of_text_alone(event):
                repeated.learn(data, event)
                pieces = texts.pieces_of(blocks[_index(event.get("index")) or 0], "text")
                pieces.append(repeated.run(events))
    texts.join()
    for block in blocks.values():
        _take_input(block)
    return {**message, "content": [block for _, block in sorted(blocks.items())]}


def _take_input(block: dict[str, Any]) -> None:
    """Put the arguments of a call, which came as pieces of JSON, where a message without a stream has them."""
    if not isinstance(said := block.pop("partial_json", None), str) or not said:
        return
    try:
        block["input"] = msgspec.json.decode(said.encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        block["input"] = said  # cut off


def _fold_message_event(
    event: dict[str, Any], message: dict[str, Any], blocks: dict[int, dict[str, Any]], texts: _Texts
) -> dict[str, Any]:
    """Merge one event; return the message."""
    kind, index = event.get("type"), _index(event.get("index")) or 0
    delta = event.get("delta")
    if kind == "message_start" and isinstance(event.get("message"), dict):
        return dict(event["message"])
    if kind == "content_block_start" and isinstance(event.get("content_block"), dict):
        blocks[index] = dict(event["content_block"])
    elif kind == "content_block_delta" and isinstance(delta, dict):
        block = blocks.setdefault(index, {"type": "text"})
        for key in ("text", "thinking", "partial_json"):
            texts.add(block, key, delta.get(key))
    elif kind == "message_delta" and isinstance(delta, dict):
        usage = {key: value for part in (message, event) for key, value in _usage(part).items()}
        message.update(delta)
        message["usage"] = usage
    elif kind == "error":
        message["error"] = event.get("error")
    return message


def _of_text_alone(event: dict[str, Any]) -> bool:
    """Whether an event only adds to the text of a block."""
    delta = event.get("delta")
    if event.get("type") != "content_block_delta" or not isinstance(delta, dict):
        return False
    return isinstance(delta.get("text"), str) and not delta.keys() & {"thinking", "partial_json"}


def _usage(part: dict[str, Any]) -> dict[str, Any]:
    usage = part.get("usage")
    return usage if isinstance(usage, dict) else {}


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))
