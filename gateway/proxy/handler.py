"""The path of a request: read it, send it on, pass the response back as it comes, record what went by."""

from __future__ import annotations

import asyncio
import logging
import time
from asyncio import CancelledError
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from gateway.access.accounting import Accounting, Bill
from gateway.access.gate import Gate
from gateway.access.keys import VirtualKey, model_asked, without_credentials
from gateway.access.operations import operation_of
from gateway.access.restrictions import Asked, check_request, is_restricted
from gateway.contexts import explicit
from gateway.contexts.explicit import ExplicitError
from gateway.exchange import GENERATION_ROUTES, Explicit, Headers, Recording, Trace, route_of
from gateway.http import json_member as splice
from gateway.http.errors import Rejection, body_of, empty_body, too_large, unclear_request
from gateway.http.headers import RequestHead, inspect
from gateway.http.ids import exchange_id
from gateway.http.origins import OriginPolicy
from gateway.http.url import check_target
from gateway.proxy import loops
from gateway.proxy import stream_usage as usage
from gateway.proxy.cache import MISS, Cache, CacheKey, CacheRecorder, cache_key
from gateway.proxy.client import Client, ClientDisconnected, Guard, TookTooLong
from gateway.proxy.response import Relay
from gateway.upstreams import UpstreamResponse
from gateway.upstreams.policy import model_of
from gateway.upstreams.router import Outgoing, RoutedError, Router
from monitors.runtime.serving import STREAMED

if TYPE_CHECKING:
    from litestar.types import HTTPScope, Receive, Send


class Tracing(Protocol):
    """Decides which trace an exchange belongs to."""

    def begin(self, traceparent: bytes | None) -> tuple[Trace | None, bytes | None]:
        """Return the exchange's trace, and the traceparent to send upstream (None: the client's, untouched)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How large and how slow a request may be. Bytes and seconds; None for no limit.

    Bodies and responses that together exceed `content_bytes` pass, but are not kept for capture. `read_s` is the time
    for each wait for the upstream.
    """

    body_bytes: int
    upload_bytes: int
    content_bytes: int
    read_s: float = 600.0
    first_byte_s: float | None = None
    total_s: float | None = None


LARGE_BYTES = 256 * 1024
"""In a larger body our key is looked for in slices, between which other requests are served."""
MOST_SCANS = 4
"""Large bodies in which our key is looked for at the same time."""
_log = logging.getLogger("gaugeway")


class _Body(NamedTuple):
    """A request's body: as it is sent, its length if that changed, and as the client asked (b"" for a stream)."""

    sent: bytes | AsyncIterator[bytes]
    length: int | None
    asked: bytes


