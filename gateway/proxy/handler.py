"""The proxy: reads a request, forwards it, relays the response as it arrives, and records the exchange."""

from __future__ import annotations

import asyncio
import logging
import time
from asyncio import CancelledError
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from gateway.access.accounting import Accounting, Bill
from gateway.access.gate import Gate, Permit
from gateway.access.keys import model_asked, without_credentials
from gateway.access.operations import operation_of
from gateway.access.restrictions import Asked, check_request, is_restricted
from gateway.http import json_member
from gateway.http.errors import Rejection, empty_body, too_large, unclear_request
from gateway.http.headers import RequestHead, inspect
from gateway.http.origins import OriginPolicy
from gateway.http.url import check_target
from gateway.proxy import loops
from gateway.proxy import stream_usage as usage
from gateway.proxy.cache import MISS, Cache, CacheKey, CacheRecorder, cache_key
from gateway.proxy.client import Client, ClientDisconnected, Guard, TookTooLong
from gateway.proxy.refusals import internal, send_refusal, shutting_down, too_slow, unreachable
from gateway.proxy.request import Body, Head, begin, read_explicit
from gateway.proxy.response import Relay
from gateway.upstreams import UpstreamError, UpstreamResponse
from gateway.upstreams.policy import model_of
from gateway.upstreams.router import Attempts, Outgoing, Routed, RoutedError, Router
from gaugeway.exchange import GENERATION_ROUTES, Explicit, Headers, Recording, Trace
from gaugeway.runtime.serving import STREAMED
from gaugeway.storage.keys import VirtualKey

if TYPE_CHECKING:
    from litestar.types import HTTPScope, Receive, Send


class Tracing(Protocol):
    """Decides which trace an exchange belongs to."""

    def begin(self, traceparent: bytes | None) -> tuple[Trace | None, bytes | None]:
        """Return the exchange's trace, and the traceparent to send upstream (None: the client's, untouched)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one request's size (bytes) and time (seconds); None for no limit.

    A body and a response that together exceed `content_bytes` are relayed but not captured. `read_s` bounds each wait
    for the upstream.
    """

    body_bytes: int
    upload_bytes: int
    content_bytes: int
    read_s: float = 600.0
    first_byte_s: float | None = None
    total_s: float | None = None


LARGE_BYTES = 256 * 1024
"""A larger body is scanned for our member in slices, between which other requests are served."""
MOST_SCANS = 4
"""How many large bodies are scanned at the same time."""
_log = logging.getLogger("gaugeway")


class Prepared(NamedTuple):
    """A request on the fast path, ready to be admitted and sent: `headers` are the client's, with its key."""

    attempts: Attempts
    headers: Headers
    bill: Bill | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """An exchange that the ASGI path continues after a failed first attempt; times are `perf_counter` seconds.

    `bill` has a permit already. `outcome` is the failed attempt's error, or its response, of which nothing was relayed.
    """

    recording: Recording
    started_at: float
    sent_at: float
    attempts: Attempts
    outcome: UpstreamResponse | UpstreamError
    bill: Bill | None


