"""The steps of an exchange: check the request, admit it, send it upstream, relay the response, settle and record."""

from __future__ import annotations

import asyncio
import logging
import time
from asyncio import CancelledError
from collections.abc import AsyncIterator, Coroutine
from typing import TYPE_CHECKING, Any

from gateway.http.errors import Rejection, body_of, too_large
from gateway.http.headers import for_client
from gateway.proxy import stream_usage
from gateway.proxy.cache import MISS, Cached, CacheKey, CacheRecorder
from gateway.proxy.client import Client, ClientDisconnected, TookTooLong
from gateway.proxy.request import Body, Head
from gateway.upstreams import UpstreamError, UpstreamResponse
from gaugeway.exchange import GENERATION_ROUTES, Headers, Recording

if TYPE_CHECKING:
    from gateway.access.accounting import Bill
    from gateway.proxy.handler import Proxy
    from gateway.upstreams.router import Attempts, Outgoing


def too_slow() -> Rejection:
    """Return the 504 for a response that was not complete within `gateway.total_timeout_s`."""
    return Rejection(
        504, "upstream_timeout", "Gaugeway: the upstream did not finish in time (gateway.total_timeout_s)."
    )


def shutting_down() -> Rejection:
    """Return the 503 for a request that was not answered by the end of the drain period."""
    message = "Gaugeway: shutting down; the request was not completed in time. Send it again."
    return Rejection(503, "shutting_down", message, headers=((b"retry-after", b"1"),))


def unreachable(error: UpstreamError) -> Rejection:
    """Return the 504 or 502 for a request that no upstream answered."""
    if error.kind in ("timeout", "connect_timeout"):
        return Rejection(504, "upstream_timeout", f"Gaugeway: {error.detail}.")
    return Rejection(502, "upstream_unreachable", f"Gaugeway: {error.detail}.")


def internal(defect: str) -> Rejection:
    """Return the 500 for a defect of the gateway's."""
    return Rejection(500, "internal_error", f"Gaugeway: the request could not be passed on ({defect}).")


def response_of(rejection: Rejection, exchange_id: str) -> tuple[Headers, bytes]:
    """Return the headers and the body of the response to a refused request."""
    body = body_of(rejection)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"x-gaugeway-exchange-id", exchange_id.encode()),
        *rejection.headers,
    ]
    return headers, body


LARGE_BYTES = 256 * 1024
"""A larger body is scanned for our member in slices, between which other requests are served."""
_log = logging.getLogger("gaugeway")


