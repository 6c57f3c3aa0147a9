"""Relays a response to the client as it arrives, and keeps a copy for capture and, if requested, for the cache."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gateway.access.metering import Meter
from gateway.http.headers import for_client
from gateway.proxy import stream_usage as usage
from gateway.proxy.cache import Cached, CacheRecorder
from gateway.proxy.client import Guard
from gateway.upstreams import UpstreamError, UpstreamResponse
from gaugeway.exchange import GENERATION_ROUTES, Headers, Recording

if TYPE_CHECKING:
    from litestar.types import Send


class Relay:
    """Relays one response. `content_bytes` bounds what is kept for capture, request included.

    `meter`, if set, gets what the upstream sends. `asked`: the request was sent upstream; `whole`: the response arrived
    completely.
    """

    def __init__(self, send: Send, recording: Recording, *, start: float, content_bytes: int) -> None:
        self._send = send
        self._recording = recording
        self._start = start
        self._content_bytes = content_bytes
        self._keeping = recording.route in GENERATION_ROUTES
        self.meter: Meter | None = None
        self.asked = self.whole = False

    async def run(
        self,
        response: UpstreamResponse,
        guard: Guard,
        *,
        extra: Headers | None = None,
        tape: CacheRecorder | None = None,
    ) -> bool:
        """Relay the response, with `extra` headers; return whether it was complete. `tape` gets the chunks as sent."""
        recording, meter = self._recording, self.meter
        if meter is not None:
            meter.begin(response.status, response.headers)
        await self._head(response.status, response.headers, extra or [])
        hide = usage.HideUsage() if recording.asked_for_usage and usage.can_be_hidden(response.headers) else None
        more = True
        while more:
            try:
                chunk, more = await response.read()
            except UpstreamError as error:
                # Returning without the last body message makes the server close the connection: the client must not
                # take half a response for a whole one.
                recording.error_kind = error.kind
                recording.ending = "timeout" if error.kind == "timeout" else "upstream_truncated"
                return False
            if chunk and recording.first_chunk_s is None:
                recording.first_chunk_s = time.perf_counter() - self._start
            if meter is not None:
                meter.feed(chunk)
            if not more:
                guard.delivered()
                self.whole = True
            passed = chunk if hide is None else hide.feed(chunk) + (b"" if more else hide.flush())
            await self._send({"type": "http.response.body", "body": passed, "more_body": more})
            if tape is not None:
                tape.add(passed)
            if self._keeping and chunk:
                recording.keep(chunk, self._content_bytes)
        return True

    async def replay(self, cached: Cached, guard: Guard) -> None:
        """Send a cached response, in its original chunks."""
        await self._head(cached.status, cached.headers, [])
        self._recording.first_chunk_s = time.perf_counter() - self._start
        guard.delivered()
        await self._chunks(cached.chunks)

    async def _head(self, status: int, headers: Headers, extra: Headers) -> None:
        self._recording.status = status
        self._recording.response_headers = headers
        shown = for_client(headers, self._recording.id.encode(), status=status) + extra
        await self._send({"type": "http.response.start", "status": status, "headers": shown})

    async def _chunks(self, chunks: Iterable[bytes]) -> None:
        for chunk in chunks:
            await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
            if self._keeping:
                self._recording.keep(chunk, self._content_bytes)
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})
