"""The proxy for Realtime WebSockets: relays messages in both directions."""

from __future__ import annotations

import asyncio
import contextlib
import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import parse_qs

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.http11 import Response

from gateway.access.accounting import Accounting
from gateway.access.gate import Gate, Permit
from gateway.access.keys import model_asked, without_credentials
from gateway.access.metering import ConversationMeter
from gateway.access.operations import METERED, UNKNOWN, is_realtime
from gateway.access.restrictions import check_handshake, check_message, is_restricted
from gateway.http.errors import Rejection, body_of
from gateway.http.headers import OURS, connection_tokens, inspect, upstream_exchange_ids
from gateway.http.origins import OriginPolicy
from gateway.http.url import Target, check_target
from gateway.proxy import loops
from gateway.proxy.request import begin, explicit_headers
from gaugeway.exchange import Explicit, Headers, Recording
from gaugeway.runtime.http_protocol import SOCKET
from gaugeway.runtime.tasks import happens_within, spawn
from gaugeway.storage.keys import VirtualKey

if TYPE_CHECKING:
    from litestar.types import Receive, Send, WebSocketScope

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
MAX_REASON_BYTES = 123
"""As RFC 6455 has it."""
CLOSE_S = 5.0
READ_AHEAD_BYTES = 1024 * 1024
"""Of a client's messages that the upstream has not taken; one more message of any size may exceed it."""
_LOOK_S = 1.0
"""Between two looks at whether a client has left whose messages are not read."""
_HAS_LEFT = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)
"""Without POLLRDHUP (not Linux) only a reset is seen; the write timeout ends the rest."""
_HANDSHAKE = frozenset({b"host", b"connection", b"upgrade", b"content-length", b"transfer-encoding", loops.HEADER})
_NORMAL, _NO_STATUS, _ABNORMAL, _POLICY, _INTERNAL_ERROR = 1000, 1005, 1006, 1008, 1011
_NOT_TO_BE_SENT = frozenset({_NO_STATUS, _ABNORMAL})


class Times(NamedTuple):
    """Seconds: to connect to the upstream, for either side to take a message, between checks of the key and budget."""

    connect_s: float
    write_s: float = 60.0
    recheck_s: float = 3.0


