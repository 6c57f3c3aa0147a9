"""Realtime WebSockets, passed through message by message in both directions."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.http11 import Response

from gateway import loops
from gateway.contexts.explicit import from_headers
from gateway.errors import Rejection, body_of
from gateway.exchange import Explicit, Headers, Recording
from gateway.headers import OURS, connection_tokens, inspect, upstream_exchange_ids
from gateway.keys import model_asked, without_credentials
from gateway.limits import Gate
from gateway.origins import OriginPolicy
from gateway.proxy import begin
from gateway.target import Target, check_target
from monitors.tasks import spawn

if TYPE_CHECKING:
    from litestar.types import Receive, Send, WebSocketScope

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_HANDSHAKE = frozenset({b"host", b"connection", b"upgrade", b"content-length", b"transfer-encoding", loops.HEADER})
_NORMAL, _NO_STATUS, _ABNORMAL = 1000, 1005, 1006
_NOT_TO_BE_SENT = frozenset({_NO_STATUS, _ABNORMAL})


class Realtime:
    """An ASGI callable for WebSockets under `/v1/*` and `/openai/*`.

    The upstream is asked first: what it refuses, the client sees refused, with its status. Messages are counted as one
    request of route `realtime`; their content is not captured.
    """

    def __init__(
        self,
        *,
        target: Target,
        record: Callable[[Recording], None],
        connect_timeout_s: float,
        gate: Gate | None = None,
        baggage: bool = False,
        gateway_id: bytes = b"",
        origins: OriginPolicy | None = None,
    ) -> None:
        self._gate = gate
        self._id = gateway_id
        self._origins = origins
        self._dropped = _HANDSHAKE if baggage else _HANDSHAKE | {b"baggage"}
        self._target = target
        self._record = record
        self._connect_timeout_s = connect_timeout_s

    async def __call__(self, scope: WebSocketScope, receive: Receive, send: Send) -> None:
        """Serve one WebSocket from its handshake to its end."""
        start = time.perf_counter()
        recording = begin("GET", scope["path"], list(scope["headers"]), route="realtime")
        recording.upstream = self._target.name
        try:
            await receive()  # websocket.connect
            check_target("GET", _raw_path(scope))
            await self._admitted(scope, receive, send, recording)
        except Rejection as rejection:
            recording.status, recording.ending = rejection.status, "rejected"
            headers = [(b"content-type", b"application/json"), *rejection.headers]
            await _refuse(scope, send, rejection.status, headers, body_of(rejection))
        finally:
            recording.duration_s = time.perf_counter() - start
            self._record(recording)

    async def _admitted(self, scope: WebSocketScope, receive: Receive, send: Send, recording: Recording) -> None:
        """Ask the gate first, if there is one; a WebSocket counts as one request at once for as long as it lasts."""
        if self._origins is not None:
            self._origins.check(recording.request_headers)
        if self._gate is None:
            await self._pass(scope, recording.request_headers, receive, send, recording)
            return
        said = from_headers([header for header in recording.request_headers if header[0].startswith(OURS)])
        models = set(parse_qs(scope["query_string"].decode("latin-1")).get("model", []))
        # Of several models, which one counts is up to the upstream: none of them may open the door to another.
        model = model_asked(recording.path, models.pop() if len(models) == 1 else None)
        headers = recording.request_headers
        if self._gate.needs_key:
            recording.request_headers = without_credentials(headers)
        permit = await self._gate.admit(headers, model, said.app if said else None)
        try:
            recording.explicit = Explicit(app=permit.app)
            await self._pass(scope, permit.headers, receive, send, recording)
        finally:
            permit.release()

    async def _pass(
        self, scope: WebSocketScope, headers: Headers, receive: Receive, send: Send, recording: Recording
    ) -> None:
        try:
            upstream = await self._open(scope, headers)
        except InvalidStatus as refusal:
            recording.status, recording.ending = refusal.response.status_code, "upstream_error"
            kind = refusal.response.headers.get("content-type", "text/plain").encode()
            await _refuse(scope, send, recording.status, [(b"content-type", kind)], bytes(refusal.response.body or b""))
            return
        except (OSError, TimeoutError, InvalidHandshake, ValueError):
            recording.status, recording.ending, recording.error_kind = 502, "upstream_error", "connect"
            await _refuse(scope, send, 502, [], b"")
            return
        recording.status = 101
        async with upstream:
            ours = [(b"x-gaugeway-exchange-id", recording.id.encode())]
            if upstream.response is not None and (ids := upstream_exchange_ids(_raw(upstream.response))):
                ours.append((b"x-gaugeway-upstream-exchange-id", ids))
            await send({"type": "websocket.accept", "subprotocol": upstream.subprotocol, "headers": ours})
            downward = spawn(_downward(upstream, send), name="realtime, to the client")
            upward = spawn(_upward(receive, upstream), name="realtime, to the upstream")
            await asyncio.wait({downward, upward}, return_when=asyncio.FIRST_COMPLETED)
            if not upward.done():
                await _close(upstream, send)
            for task in (downward, upward):
                task.cancel()
            await asyncio.wait({downward, upward})

    async def _open(self, scope: WebSocketScope, client_headers: Headers) -> ClientConnection:
        """Connect to the upstream. Raises what the library raises, and Rejection in a loop of gateways."""
        target = self._target
        via = loops.chain(inspect(client_headers).via, self._id)
        path = target.join(_raw_path(scope), scope["query_string"]).decode("latin-1")
        scheme = "wss" if target.scheme == "https" else "ws"
        dropped = self._dropped | connection_tokens(client_headers)
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in client_headers
            if name not in dropped and not name.startswith((OURS, b"sec-websocket-"))
        ]
        headers.append((loops.HEADER.decode(), via.decode()))
        if target.authorization is not None:
            headers = [(name, value) for name, value in headers if name != "authorization"]
            headers.append(("authorization", target.authorization.decode()))
        subprotocols: Any = scope["subprotocols"] or None
        return await _Straight(
            f"{scheme}://{target.host_header.decode()}{path}",
            additional_headers=headers,
            subprotocols=subprotocols,
            user_agent_header=None,
            open_timeout=self._connect_timeout_s,
            ping_interval=None,
            max_size=MAX_MESSAGE_BYTES,
            proxy=None,
        )


def _raw(response: Response) -> Headers:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers.raw_items()]


class _Straight(connect):
    """Connects to that address or to none: the library would follow an upstream's redirect to any host."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


