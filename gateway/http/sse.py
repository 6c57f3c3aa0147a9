"""Server-sent events: splits a finished stream, and merges its chunks into the response without streaming."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

_decode = msgspec.json.Decoder().decode


def data_of(stream: bytes) -> Iterator[bytes]:
    r"""Yield the data of each event, several data lines joined by a newline; comments and other fields are passed over.

    An event that the end of the stream cuts off is not yielded (as the specification asks).

    >>> list(data_of(b": hi\n\ndata: a\ndata: b\n\ndata: cut"))
    [b'a\nb']
    """
    lines: list[bytes] = []
    for line in stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")[:-1]:
        if not line:
            if lines:
                yield b"\n".join(lines)
                lines = []
        elif line.startswith(b"data:"):
            lines.append(line[6:] if line.startswith(b"data: ") else line[5:])


def objects_of(stream: bytes) -> Iterator[dict[str, Any]]:
    """Yield every event that is a JSON object; `[DONE]` and unreadable events are skipped."""
    for data in data_of(stream):
        try:
            event = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(event, dict):
            yield event


class _Texts:
    """Collects the pieces of texts and joins them once, at the end, in linear time."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[int, str], tuple[dict[str, Any], list[str]]] = {}

    def add(self, target: dict[str, Any], key: str, piece: Any) -> None:
        """Append `piece`, if it is a text, to the text under `key` of `target`."""
        if not isinstance(piece, str):
            return
        kept = self._pieces.get((id(target), key))
        if kept is None:
            kept = self._pieces[id(target), key] = (target, [str(target.get(key) or "")])
            target[key] = ""
        kept[1].append(piece)

    def join(self) -> None:
        """Join the pieces, and store the texts in their objects."""
        for (_, key), (target, pieces) in self._pieces.items():
            target[key] = "".join(pieces)


def fold(route: str, stream: bytes) -> dict[str, Any]:
    """Merge a stream of `route` into the body that the same request would have without `stream`."""
    events = objects_of(stream)
    if route == "responses":
        return _fold_responses(events)
    if route == "messages":
        return _fold_messages(events)
    return _fold_choices(events)


def _fold_choices(events: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Merge chat completion chunks or (legacy) completion chunks."""
    folded: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    texts = _Texts()
    for event in events:
        for key in ("id", "model", "created", "system_fingerprint", "service_tier", "usage", "error"):
            if event.get(key) is not None:
                folded[key] = event[key]
        for piece in _dicts(event.get("choices")):
            index = piece.get("index")
            choice = choices.setdefault(index if isinstance(index, int) else 0, {})
            if piece.get("finish_reason") is not None:
                choice["finish_reason"] = piece["finish_reason"]
            texts.add(choice, "text", piece.get("text"))
            if isinstance(piece.get("delta"), dict):
                _fold_delta(choice.setdefault("message", {}), piece["delta"], texts)
    texts.join()
    folded["choices"] = [{"index": index, **choice} for index, choice in sorted(choices.items())]
    for choice in folded["choices"]:
        calls = choice.get("message", {}).get("tool_calls")
        if isinstance(calls, dict):
            choice["message"]["tool_calls"] = [call for _, call in sorted(calls.items())]
    return folded


def _fold_delta(message: dict[str, Any], delta: dict[str, Any], texts: _Texts) -> None:
    for key in ("content", "refusal", "reasoning_content"):
        texts.add(message, key, delta.get(key))
    for key in ("role", "context"):
        if delta.get(key):
            message[key] = delta[key]
    if isinstance(legacy := delta.get("function_call"), dict):
        _fold_function(message.setdefault("function_call", {}), legacy, texts)
    for piece in _dicts(delta.get("tool_calls")):
        calls = message.setdefault("tool_calls", {})
        index = piece.get("index")
        call = calls.setdefault(index if isinstance(index, int) else len(calls), {})
        for key in ("id", "type"):
            if piece.get(key):
                call[key] = piece[key]
        if isinstance(piece.get("function"), dict):
            _fold_function(call.setdefault("function", {}), piece["function"], texts)


def _fold_function(function: dict[str, Any], piece: dict[str, Any], texts: _Texts) -> None:
    for key in ("name", "arguments"):
        texts.add(function, key, piece.get(key))


def _fold_responses(events: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the terminal event's response; without one (a truncated stream) merge the deltas."""
    latest: dict[str, Any] = {}
    failed: dict[str, Any] = {}
    parts: dict[tuple[int | None, int | None], dict[str, Any]] = {}
    texts = _Texts()
    items: list[dict[str, Any]] = []
    for event in events:
        if isinstance(event.get("response"), dict):
            latest, failed = event["response"], {}
        kind = event.get("type")
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            return latest | failed
        if kind == "error":
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


def _fold_messages(events: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Merge the events of Anthropic's API into the message."""
    message: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    usage: dict[str, Any] = {}
    texts = _Texts()
    for event in events:
        kind, index = event.get("type"), event.get("index")
        index = index if isinstance(index, int) else 0
        delta = event.get("delta") if isinstance(event.get("delta"), dict) else {}
        if kind == "message_start" and isinstance(event.get("message"), dict):
            message = dict(event["message"])
            usage = dict(message["usage"]) if isinstance(message.get("usage"), dict) else {}
        elif kind == "content_block_start" and isinstance(event.get("content_block"), dict):
            blocks[index] = dict(event["content_block"])
        elif kind == "content_block_delta" and isinstance(delta, dict):
            block = blocks.setdefault(index, {"type": "text"})
            for key in ("text", "thinking", "partial_json"):
                texts.add(block, key, delta.get(key))
        elif kind == "message_delta" and isinstance(delta, dict):
            message.update(delta)
            usage.update(event["usage"] if isinstance(event.get("usage"), dict) else {})
            message["usage"] = usage
        elif kind == "error":
            message["error"] = event.get("error")
    texts.join()
    return {**message, "content": [block for _, block in sorted(blocks.items())]}


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        yield from (one for one in value if isinstance(one, dict))