@dataclass(eq=False, kw_only=True)
class Realtime:
    """The ASGI app for WebSockets under `/v1/*` and `/openai/*`.

    The upstream is connected first: if it refuses the handshake, the client gets its status. A connection counts as one
    request of route `realtime`; the content of messages is not captured. It is closed with 1008 when its key or budget
    has ended, and aborted when the client or the upstream does not take a message in time. Its place of
    `max_concurrency` is free as soon as the client has left.
    """

    target: Target
    record: Callable[[Recording], None]
    times: Times
    gate: Gate | None = None
    accounting: Accounting | None = None
    baggage: bool = False
    on_stall: Callable[[], None] = lambda: None
    gateway_id: bytes = b""
    origins: OriginPolicy | None = None

    def __post_init__(self) -> None:
        self._dropped = _HANDSHAKE if self.baggage else _HANDSHAKE | {b"baggage"}

    async def __call__(self, scope: WebSocketScope, receive: Receive, send: Send) -> None:
        """Serve one WebSocket from its handshake to its end."""
        start = time.perf_counter()
        recording = begin("GET", scope["path"], list(scope["headers"]), route="realtime")
        recording.upstream = self.target.name
        try:
            await receive()  # websocket.connect
            check_target("GET", _raw_path(scope))
            loops.chain(inspect(recording.request_headers).via, self.gateway_id)  # before it is charged
            await self._admitted(scope, receive, send, recording)
        except Rejection as rejection:
            recording.status, recording.ending = rejection.status, "rejected"
            if self.gate is not None and (app := self.gate.owner(list(scope["headers"]))) is not None:
                recording.explicit = Explicit(app=app)
            headers = [(b"content-type", b"application/json"), *rejection.headers]
            await _refuse(scope, send, rejection.status, headers, body_of(rejection))
        finally:
            recording.duration_s = time.perf_counter() - start
            self.record(recording)

    async def _admitted(self, scope: WebSocketScope, receive: Receive, send: Send, recording: Recording) -> None:
        """Admit the connection, if there is a gate: it takes one place of `max_concurrency` for as long as it lasts."""
        if self.origins is not None:
            self.origins.check(recording.request_headers)
        gate, accounting = self.gate, self.accounting
        said = explicit_headers([header for header in recording.request_headers if header[0].startswith(OURS)])
        if gate is None or accounting is None:
            await self._pass(scope, recording.request_headers, receive, send, recording)
            return
        headers, raw_path = recording.request_headers, _raw_path(scope)
        if gate.needs_key:
            recording.request_headers = without_credentials(headers)
        if (key := gate.identify(headers)) is not None:
            recording.explicit = Explicit(app=key.app)
        if restricted := is_restricted(key):
            assert key is not None  # noqa: S101 - for the type checker
            check_handshake(key, raw_path, scope["query_string"], headers)
        # Of several models, which one counts is up to the upstream: none of them may open the door to another.
        models = set(parse_qs(scope["query_string"].decode("latin-1")).get("model", []))
        model = model_asked(recording.path, models.pop() if len(models) == 1 else None)
        known = is_realtime(raw_path)
        bill = accounting.bill(METERED if known else UNKNOWN, model, b"")
        permit = await gate.admit(headers, model, said.app if said else None, quote=bill.quote, metered=known)
        session = SessionBill(gate, accounting, permit, model, key if restricted else None)
        if not known:
            accounting.charge_unmetered(permit, "realtime")
        try:
            recording.key_id, recording.explicit = permit.key_id, Explicit(app=permit.app)
            await self._pass(scope, permit.headers, receive, send, recording, session=session)
        finally:
            session.close()
            permit.release()

    async def _pass(
        self,
        scope: WebSocketScope,
        headers: Headers,
        receive: Receive,
        send: Send,
        recording: Recording,
        *,
        session: SessionBill | None = None,
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
        try:
            ours = [(b"x-gaugeway-exchange-id", recording.id.encode())]
            if upstream.response is not None and (ids := upstream_exchange_ids(_raw(upstream.response))):
                ours.append((b"x-gaugeway-upstream-exchange-id", ids))
            await send({"type": "websocket.accept", "subprotocol": upstream.subprotocol, "headers": ours})
            await self._converse(upstream, _ClientMessages(receive, scope.get(SOCKET)), send, session)
        except Rejection as rejection:
            recording.ending = "rejected"
            await self._close(send, _POLICY, rejection.message)
        except _StalledError as stalled:
            upstream.transport.abort()
            if stalled.side == "client":
                recording.ending = "client_cancelled"
                self.on_stall()
            else:
                recording.ending, recording.error_kind = "timeout", "timeout"
                await self._close(send, _INTERNAL_ERROR, "The upstream does not read.")
        finally:
            await _hang_up(upstream)

    async def _converse(
        self, upstream: ClientConnection, messages: _ClientMessages, send: Send, session: SessionBill | None
    ) -> None:
        """Relay messages until either side has gone. Raises Rejection, and _StalledError.

        What a client sent before it left is delivered if the upstream takes it within CLOSE_S.
        """
        reading = spawn(messages.read_ahead(), name="realtime, from the client")
        downward = spawn(self._downward(upstream, send, session), name="realtime, to the client")
        upward = spawn(_upward(messages, upstream, session, self.times.write_s), name="realtime, to the upstream")
        tasks: set[asyncio.Task[Exception | None]] = {downward, upward}
        if session is not None:
            tasks.add(spawn(session.watch(self.times.recheck_s), name="realtime, key and budget"))
        try:
            done, _ = await asyncio.wait({*tasks, reading}, return_when=asyncio.FIRST_COMPLETED)
            if reading in done:
                if session is not None:
                    session.leave()
                done, _ = await asyncio.wait(tasks, timeout=CLOSE_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*tasks, reading):
                task.cancel()
        await asyncio.wait({*tasks, reading})
        if messages.have_ended:
            return
        for task in done:
            if (ended_by := task.result()) is not None:
                raise ended_by
        if upward not in done:
            await self._close(send, upstream.close_code or _NO_STATUS, upstream.close_reason or "")

    async def _downward(self, upstream: ClientConnection, send: Send, session: SessionBill | None) -> Exception | None:
        """Relay the upstream's messages until either side has gone; return _StalledError if the client stalled."""
        with contextlib.suppress(ConnectionClosed, OSError):
            async for message in upstream:
                if session is not None:
                    session.down(message)
                passed: Any = {"type": "websocket.send", "text" if isinstance(message, str) else "bytes": message}
                try:
                    async with asyncio.timeout(self.times.write_s):
                        await send(passed)
                except TimeoutError:
                    return _StalledError("client")
        return None

    async def _close(self, send: Send, code: int, reason: str) -> None:
        """Close the client's connection with a code and a reason."""
        message: Any = {
            "type": "websocket.close",
            "code": code if code not in _NOT_TO_BE_SENT else _NORMAL,
            "reason": reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore"),
        }
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await send(message)

    async def _open(self, scope: WebSocketScope, client_headers: Headers) -> ClientConnection:
        """Connect to the upstream. Raises the library's exceptions, and Rejection in a loop of gateways."""
        target = self.target
        via = loops.chain(inspect(client_headers).via, self.gateway_id)
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
        return await _ConnectWithoutRedirects(
            f"{scheme}://{target.host_header.decode()}{path}",
            additional_headers=headers,
            subprotocols=subprotocols,
            user_agent_header=None,
            open_timeout=self.times.connect_s,
            ping_interval=None,
            close_timeout=CLOSE_S,
            max_size=MAX_MESSAGE_BYTES,
            proxy=None,
        )


def _raw(response: Response) -> Headers:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers.raw_items()]