class Exchange:
    """One request and its response, served by a coroutine (`run`) from a client of any kind.

    Whatever ends it, it ends in `_conclude`, which answers for the error; then `_finish` settles and records it, once.
    """

    def __init__(self, proxy: Proxy, client: Client, head: Head, recording: Recording) -> None:
        self.recording = recording
        self._proxy = proxy
        self._client = client
        self._head = head
        self._start = self._body_at = time.perf_counter()
        self._received = 0
        self._via = b""
        self._asked: bytes = b""
        self._outgoing: Outgoing
        self._bill: Bill | None = None
        self._attempts: Attempts | None = None
        self._hide: stream_usage.HideUsage | None = None
        self._tape: CacheRecorder | None = None
        self._keeps = recording.route in GENERATION_ROUTES
        self._content_bytes = proxy.limits.content_bytes
        self._is_sent = self._is_whole = self._is_over = False
        self._total_timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[Any] | None = None
        self._reason: ClientDisconnected | TookTooLong | None = None

    async def run(self) -> None:
        """Serve the request from its head to its end."""
        await self._serve(self._from_the_head())

    async def _serve(self, work: Coroutine[Any, Any, None]) -> None:
        """Do `work`, and end the exchange, whatever ends the work."""
        self._task = asyncio.current_task()
        try:
            await self._unless_stopped(work)
        except BaseException as error:
            self._conclude(self._why(error))
            await self._client.flush()
            if isinstance(error, CancelledError) and self._reason is None:
                raise
        finally:
            self._finish()
            self._client.done()

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        if self._reason is not None:  # before the task began
            work.close()
            raise self._reason
        await work

    def stop(self, reason: ClientDisconnected | TookTooLong) -> None:
        """End the exchange early, unless the response is delivered."""
        if not (self._is_over or self._is_whole) and self._reason is None:
            self._reason = reason
            if self._task is not None:
                self._task.cancel()

    def _why(self, error: BaseException) -> BaseException:
        """Return what cancelled the task, if that was `stop` alone, else the error."""
        if isinstance(error, CancelledError) and self._reason is not None and self._task is not None:
            if self._task.uncancel() == 0:
                return self._reason
            self._reason = None
        return error

    # The request.

    async def _from_the_head(self) -> None:
        await self._from_the_body(self.check_head())

    async def _from_the_body(self, limit: int) -> None:
        seen, recording = self._head.seen, self.recording
        body: bytes | AsyncIterator[bytes]
        if self._is_buffered() or (not seen.chunked and not seen.content_length):
            body = b"".join([chunk async for chunk in self._chunks(limit)])  # without one b"", which can be sent again
        else:
            self._client.pass_on()
            body = self._chunks(limit)
        cut = await self._proxy.cut(body) if isinstance(body, bytes) and len(body) > LARGE_BYTES else None
        self.prepare(self._proxy.read(body, seen, recording, cut))
        await self._proceed()

    def check_head(self) -> int:
        """Check what can be checked before the body is read; return the limit of its size. Raises Rejection."""
        self._via = self._proxy.check(self._head, self.recording)
        limits, length = self._proxy.limits, self._head.seen.content_length
        limit = limits.body_bytes if self._is_buffered() else limits.upload_bytes
        if length is not None and length > limit:
            raise too_large(limit)
        self._proxy.identify(self.recording)
        return limit

    def _is_buffered(self) -> bool:
        return self._keeps or self._head.seen.json

    async def _chunks(self, limit: int) -> AsyncIterator[bytes]:
        """Yield the body as it arrives. Raises Rejection if it is too large, ClientDisconnected if it breaks off."""
        more = True
        while more:
            if (received := await self._client.receive()) is None:
                raise ClientDisconnected
            chunk, more = received
            self._received += len(chunk)
            if self._received > limit:
                raise too_large(limit)
            if chunk:
                yield chunk
        self._body_at = time.perf_counter()

    def prepare(self, body: Body) -> None:
        """Note the body, and what is to be sent upstream. Raises Rejection."""
        self._asked = body.asked
        self._outgoing = self._proxy.outgoing(self._head, self._via, body, self.recording)

    # The way upstream.

    async def _proceed(self) -> None:
        """Admit the request that was prepared, and answer it from the cache or from an upstream."""
        proxy, recording, outgoing = self._proxy, self.recording, self._outgoing
        self.limit_total()
        self._client.watch(self.leave)
        if proxy.gate is not None and self._bill is None:
            opening = (proxy.name_key(self._head, recording), self._head, self._asked, recording)
            large = len(self._asked) > LARGE_BYTES
            self._bill = await asyncio.to_thread(proxy.bill, *opening) if large else proxy.bill(*opening)
        proxy.router.check(outgoing)
        if self._bill is not None:
            await proxy.admit(self._head, self._bill, recording)
        recording.request_overhead_s = time.perf_counter() - self._body_at
        if (key := proxy.cache_key(outgoing, self._asked, recording)) is None or proxy.cache is None:
            await self._from_upstream()
        elif (cached := proxy.cache.lookup(key, time.monotonic())) is not None:
            await self._replay(cached)
        else:
            self._tape = CacheRecorder(min(proxy.cache.max_bytes, self._content_bytes))
            await self._from_upstream()
            self._store(key)

    async def _from_upstream(self) -> None:
        router = self._proxy.router
        self._attempts = router.begin(self._outgoing)
        self._is_sent = True
        await self.follow(await router.attempt(self._attempts))

    async def follow(self, outcome: UpstreamResponse | UpstreamError) -> None:
        """Relay the response that follows from an attempt with this outcome. Raises UpstreamError."""
        assert self._attempts is not None  # noqa: S101 - for the type checker: there was an attempt
        response: UpstreamResponse | None = None if isinstance(outcome, UpstreamError) else outcome
        try:
            routed = await self._proxy.router.resume(self._attempts, outcome)
            response = routed.response
            recording = self.recording
            recording.upstream = routed.upstream
            recording.tags = routed.tags if routed.model is None else routed.tags | {"model_sent": routed.model}
            await self._relay(response)
        finally:
            if response is not None:
                await response.aclose()

    def limit_total(self) -> None:
        """Start the timer of the whole exchange, where there is a limit."""
        if (limit_s := self._proxy.limits.total_s) is not None and self._total_timer is None:
            self._total_timer = asyncio.get_running_loop().call_later(limit_s, self.stop, TookTooLong())

    def leave(self) -> None:
        """Note that the client has left."""
        self.stop(ClientDisconnected())

    # The way back.

    async def _relay(self, response: UpstreamResponse) -> None:
        """Relay a response as it arrives. Raises UpstreamError."""
        self.begin_response(response.status, response.headers)
        more = True
        while more:
            await self._client.flush()
            chunk, more = await response.read()
            if chunk:
                self.pass_on(chunk)
        self.end_response()
        await self._client.flush()

    async def _replay(self, cached: Cached) -> None:
        """Send a cached response, in its original chunks."""
        recording = self.recording
        recording.cached = self._is_whole = True
        self._head_of(cached.status, cached.headers)
        recording.first_chunk_s = time.perf_counter() - self._start
        for chunk in cached.chunks:
            self._client.write(chunk)
            await self._client.flush()
            if self._keeps:
                recording.keep(chunk, self._content_bytes)
        self._client.end()
        await self._client.flush()

    def begin_response(self, status: int, headers: Headers) -> None:
        """Pass on the head of the upstream's response."""
        if self._bill is not None:
            self._bill.meter.begin(status, headers)
        if self.recording.asked_for_usage and stream_usage.can_be_hidden(headers):
            self._hide = stream_usage.HideUsage()
        self._head_of(status, headers)

    def _head_of(self, status: int, headers: Headers) -> None:
        self.recording.status = status
        self.recording.response_headers = headers
        shown = for_client(headers, self.recording.id.encode(), status=status)
        self._client.begin(status, shown if self._tape is None else [*shown, MISS])

    def pass_on(self, chunk: bytes) -> None:
        """Pass on bytes of the upstream's response."""
        recording = self.recording
        if recording.first_chunk_s is None:
            recording.first_chunk_s = time.perf_counter() - self._start
        if self._bill is not None:
            self._bill.meter.feed(chunk)
        if self._hide is None and self._tape is None:
            self._client.write(chunk)
        else:
            self._write(chunk if self._hide is None else self._hide.feed(chunk))
        if self._keeps:
            recording.keep(chunk, self._content_bytes)

    def _write(self, shown: bytes) -> None:
        if shown:
            self._client.write(shown)
            if self._tape is not None:
                self._tape.add(shown)

    def end_response(self) -> None:
        """Pass on that the response is whole. From now on it counts as delivered, even if the client hangs up."""
        self._is_whole = True
        if self._hide is not None:
            self._write(self._hide.flush())
        self._client.end()

    def _store(self, key: CacheKey) -> None:
        cache, tape = self._proxy.cache, self._tape
        if cache is not None and tape is not None and tape.whole:
            recording = self.recording
            cache.store(key, recording.status, recording.response_headers, tape.chunks, time.monotonic())

    # The end.

    def _conclude(self, error: BaseException) -> None:
        """Note why the exchange ends early, and answer for it if nothing of the response was sent."""
        recording = self.recording
        begun = bool(recording.status)
        if isinstance(error, ClientDisconnected):
            recording.ending = "client_cancelled"
            return
        if isinstance(error, Rejection):
            recording.ending = "rejected"
            self._proxy.name_owner(recording.request_headers, recording)
            answer = error
        elif isinstance(error, UpstreamError):
            answer = self._fail_by_upstream(error, begun=begun)
        elif isinstance(error, TookTooLong):
            recording.ending, recording.error_kind = "timeout", "timeout"
            answer = too_slow()
        elif isinstance(error, CancelledError):  # by the server, as the drain period is over
            recording.ending = "timeout" if begun else "rejected"
            answer = shutting_down()
        else:  # a mistake of ours must neither look like an answer nor go uncounted
            _log.error("request %s failed in the gateway", recording.id, exc_info=error)
            recording.error_kind = "internal"
            recording.ending = "upstream_truncated" if begun else "upstream_error"
            answer = internal(type(error).__name__)
        if begun:
            self._client.cut()
            return
        recording.status = answer.status
        headers, body = response_of(answer, recording.id)
        self._client.begin(answer.status, headers)
        self._client.write(body)
        self._client.end()
        if isinstance(error, CancelledError):
            self._client.cut()

    def _fail_by_upstream(self, error: UpstreamError, *, begun: bool) -> Rejection:
        """Note how the last upstream that was asked failed."""
        recording, attempts = self.recording, self._attempts
        recording.error_kind = error.kind
        if begun:
            recording.ending = "timeout" if error.kind == "timeout" else "upstream_truncated"
            return unreachable(error)
        recording.ending = "timeout" if error.kind in ("timeout", "connect_timeout") else "upstream_error"
        self._is_sent = error.kind == "timeout"  # the others did not get the request, or gave it up
        if attempts is not None:
            recording.upstream = attempts.link.name
            self._proxy.router.failure_log.add(attempts.link.name, error)
        return unreachable(error)

    def _finish(self) -> None:
        """Settle and record the exchange, and make room for the next one."""
        self._is_over = True
        self._task = self._reason = None
        if self._total_timer is not None:
            self._total_timer.cancel()
            self._total_timer = None
        recording, bill = self.recording, self._bill
        if bill is not None:
            bill.received, bill.sent, bill.cut = self._received, self._is_sent, not self._is_whole
            self._proxy.settle(bill, recording)
        recording.duration_s = time.perf_counter() - self._start
        self._proxy.record(recording)