def _raw_path(scope: WebSocketScope) -> bytes:
    """Return the path as the client wrote it."""
    return scope.get("raw_path") or scope["path"].encode()


async def _downward(upstream: ClientConnection, send: Send) -> None:
    """Pass the upstream's messages on until either side has gone."""
    with contextlib.suppress(ConnectionClosed, OSError):
        async for message in upstream:
            passed: Any = {"type": "websocket.send", "text" if isinstance(message, str) else "bytes": message}
            await send(passed)


async def _upward(receive: Receive, upstream: ClientConnection) -> None:
    """Pass the client's messages on until it leaves."""
    while True:
        message: Any = await receive()
        if message["type"] == "websocket.disconnect":
            code = int(message.get("code") or _NO_STATUS)
            await upstream.close(code if code not in _NOT_TO_BE_SENT else _NORMAL, message.get("reason") or "")
            return
        content = message.get("text")
        with contextlib.suppress(ConnectionClosed):
            await upstream.send(content if content is not None else message["bytes"])


async def _close(upstream: ClientConnection, send: Send) -> None:
    """Tell the client how the upstream left."""
    code = upstream.close_code or _NO_STATUS
    message: Any = {
        "type": "websocket.close",
        "code": code if code not in _NOT_TO_BE_SENT else _NORMAL,
        "reason": upstream.close_reason or "",
    }
    with contextlib.suppress(OSError):
        await send(message)


async def _refuse(
    scope: WebSocketScope, send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    """Answer the handshake with a status, where the server can; otherwise it is closed before it was accepted."""
    if "websocket.http.response" in (scope.get("extensions") or {}):
        start: Any = {"type": "websocket.http.response.start", "status": status, "headers": headers}
        end: Any = {"type": "websocket.http.response.body", "body": body, "more_body": False}
        await send(start)
        await send(end)
    else:
        await send({"type": "websocket.close", "code": 1011, "reason": ""})
