"""The path of a request: read it, send it on, pass the response back as it comes, record what went by."""

from __future__ import annotations

import os
import time
from asyncio import CancelledError, Event, Task, current_task
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from gateway import splice
from gateway.contexts import explicit
from gateway.contexts.explicit import ExplicitError
from gateway.errors import Rejection, body_of
from gateway.exchange import GENERATION_ROUTES, Recording, Trace, route_of
from gateway.headers import OURS, for_client, for_upstream
from gateway.target import Target
from gateway.upstream import Upstream, UpstreamError, UpstreamRequest, UpstreamResponse
from monitors.tasks import spawn

if TYPE_CHECKING:
    from litestar.types import HTTPScope, Receive, Send

_CANCEL = "the client hung up"


class Tracing(Protocol):
    """Decides which trace an exchange belongs to."""

    def begin(self, traceparent: bytes | None) -> tuple[Trace | None, bytes | None]:
        """Return the exchange's trace, and the traceparent to send upstream (None: the client's, untouched)."""


class ClientDisconnected(Exception):
    """The client hung up."""


class Proxy:
    """An ASGI callable for `/v1/*` and `/openai/*`.

    `record` is called once for every request, when it is over, on the event loop: it must neither block nor raise.
    Bodies and responses larger than `max_content_bytes` pass, but are not kept for capture.
    """

    def __init__(
        self,
        *,
        upstream: Upstream,
        target: Target,
        record: Callable[[Recording], None],
        tracing: Tracing,
        max_body_bytes: int,
        max_content_bytes: int,
    ) -> None:
        self._upstream = upstream
        self._target = target
        self._record = record
        self._tracing = tracing
        self._max_body_bytes = max_body_bytes
        self._max_content_bytes = max_content_bytes

    async def __call__(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        start = time.perf_counter()
        recording = _begin(scope)
        client = _Client(receive, self._max_body_bytes)
        try:
            await self._exchange(scope, client, send, recording, start)
        except ClientDisconnected:
            recording.ending = "client_cancelled"
        except Rejection as rejection:
            recording.status = rejection.status
            if recording.ending == "complete":
                recording.ending = "rejected"
            await _answer(send, rejection, recording.id)
        except CancelledError:
            recording.ending = "client_cancelled"
            raise
        finally:
            recording.duration_s = time.perf_counter() - start
            self._record(recording)

    async def _exchange(
        self, scope: HTTPScope, client: _Client, send: Send, recording: Recording, start: float
    ) -> None:
        request = await self._request(scope, client, recording)
        async with _CancelledByHangUp(client) as hang_up:
            recording.request_overhead_s = time.perf_counter() - client.body_complete_at(start)
            response = await self._send(request, recording)
            try:
                await self._relay(response, send, recording, start, hang_up)
            finally:
                await response.aclose()

    async def _request(self, scope: HTTPScope, client: _Client, recording: Recording) -> UpstreamRequest:
        """Read the request and make it ready to go out. Raises Rejection and ClientDisconnected."""
        headers = recording.request_headers
        announced = _content_length(headers)
        if announced is not None and announced > self._max_body_bytes:
            raise _too_large(self._max_body_bytes)
        body: bytes | AsyncIterator[bytes] = client.chunks()
        new_length = None
        if recording.route in GENERATION_ROUTES or _is_json(headers):
            whole = await client.read()
            body, new_length = _read_explicit(whole, recording)
            if recording.route in GENERATION_ROUTES:
                self._keep_request(whole, recording)
        elif any(name.startswith(OURS) for name, _ in headers):
            _read_explicit(b"", recording)
        traceparent = next((value for name, value in headers if name == b"traceparent"), None)
        recording.trace, traceparent = self._tracing.begin(traceparent)
        outgoing = for_upstream(
            headers,
            host=self._target.host_header,
            content_length=new_length,
            authorization=self._target.authorization,
            traceparent=traceparent,
        )
        path = self._target.join(scope.get("raw_path") or recording.path.encode(), scope["query_string"])
        return UpstreamRequest(recording.method, self._target.origin, path, outgoing, body)

    def _keep_request(self, body: bytes, recording: Recording) -> None:
        if len(body) > self._max_content_bytes:
            recording.too_large = True
        else:
            recording.request_body = body
            recording.size = len(body)

    async def _send(self, request: UpstreamRequest, recording: Recording) -> UpstreamResponse:
        try:
            return await self._upstream.send(request)
        except UpstreamError as error:
            recording.error_kind = error.kind
            if error.kind in ("timeout", "connect_timeout"):
                recording.ending = "timeout"
                raise Rejection(504, "upstream_timeout", f"Gaugeway: {error.detail}.") from error
            recording.ending = "upstream_error"
            raise Rejection(502, "upstream_unreachable", f"Gaugeway: {error.detail}.") from error

    async def _relay(
        self, response: UpstreamResponse, send: Send, recording: Recording, start: float, hang_up: _CancelledByHangUp
    ) -> None:
        """Pass the response on chunk by chunk, keeping a copy of a generation's body."""
        recording.status = response.status
        recording.response_headers = response.headers
        headers = for_client(response.headers, recording.id.encode())
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        keep = recording.route in GENERATION_ROUTES and not recording.too_large
        more = True
        while more:
            try:
                chunk, more = await response.read()
            except UpstreamError as error:
                # Returning without the last body message makes the server close the connection: the client must not
                # take half a response for a whole one.
                recording.error_kind = error.kind
                recording.ending = "timeout" if error.kind == "timeout" else "upstream_truncated"
                return
            if chunk and recording.first_chunk_s is None:
                recording.first_chunk_s = time.perf_counter() - start
            if not more:
                hang_up.ignore()
            await send({"type": "http.response.body", "body": chunk, "more_body": more})
            if keep and chunk:
                keep = self._keep_chunk(chunk, recording)

    def _keep_chunk(self, chunk: bytes, recording: Recording) -> bool:
        recording.size += len(chunk)
        if recording.size > self._max_content_bytes:
            recording.too_large = True
            recording.chunks.clear()
            return False
        recording.chunks.append(chunk)
        return True


class _Client:
    """The client's side of a request: its body, and whether it is still there."""

    def __init__(self, receive: Receive, max_body_bytes: int) -> None:
        self._receive = receive
        self._max_body_bytes = max_body_bytes
        self._body_read = Event()
        self._read_at: float | None = None

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes. Raises Rejection when it is too large, ClientDisconnected when it breaks off."""
        size = 0
        more = True
        while more:
            message = await self._receive()
            if message["type"] != "http.request":
                raise ClientDisconnected
            more = message.get("more_body", False)
            if chunk := message.get("body", b""):
                size += len(chunk)
                if size > self._max_body_bytes:
                    raise _too_large(self._max_body_bytes)
                yield chunk
        self._read_at = time.perf_counter()
        self._body_read.set()

    async def read(self) -> bytes:
        """Return the whole body."""
        return b"".join([chunk async for chunk in self.chunks()])

    def body_complete_at(self, default: float) -> float:
        """When the body was complete (`perf_counter`), or `default` while it is still being read."""
        return self._read_at or default

    async def hang_up(self) -> None:
        """Return when the client has gone. Waits for the body first: only one may call `receive` at a time."""
        await self._body_read.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass


class _CancelledByHangUp:
    """Cancels the block it guards when the client hangs up, which then ends with ClientDisconnected."""

    def __init__(self, client: _Client) -> None:
        self._client = client
        self._guarded: Task[object] | None = None
        self._watcher: Task[None] | None = None
        self._ignored = False
        self._gone = False

    async def __aenter__(self) -> Self:
        self._guarded = current_task()
        self._watcher = spawn(self._watch(), name="hang-up watcher")
        return self

    def ignore(self) -> None:
        """From now on the response counts as delivered."""
        self._ignored = True

    async def _watch(self) -> None:
        await self._client.hang_up()
        if not self._ignored and self._guarded is not None:
            self._gone = True
            self._guarded.cancel(_CANCEL)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
        if self._gone and self._guarded is not None and self._guarded.uncancel() == 0 and kind is CancelledError:
            raise ClientDisconnected from error


def _begin(scope: HTTPScope) -> Recording:
    now = time.time()
    return Recording(
        # The id starts with the time (milliseconds) so that rows keyed by it are written in order.
        id=f"{int(now * 1000):012x}{os.urandom(10).hex()}",
        started_at=now,
        method=scope["method"],
        path=scope["path"],
        route=route_of(scope["path"]),
        request_headers=list(scope["headers"]),
    )


def _read_explicit(body: bytes, recording: Recording) -> tuple[bytes, int | None]:
    """Read what the client said out of band; return the body without our key and its new length, if it changed."""
    new_length = None
    in_body = None
    try:
        in_headers = explicit.from_headers(recording.request_headers)
        if splice.mentions_key(body):
            body, value = splice.cut_key(body)
            if value is not None:
                in_body = explicit.from_body_key(value)
                new_length = len(body)
        recording.explicit = explicit.merge(in_body, in_headers)
    except ExplicitError as error:
        raise Rejection(400, "invalid_value", f"Invalid '{error.field}': {error}.", error.field) from error
    return body, new_length


def _too_large(limit: int) -> Rejection:
    return Rejection(
        413, "request_too_large", f"The request body is larger than {limit} bytes (gateway.max_body_bytes)."
    )


def _content_length(headers: list[tuple[bytes, bytes]]) -> int | None:
    value = next((value for name, value in headers if name == b"content-length"), b"")
    return int(value) if value.isdigit() else None


def _is_json(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(name == b"content-type" and value.startswith(b"application/json") for name, value in headers)


async def _answer(send: Send, rejection: Rejection, exchange_id: str) -> None:
    body = body_of(rejection)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"x-gaugeway-exchange-id", exchange_id.encode()),
    ]
    await send({"type": "http.response.start", "status": rejection.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