class _ConnectWithoutRedirects(connect):
    """Connects to the given address only: the library would follow an upstream's redirect to any host."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class _StalledError(Exception):
    """The client or the upstream does not read."""

    def __init__(self, side: Literal["client", "upstream"]) -> None:
        super().__init__()
        self.side = side


class _ClientMessages:
    """A client's messages, read ahead: its leaving must be noticed while the upstream does not take them.

    `socket` is the client's, if it is known: it shows that a client has left whose messages are not read any more.
    """

    def __init__(self, receive: Receive, socket: Any) -> None:
        self._receive = receive
        self._socket = socket
        self._messages: asyncio.Queue[Any] = asyncio.Queue()
        self._size = 0
        self._taken = asyncio.Event()
        self.have_ended = False

    async def read_ahead(self) -> None:
        """Read until the client has left."""
        while not self.have_ended:
            message: Any = {"type": "websocket.disconnect"} if await self._wait_for_room() else await self._receive()
            self.have_ended = message["type"] == "websocket.disconnect"
            self._size += _size(message)
            self._messages.put_nowait(message)

    async def next(self) -> Any:
        """Return the next message."""
        message = await self._messages.get()
        self._size -= _size(message)
        self._taken.set()
        return message

    async def _wait_for_room(self) -> bool:
        """Wait until enough was taken; return True if the client leaves before."""
        while self._size >= READ_AHEAD_BYTES:
            self._taken.clear()
            if not await happens_within(self._taken, _LOOK_S) and self._has_left():
                return True
        return False

    def _has_left(self) -> bool:
        if self._socket is None:
            return False
        poll = select.poll()
        poll.register(self._socket.fileno(), _HAS_LEFT)
        return bool(poll.poll(0))


def _size(message: Any) -> int:
    return len(message.get("text") or message.get("bytes") or "")


class SessionBill:
    """Meters and charges one connection, and checks its messages. `key` is set if it is for certain models only."""

    def __init__(
        self, gate: Gate, accounting: Accounting, permit: Permit, model: str | None, key: VirtualKey | None
    ) -> None:
        self._gate = gate
        self._accounting = accounting
        self._permit = permit
        self._model = model
        self._key = key
        self._meter = ConversationMeter()

    def up(self, message: str | bytes) -> None:
        """Check and meter a message of the client. Raises Rejection."""
        if self._key is not None:
            check_message(self._key, message)
        self._meter.up(message)

    def down(self, message: str | bytes) -> None:
        """Meter a message of the upstream, and charge the usage that it reports."""
        if (usage := self._meter.down(message)) is not None:
            self._accounting.charge_usage(self._permit, self._model, usage, "realtime", visible=self._meter.size)

    def leave(self) -> None:
        """Free the place of `max_concurrency`: the client has left."""
        self._permit.leave()

    async def watch(self, every_s: float) -> Exception | None:
        """Return a Rejection as soon as the key or the budget has ended."""
        while True:
            await happens_within(self._gate.keys_changed, every_s)
            try:
                self._gate.recheck(self._permit)
            except Rejection as rejection:
                return rejection

    def close(self) -> None:
        """Charge an estimate of what was answered without a usage report."""
        if (usage := self._meter.rest()) is not None:
            self._accounting.charge_estimate(self._permit, self._model, usage, "realtime")


def _raw_path(scope: WebSocketScope) -> bytes:
    return scope.get("raw_path") or scope["path"].encode()


async def _upward(
    messages: _ClientMessages, upstream: ClientConnection, session: SessionBill | None, write_s: float
) -> Exception | None:
    """Relay the client's messages until it leaves.

    Returns a Rejection for one that its key does not allow, and _StalledError if the upstream takes one too late.
    """
    while True:
        message = await messages.next()
        if message["type"] == "websocket.disconnect":
            code = int(message.get("code") or _NO_STATUS)
            await _hang_up(upstream, code if code not in _NOT_TO_BE_SENT else _NORMAL, message.get("reason") or "")
            return None
        content = message.get("text")
        content = content if content is not None else message["bytes"]
        try:
            if session is not None:
                session.up(content)
        except Rejection as rejection:
            return rejection
        try:
            async with asyncio.timeout(write_s):
                await upstream.send(content)
        except TimeoutError:
            return _StalledError("upstream")
        except ConnectionClosed:
            continue  # reading its messages ends the connection


async def _hang_up(upstream: ClientConnection, code: int = _NORMAL, reason: str = "") -> None:
    """Close the upstream's connection; abort it if it does not take part, as the library waits for it without end."""
    try:
        async with asyncio.timeout(CLOSE_S):
            await upstream.close(code, reason)
    except TimeoutError:
        upstream.transport.abort()


async def _refuse(
    scope: WebSocketScope, send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    """Answer the handshake with a status, where the server supports that; else close it before it is accepted."""
    if "websocket.http.response" in (scope.get("extensions") or {}):
        start: Any = {"type": "websocket.http.response.start", "status": status, "headers": headers}
        end: Any = {"type": "websocket.http.response.body", "body": body, "more_body": False}
        await send(start)
        await send(end)
    else:
        await send({"type": "websocket.close", "code": 1011, "reason": ""})