class Proxy:
    """An ASGI callable for `/v1/*` and `/openai/*`.

    `record` is called once for every request, when it is over, on the event loop: it must neither block nor raise.
    With `include_usage`, streams are asked for their usage, which is then kept from clients that did not ask. `gate`
    lets requests in, `accounting` charges them (there is one where there is a gate), `cache` answers them. `gateway_id`
    is what the upstream gets in `gaugeway-via`. `origins` says which web pages may ask; None for all.
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
        self._router = router
        self.record = record
        self._tracing = tracing
        self.limits = limits
        self._include_usage = include_usage
        self._gate = gate
        self._accounting = accounting
        self._cache = cache
        self._scans = asyncio.Semaphore(MOST_SCANS)
        self._id = gateway_id
        self.origins = origins
        self.direct = None if include_usage or gate is not None or cache is not None else router.only
        """The upstream, when a request goes to it as it is and its response comes back as it is."""

    async def __call__(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        start = time.perf_counter()
        recording = begin(scope["method"], scope["path"], list(scope["headers"]))
        try:
            await self._exchange(scope, receive, send, recording, start)
        except ClientDisconnected:
            recording.ending = "client_cancelled"
        except Rejection as rejection:
            recording.status = rejection.status
            if recording.ending == "complete":
                recording.ending = "rejected"
            await _refuse(send, rejection, recording.id)
        except TookTooLong as slow:
            recording.ending = "timeout"
            recording.error_kind = "timeout"
            # Once the response has begun there is nothing to say: the server closes the connection on return.
            if not recording.status:
                recording.status = 504
                await _refuse(send, _late(slow), recording.id)
        except CancelledError:
            recording.ending = "client_cancelled"
            raise
        except Exception as error:  # noqa: BLE001 - a mistake of ours must neither look like an answer nor go uncounted
            _log.exception("request %s failed in the gateway", recording.id)
            recording.error_kind = "internal"
            recording.ending = "upstream_truncated" if recording.status else "upstream_error"
            if not recording.status:
                recording.status = 500
                await _refuse(send, _internal(error), recording.id)
        finally:
            recording.duration_s = time.perf_counter() - start
            self.record(recording)

    async def _exchange(
        self, scope: HTTPScope, receive: Receive, send: Send, recording: Recording, start: float
    ) -> None:
        raw_path = scope.get("raw_path") or recording.path.encode()
        check_target(recording.method, raw_path)
        seen = inspect(recording.request_headers)
        # A body behind an upgrade does not arrive: the server takes it for the new protocol's.
        if seen.ambiguous or (seen.upgrade and (seen.content_length or seen.chunked)):
            raise unclear_request()
        if self.origins is not None and not self.origins.is_plain(seen):
            self.origins.check(recording.request_headers)
        if seen.via is not None:
            loops.chain(seen.via, self._id)  # a loop ends before its body is read
        buffered = recording.route in GENERATION_ROUTES or seen.json
        limit = self.limits.body_bytes if buffered else self.limits.upload_bytes
        if seen.content_length is not None and seen.content_length > limit:
            raise too_large(limit)
        headers = recording.request_headers
        if self._gate is not None and self._gate.needs_key:
            # From here on the key is in nobody's hands but the gate's; strangers are refused before their body is read.
            recording.request_headers = without_credentials(headers)
            if (key := self._gate.identify(headers)) is not None:
                recording.explicit = Explicit(app=key.app)  # what is refused from here on counts for the key's app
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
        async with Guard(client, first_byte_s=self.limits.first_byte_s, total_s=self.limits.total_s) as guard:
            bill = None
            if self._gate is not None:
                asked = Asked(recording.method, raw_path, scope["query_string"], headers, ready.asked)
                bill = await self._admit(self._gate, asked, recording)
                relay.meter = bill.meter
            try:
                outgoing = self._outgoing(raw_path, scope["query_string"], seen, ready, recording)
                recording.request_overhead_s = time.perf_counter() - client.body_complete_at(start)
                await self._answer(outgoing, ready.asked, recording, relay, guard)
            finally:
                if bill is not None:
                    self._settle(bill, client, relay, recording)

    async def _cut(self, body: bytes) -> tuple[bytes, bytes | None]:
        """Cut our key out of a large body as `splice.cut_key` does. Raises Rejection."""
        async with self._scans:
            steps = splice.cutting_key(body)
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
    ) -> _Body:
        """Read what is said out of band, and make the body what the upstream gets. Raises Rejection.

        `cut` is the body without our key, and the key's value, if that was done before.
        """
        if not isinstance(body, bytes):
            if seen.ours:
                _read_explicit(b"", seen, recording)
            return _Body(body, None, b"")
        if not body and recording.route in GENERATION_ROUTES:
            raise empty_body()
        asked, length = _read_explicit(body, seen, recording, cut)
        if recording.route in GENERATION_ROUTES:  # not before: a request we refuse leaves nothing behind
            self._keep_request(body, recording)
        sent = asked
        if self._include_usage and recording.route in usage.ROUTES and (more := usage.ask_for_usage(asked)):
            sent, length, recording.asked_for_usage = more, len(more), True
        if length is None and seen.content_length is None and (sent or seen.chunked):
            length = len(sent)
        return _Body(sent, length, asked)

    def ready(self, body: bytes, seen: RequestHead, recording: Recording, raw_path: bytes, query: bytes) -> Outgoing:
        """Read a request whose body is whole, and make it ready to go out. Raises Rejection."""
        return self._outgoing(raw_path, query, seen, self._read(body, seen, recording), recording)

    def _outgoing(
        self, raw_path: bytes, query: bytes, seen: RequestHead, body: _Body, recording: Recording
    ) -> Outgoing:
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
            model=model_of(body.asked) if self._router.reads_model and body.asked else None,
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

    async def _admit(self, gate: Gate, asked: Asked, recording: Recording) -> Bill:
        """Ask the gate; a key's app takes the place of the one the client names. Raises Rejection."""
        said = recording.explicit or Explicit()
        key = gate.identify(asked.headers)
        if key is not None:
            recording.explicit = replace(said, app=key.app)
        if len(asked.body) > LARGE_BYTES:
            bill = await asyncio.to_thread(self._bill, key, asked, recording.path)
        else:
            bill = self._bill(key, asked, recording.path)
        bill.permit = permit = await gate.admit(
            asked.headers,
            bill.model,
            said.app,
            reading=recording.method in ("GET", "HEAD"),
            quote=bill.quote,
            metered=bill.operation.kind in ("metered", "free"),
        )
        recording.key_id = permit.key_id
        recording.explicit = replace(said, app=permit.app)
        return bill

    def _bill(self, key: VirtualKey | None, asked: Asked, path: str) -> Bill:
        if key is not None and is_restricted(key):
            check_request(key, asked)
        assert self._accounting is not None  # noqa: S101 - for the type checker: there is one where there is a gate
        operation = operation_of(asked.method, asked.raw_path)
        return self._accounting.bill(
            operation, model_asked(path, model_of(asked.body) if asked.body else None), asked.body
        )

    def _settle(self, bill: Bill, client: Client, relay: Relay, recording: Recording) -> None:
        """Make room for the next request, and charge this one."""
        bill.received, bill.sent, bill.cut = client.received, relay.asked, not relay.whole
        if bill.permit is not None:
            bill.permit.leave()
        if self._accounting is not None:
            self._accounting.settle(bill, recording)

    async def _answer(self, outgoing: Outgoing, asked: bytes, recording: Recording, relay: Relay, guard: Guard) -> None:
        """Answer from the cache or from the upstream."""
        key = self._cache_key(outgoing, asked, recording)
        if key is None or self._cache is None:
            await self._from_upstream(outgoing, recording, relay, guard)
        elif (cached := self._cache.lookup(key, time.monotonic())) is not None:
            recording.cached = True
            await relay.replay(cached, guard)
        else:
            tape = CacheRecorder(min(self._cache.max_bytes, self.limits.content_bytes))
            whole = await self._from_upstream(outgoing, recording, relay, guard, extra=[MISS], tape=tape)
            if whole and tape.whole:
                self._cache.store(key, recording.status, recording.response_headers, tape.chunks, time.monotonic())

    def _cache_key(self, outgoing: Outgoing, asked: bytes, recording: Recording) -> CacheKey | None:
        app = (recording.explicit.app if recording.explicit else None) or "default"
        if self._cache is None or not isinstance(outgoing.body, bytes) or not self._cache.serves(app):
            return None
        return cache_key(
            app=app,
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
        outgoing: Outgoing,
        recording: Recording,
        relay: Relay,
        guard: Guard,
        *,
        extra: Headers | None = None,
        tape: CacheRecorder | None = None,
    ) -> bool:
        guard.upstream_asked()
        relay.asked = True
        try:
            response = await self._send(outgoing, recording)
        except Rejection:
            relay.asked = recording.error_kind == "timeout"  # the others did not get the request, or gave it up
            raise
        guard.head_arrived()
        try:
            return await relay.run(response, guard, extra=extra, tape=tape)
        finally:
            await response.aclose()

    async def _send(self, outgoing: Outgoing, recording: Recording) -> UpstreamResponse:
        try:
            routed = await self._router.send(outgoing)
        except RoutedError as error:
            recording.upstream = error.upstream
            recording.error_kind = error.kind
            if error.kind in ("timeout", "connect_timeout"):
                recording.ending = "timeout"
                raise Rejection(504, "upstream_timeout", f"Gaugeway: {error.detail}.") from error
            recording.ending = "upstream_error"
            raise Rejection(502, "upstream_unreachable", f"Gaugeway: {error.detail}.") from error
        recording.upstream = routed.upstream
        recording.tags = routed.tags if routed.model is None else routed.tags | {"model_sent": routed.model}
        return routed.response


