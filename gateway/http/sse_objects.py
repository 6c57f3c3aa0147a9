"""The JSON objects of events; also of those that a strict decoder refuses, as clients in other languages read them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from gateway.http.sse_events import Events

DONE = b"[DONE]"
_decode = msgspec.json.Decoder().decode


class Objects:
    """Decodes events.

    An event that is no valid JSON for its characters alone is read all the same: bytes that are not UTF-8 become
    U+FFFD, as in a browser; control characters stay; NaN is null; half of a surrogate pair waits for its other half,
    which may come with the next event. To drop the event would leave its text out of the answer. After such an event
    `whole` must be called on what was made of all.
    """

    def __init__(self) -> None:
        self._odd = False

    def of(self, stream: bytes) -> Iterator[dict[str, Any]]:
        """Yield every event that is a JSON object; `[DONE]` and what is no JSON is skipped."""
        for data in Events(stream):
            if (event := self.read(data)) is not None:
                yield event

    def read(self, data: bytes) -> dict[str, Any] | None:
        """Decode an event; None if it is no JSON object."""
        if data == DONE:
            return None
        try:
            event = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            event = self._leniently(data)
        return event if isinstance(event, dict) else None

    def whole(self, value: dict[str, Any]) -> dict[str, Any]:
        """Return what was made of the events, without halves of surrogate pairs."""
        if self._odd:
            _mend(value)
        return value

    def _leniently(self, data: bytes) -> Any:
        try:
            event = json.loads(data.decode("utf-8", "replace"), strict=False, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            return None
        self._odd = True
        return event


def _mend(value: dict[str, Any] | list[Any]) -> None:
    """Join the surrogate pairs in all strings, in place; single halves become U+FFFD. No recursion: it may be deep."""
    waiting: list[dict[Any, Any] | list[Any]] = [value]
    while waiting:
        holder = waiting.pop()
        items = list(holder.items()) if isinstance(holder, dict) else list(enumerate(holder))
        for key, one in items:
            if isinstance(one, str):
                holder[key] = _paired(one)
            elif isinstance(one, (dict, list)):
                waiting.append(one)
            if isinstance(holder, dict) and isinstance(key, str) and (name := _paired(key)) != key:
                holder[name] = holder.pop(key)


def _paired(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