class Proxy:
    """The ASGI app for `/v1/*` and `/openai/*`, and the steps of it that the fast path shares.

    `record` is called once per request, at its end, on the event loop: it must neither block nor raise. With
    `include_usage`, streams are requested with usage, which clients that did not request it do not get. `gate` admits
    requests, `accounting` charges them (required with a gate), `cache` may answer them. `gateway_id` is the value of
    `gaugeway-via`. `origins` says which web pages may send requests; None for all.
    """

    def __init__(
        self,
        *,
        router: Router,
        record: Callable[[Recording], None],
        tracing: Tracing,
        limits: Limits,
        include_usage: bool = False,
        gate: Gate | None = None,
        accounting: Accounting | None = None,
        cache: Cache | None = None,
        gateway_id: bytes = b"",
        origins: OriginPolicy | None = None,
    ) -> None:
        self.router = router
        self.record = record
        self._tracing = tracing
        self.limits = limits
        self._include_usage = include_usage
        self._gate = gate
        self._accounting = accounting
        self._cache = cache
        self._scans = asyncio.Semaphore(MOST_SCANS)
        self._id = gateway_id
        self._origins = origins

    async def __call__(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        start = time.perf_counter()
        recording = begin(scope["method"], scope["path"], list(scope["headers"]))
        await self._serve(self._exchange(scope, receive, send, recording, start), send, recording, start)

    async def resume(self, exchange: HandOver, receive: Receive, send: Send) -> None:
        """Serve the rest of a request whose first attempt failed on the fast path."""
        work = self._continue(exchange, receive, send)
        await self._serve(work, send, exchange.recording, exchange.started_at)

    async def _serve(self, work: Coroutine[Any, Any, None], send: Send, recording: Recording, start: float) -> None:
        """Run `work`, answer for it if it fails, and record the exchange."""
        try:
            await work
        except ClientDisconnected:
            recording.ending = "client_cancelled"
        except Rejection as rejection:
            recording.status = rejection.status
            if recording.ending == "complete":
                recording.ending = "rejected"
            self._name_owner(recording.request_headers, recording)
            await send_refusal(send, rejection, recording.id)
        except TookTooLong:
            recording.ending = "timeout"
            recording.error_kind = "timeout"
            # Once the response has begun there is nothing to say: the server closes the connection on return.
            if not recording.status:
                recording.status = 504
                await send_refusal(send, too_slow(), recording.id)
        except CancelledError:  # by the server, as the drain period is over
            recording.ending = "timeout" if recording.status else "rejected"
            if not recording.status:
                recording.status = 503
                await send_refusal(send, shutting_down(), recording.id)
            raise
        except Exception as error:  # noqa: BLE001 - a mistake of ours must neither look like an answer nor go uncounted
            _log.exception("request %s failed in the gateway", recording.id)
            recording.error_kind = "internal"
            recording.ending = "upstream_truncated" if recording.status else "upstream_error"
            if not recording.status:
                recording.status = 500
                await send_refusal(send, internal(error), recording.id)
        finally:
            recording.duration_s = time.perf_counter() - start
            self.record(recording)

    async def _exchange(
        self, scope: HTTPScope, receive: Receive, send: Send, recording: Recording, start: float
    ) -> None:
        raw_path = scope.get("raw_path") or recording.path.encode()
        check_target(recording.method, raw_path)
        seen = inspect(recording.request_headers)
        if seen.ambiguous:
            raise unclear_request()
        if self._origins is not None and not self._origins.is_plain(seen):
            self._origins.check(recording.request_headers)
        if seen.via is not None:
            loops.chain(seen.via, self._id)  # a loop ends before its body is read
        buffered = recording.route in GENERATION_ROUTES or seen.json
        limit = self.limits.body_bytes if buffered else self.limits.upload_bytes
        if seen.content_length is not None and seen.content_length > limit:
            raise too_large(limit)
        headers = recording.request_headers
        self._identify(recording)
        client = Client(receive, limit)
        body: bytes | AsyncIterator[bytes]
        if buffered or (not seen.chunked and not seen.content_length):
            body = await client.read()  # without a body this is b"", which can be sent again
        else:
            cast("dict[str, object]", scope)[STREAMED] = True
            body = client.chunks()
        large = isinstance(body, bytes) and len(body) > LARGE_BYTES
        ready = self._read(body, seen, recording, await self._cut(body) if large else None)  # type: ignore[arg-type]
        relay = Relay(send, recording, start=start, content_bytes=self.limits.content_bytes)
        async with Guard(client, total_s=self.limits.total_s) as guard:
            bill = None
            outgoing = self._outgoing(raw_path, scope["query_string"], seen, ready, recording)
            if self._gate is not None:
                asked = Asked(recording.method, raw_path, scope["query_string"], headers, ready.asked)
                bill = await self._admit(self._gate, asked, outgoing, recording)
                relay.meter = bill.meter
            try:
                recording.request_overhead_s = time.perf_counter() - client.body_complete_at(start)
                await self._answer(outgoing, ready.asked, recording, relay, guard)
            finally:
                self.settle(bill, recording, received=client.received, sent=relay.asked, whole=relay.whole)

    async def _continue(self, exchange: HandOver, receive: Receive, send: Send) -> None:
        recording, bill, limits = exchange.recording, exchange.bill, self.limits
        client = Client(receive, limits.body_bytes)
        relay = Relay(send, recording, start=exchange.started_at, content_bytes=limits.content_bytes)
        relay.asked = True
        if bill is not None:
            relay.meter = bill.meter
        left_s = None if limits.total_s is None else limits.total_s - (time.perf_counter() - exchange.sent_at)

        try:
            await client.read()  # the server still has it; the upstream got it with the first attempt
            async with Guard(client, total_s=left_s) as guard:
                sending = self.router.resume(exchange.attempts, exchange.outcome)
                await self._from_upstream(sending, recording, relay, guard)
        finally:
            if not isinstance(exchange.outcome, UpstreamError):
                await exchange.outcome.aclose()
            self.settle(bill, recording, received=client.received, sent=relay.asked, whole=relay.whole)

    def _identify(self, recording: Recording) -> None:
        """Check the request's key, where one is needed, before its body is read. Raises Rejection."""
        if self._gate is None or not self._gate.needs_key:
            return
        headers = recording.request_headers
        recording.request_headers = without_credentials(headers)  # only the gate gets to see the key
        try:
            key = self._gate.identify(headers)
        except Rejection:
            self._name_owner(headers, recording)
            raise
        if key is not None:
            recording.explicit = Explicit(app=key.app)  # what is refused from here on counts for the key's app

    def _name_owner(self, headers: Headers, recording: Recording) -> None:
        """Count a refused request for the app of the key in `headers`, if it is a known one."""
        if self._gate is not None and (app := self._gate.owner(headers)) is not None:
            recording.explicit = replace(recording.explicit or Explicit(), app=app)

    # What the fast path does in the place of `_exchange`. Until `admit_at_once` nothing is counted or changed, so that
    # the ASGI path can serve the request from the beginning.

    def begin_fast(self, head: Head, route: str) -> Recording | None:
        """Start the recording of a request of the fast path; None if the ASGI path has to serve it."""
        seen = head.seen
        if (
            not self.router.has_pool
            or seen.content_length is None
            or seen.content_length > min(LARGE_BYTES, self.limits.body_bytes)
            or seen.chunked
            or seen.ambiguous
            or seen.upgrade
            or (self._origins is not None and not self._origins.is_plain(seen))
        ):
            return None
        recording = begin("POST", head.raw_path.decode("ascii"), head.headers, route)
        try:
            self._identify(recording)
        except Rejection:
            return None
        return recording

    def prepare(self, head: Head, body: bytes, recording: Recording) -> Prepared | None:
        """Read a request and choose its upstream; None if it may be in the cache. Raises Rejection."""
        ready = self._read(body, head.seen, recording)
        bill = None
        if self._gate is not None:
            asked = Asked(recording.method, head.raw_path, head.query, head.headers, ready.asked)
            bill = self._bill(self._name_app(self._gate, head.headers, recording), asked, recording.path)
        outgoing = self._outgoing(head.raw_path, head.query, head.seen, ready, recording)
        if self._cache is not None and self._cache.serves(recording.app):
            return None
        return Prepared(self.router.begin(outgoing), head.headers, bill)

    def admit_at_once(self, prepared: Prepared, recording: Recording) -> bool:
        """Admit a request unless it would have to wait. Raises Rejection."""
        gate, bill = self._gate, prepared.bill
        if gate is None or bill is None:
            return True
        app = recording.explicit.app if recording.explicit else None
        permit = gate.admit_at_once(prepared.headers, bill.model, app, quote=bill.quote, metered=_is_metered(bill))
        if permit is not None:
            _use_permit(permit, bill, recording)
        return permit is not None

    def settle(self, bill: Bill | None, recording: Recording, *, received: int, sent: bool, whole: bool) -> None:
        """Make room for the next request, and charge this one."""
        if bill is None:
            return
        bill.received, bill.sent, bill.cut = received, sent, not whole
        if bill.permit is not None:
            bill.permit.leave()
        if self._accounting is not None:
            self._accounting.settle(bill, recording)

    async def _cut(self, body: bytes) -> tuple[bytes, bytes | None]:
        """Remove our member from a large body as `json_member.cut_key` does. Raises Rejection."""
        async with self._scans:
            steps = json_member.cutting_key(body)
            while True:
                try:
                    next(steps)
                except StopIteration as stop:
                    pieces, value = stop.value
                    break
                await asyncio.sleep(0)
            # Joining so much releases the interpreter's lock.
            return (body if value is None else await asyncio.to_thread(b"".join, pieces)), value

    def _read(
        self,
        body: bytes | AsyncIterator[bytes],
        seen: RequestHead,
        recording: Recording,
        cut: tuple[bytes, bytes | None] | None = None,
    ) -> Body:
        """Read the `gaugeway` member and headers, and make the body that the upstream gets. Raises Rejection.

        `cut` is the body without our member, and the member's value, if it was removed before.
        """
        if not isinstance(body, bytes):
            if seen.ours:
                read_explicit(b"", seen, recording)
            return Body(body, None, b"")
        if not body and recording.route in GENERATION_ROUTES:
            raise empty_body()
        asked, length = read_explicit(body, seen, recording, cut)
        if recording.route in GENERATION_ROUTES:  # not before: a request we refuse leaves nothing behind
            self._keep_request(body, recording)
        sent = asked
        if self._include_usage and recording.route in usage.ROUTES and (more := usage.ask_for_usage(asked)):
            sent, length, recording.asked_for_usage = more, len(more), True
        if length is None and seen.content_length is None and (sent or seen.chunked):
            length = len(sent)
        return Body(sent, length, asked)

    def _outgoing(self, raw_path: bytes, query: bytes, seen: RequestHead, body: Body, recording: Recording) -> Outgoing:
        recording.trace, traceparent = self._tracing.begin(seen.traceparent)
        said = recording.explicit
        return Outgoing(
            method=recording.method,
            raw_path=raw_path,
            query=query,
            headers=recording.request_headers,
            body=body.sent,
            content_length=body.length,
            traceparent=traceparent,
            model=model_of(body.asked) if self.router.reads_model and body.asked else None,
            session=said.session if said else None,
            canary=seen.upstream,
            via=loops.chain(seen.via, self._id),
        )

    def _keep_request(self, body: bytes, recording: Recording) -> None:
        if len(body) > self.limits.content_bytes:
            recording.too_large = True
        else:
            recording.request_body = body
            recording.size = len(body)

    async def _admit(self, gate: Gate, asked: Asked, outgoing: Outgoing, recording: Recording) -> Bill:
        """Wait until the gate admits the request. Raises Rejection; a request that is refused is not charged."""
        key = self._name_app(gate, asked.headers, recording)
        if len(asked.body) > LARGE_BYTES:
            bill = await asyncio.to_thread(self._bill, key, asked, recording.path)
        else:
            bill = self._bill(key, asked, recording.path)
        self.router.check(outgoing)
        permit = await gate.admit(
            asked.headers,
            bill.model,
            recording.explicit.app if recording.explicit else None,
            reading=recording.method in ("GET", "HEAD"),
            quote=bill.quote,
            metered=_is_metered(bill),
        )
        _use_permit(permit, bill, recording)
        return bill

    def _name_app(self, gate: Gate, headers: Headers, recording: Recording) -> VirtualKey | None:
        """Return the request's key; its app takes the place of the one that the client names. Raises Rejection."""
        key = gate.identify(headers)
        if key is not None:
            recording.explicit = replace(recording.explicit or Explicit(), app=key.app)
        return key

    def _bill(self, key: VirtualKey | None, asked: Asked, path: str) -> Bill:
        if key is not None and is_restricted(key):
            check_request(key, asked)
        assert self._accounting is not None  # noqa: S101 - for the type checker: there is one where there is a gate
        operation = operation_of(asked.method, asked.raw_path)
        return self._accounting.bill(
            operation, model_asked(path, model_of(asked.body) if asked.body else None), asked.body
        )

    async def _answer(self, outgoing: Outgoing, asked: bytes, recording: Recording, relay: Relay, guard: Guard) -> None:
        """Answer from the cache or from the upstream."""
        key = self._cache_key(outgoing, asked, recording)
        if key is None or self._cache is None:
            await self._from_upstream(self.router.send(outgoing), recording, relay, guard)
        elif (cached := self._cache.lookup(key, time.monotonic())) is not None:
            recording.cached = True
            await relay.replay(cached, guard)
        else:
            tape = CacheRecorder(min(self._cache.max_bytes, self.limits.content_bytes))
            sending = self.router.send(outgoing)
            whole = await self._from_upstream(sending, recording, relay, guard, extra=[MISS], tape=tape)
            if whole and tape.whole:
                self._cache.store(key, recording.status, recording.response_headers, tape.chunks, time.monotonic())

    def _cache_key(self, outgoing: Outgoing, asked: bytes, recording: Recording) -> CacheKey | None:
        if self._cache is None or not isinstance(outgoing.body, bytes) or not self._cache.serves(recording.app):
            return None
        return cache_key(
            app=recording.app,
            key_id=recording.key_id,
            route=recording.route,
            method=outgoing.method,
            path=outgoing.raw_path,
            query=outgoing.query,
            headers=recording.request_headers,
            body=asked,
        )

    async def _from_upstream(
        self,
        sending: Awaitable[Routed],
        recording: Recording,
        relay: Relay,
        guard: Guard,
        *,
        extra: Headers | None = None,
        tape: CacheRecorder | None = None,
    ) -> bool:
        relay.asked = True
        try:
            response = await self._routed(sending, recording)
        except Rejection:
            relay.asked = recording.error_kind == "timeout"  # the others did not get the request, or gave it up
            raise
        try:
            return await relay.run(response, guard, extra=extra, tape=tape)
        finally:
            await response.aclose()

    async def _routed(self, sending: Awaitable[Routed], recording: Recording) -> UpstreamResponse:
        try:
            routed = await sending
        except RoutedError as error:
            recording.upstream = error.upstream
            recording.error_kind = error.kind
            self.router.failure_log.add(error.upstream, error)
            recording.ending = "timeout" if error.kind in ("timeout", "connect_timeout") else "upstream_error"
            raise unreachable(error) from error
        recording.upstream = routed.upstream
        recording.tags = routed.tags if routed.model is None else routed.tags | {"model_sent": routed.model}
        return routed.response


def _is_metered(bill: Bill) -> bool:
    return bill.operation.kind in ("metered", "free")


def _use_permit(permit: Permit, bill: Bill, recording: Recording) -> None:
    bill.permit = permit
    recording.key_id = permit.key_id
    recording.explicit = replace(recording.explicit or Explicit(), app=permit.app)
