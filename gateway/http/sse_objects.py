"""The JSON objects of events; also of those that a strict decoder refuses, as clients in other languages read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from gateway.http import lenient_json
from gateway.http.sse_events import Events

DONE = b"[DONE]"
_decode = msgspec.json.Decoder().decode


class Objects:
    """Decodes events.

    An event that is no valid JSON for its characters alone is read all the same (`lenient_json`): to drop it would
    leave its text out of the answer. Half of a surrogate pair waits for its other half, which may come with the next
    event, so after such an event `whole` must be called on what was made of all.
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
            lenient_json.mend(value)
        return value

    def _leniently(self, data: bytes) -> Any:
        try:
            event = lenient_json.read(data)
        except (ValueError, RecursionError):
            return None
        self._odd = True
        return event