def begin(method: str, path: str, headers: Headers, route: str | None = None) -> Recording:
    """Start the record of a request that arrives now. The headers are kept, not copied."""
    now = time.time()
    return Recording(
        id=exchange_id(now),
        started_at=now,
        method=method,
        path=path,
        route=route or route_of(method, path),
        request_headers=headers,
    )


def _read_explicit(
    body: bytes, seen: RequestHead, recording: Recording, cut: tuple[bytes, bytes | None] | None = None
) -> tuple[bytes, int | None]:
    """Read what the client said out of band; return the body without our key and its new length, if it changed."""
    new_length = None
    in_body = None
    try:
        in_headers = explicit.from_headers(seen.ours) if seen.ours else None
        if cut is not None or splice.mentions_key(body):
            body, value = cut or splice.cut_key(body)
            if value is not None:
                in_body = explicit.from_body_key(value)
                new_length = len(body)
        recording.explicit = explicit.merge(in_body, in_headers)
    except ExplicitError as error:
        raise Rejection(400, "invalid_value", f"Invalid '{error.field}': {error}.", error.field) from error
    return body, new_length


def _late(slow: TookTooLong) -> Rejection:
    what = "did not begin to answer" if slow.limit == "first_byte" else "did not finish"
    return Rejection(
        504, "upstream_timeout", f"Gaugeway: the upstream {what} in time (gateway.{slow.limit}_timeout_s)."
    )


def _internal(error: Exception) -> Rejection:
    return Rejection(500, "internal_error", f"Gaugeway: the request could not be passed on ({type(error).__name__}).")


def refusal(rejection: Rejection, exchange_id: str) -> tuple[Headers, bytes]:
    """Return the headers and the body of an answer of our own."""
    body = body_of(rejection)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"x-gaugeway-exchange-id", exchange_id.encode()),
        *rejection.headers,
    ]
    return headers, body


async def _refuse(send: Send, rejection: Rejection, exchange_id: str) -> None:
    headers, body = refusal(rejection, exchange_id)
    await send({"type": "http.response.start", "status": rejection.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
