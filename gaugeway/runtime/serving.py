"""Runs ASGI apps: several listeners in one process, with one graceful shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import heapq
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gaugeway.runtime import system
from gaugeway.runtime.logs import configure_logs
from gaugeway.settings.endpoints import BIND_EVERY_S, BIND_WAIT_S, cannot_listen

_log = logging.getLogger("gaugeway")
KEEP_ALIVE_S = 120
BACKLOG = 2048
"""How long an address may still be taken: by gateways whose supervisor was killed, until they notice."""
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
MAX_HEAD_BYTES = 512 * 1024
"""Of a request line with its headers: room for contexts in a header. Neither parser nor server have a limit."""
HEAD_S = 20.0
"""How long a request's head may take, and a new connection to begin one."""
BODY_S, BODY_RATE = 60.0, 1000.0
"""How far a request's body may fall behind this rate (bytes/s), in seconds. What came faster before earns nothing."""
BODY_TOTAL_S = 1200.0
"""How long a body that is held in memory may take in all."""
MAX_PENDING_BYTES = 1024 * 1024 * 1024
"""Of bodies that are still arriving and are held in memory, in all connections of a process."""
STREAMED = "gaugeway.streamed"
"""Set in the ASGI scope by an app that passes a body on as it comes, so that it counts as not held in memory."""
SOCKET = "gaugeway.socket"
"""The client's socket, in the ASGI scope of a WebSocket."""
WRITE_S, WRITE_RATE = 60.0, 1000.0
"""Grace period in seconds, and required bytes per second, of a client that reads slowly."""
_BODY_LOOKS = 12
_ROOM_SHARE = 16
_TOO_LATE, _TOO_LONG = b"408 Request Timeout", b"431 Request Header Fields Too Large"
_BAD_REQUEST = b"400 Bad Request"
_NO_ROOM = b"503 Service Unavailable\r\nretry-after: 1"
BodyEnd: TypeAlias = Literal["stalled", "too_long", "no_room"]


class PendingBodies:
    """The bodies that are still arriving and are held in memory. Beyond `max_bytes` the slowest are given up."""

    def __init__(self, max_bytes: int = MAX_PENDING_BYTES) -> None:
        self.max_bytes = max_bytes
        self.size = 0
        self._sizes: dict[ServerProtocol, int] = {}

    def add(self, connection: ServerProtocol, count: int) -> None:
        """Note bytes that arrived."""
        self._sizes[connection] = self._sizes.get(connection, 0) + count
        self.size += count
        while self.size > self.max_bytes:
            slowest = min(self._sizes, key=lambda known: known.pace)
            self.remove(slowest)
            slowest.give_up_body("no_room", _NO_ROOM)

    def remove(self, connection: ServerProtocol) -> None:
        """Forget a body: it is whole, gone, or not held."""
        self.size -= self._sizes.pop(connection, 0)


class ServerProtocol(HttpToolsProtocol):
    """uvicorn's protocol with bounds on a request's head and on the times of both bodies, and without trailers.

    Those must not become headers of the request they follow. Beyond `most_connections` the connections that have been
    idle for longest are closed for new ones; where none is idle, the new one is refused.
    """

    head_s = HEAD_S
    body_s = BODY_S
    body_total_s = BODY_TOTAL_S
    pending = PendingBodies()
    most_connections = sys.maxsize
    used_at = 0.0
    write_s = WRITE_S
    on_stall: Callable[[], None] | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _unwritten = 0
    _heading = False
    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None
    _under_way = False
    _body_bytes = 0
    _body_bytes_before = 0
    _body_late_s = 0.0
    _body_s = 0.0
    _body_held = False
    _body_timer: asyncio.TimerHandle | None = None
    pace = 0
    """Bytes of the body in the last full interval between two looks at it, or in this one if more."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # so in the base class
        """Start the timer for the request head."""
        super().connection_made(transport)
        self.used_at = self.loop.time()
        if len(self.connections) > self.most_connections and not self._found_room():
            return
        self._head_timer = self.loop.call_later(self.head_s, self._refuse_head, _TOO_LATE)

    def data_received(self, data: bytes) -> None:
        """Count what arrives of a head. A whole one mostly comes in one piece, which costs no timer."""
        super().data_received(data)
        if self._in_head():
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse_head(_TOO_LONG)
            elif self._head_timer is None:
                self._head_timer = self.loop.call_later(self.head_s, self._refuse_head, _TOO_LATE)
            return
        if self._head_timer is not None:
            self._forget_timer()
        if self._under_way:
            self._body_bytes += len(data)
            self.pace = max(self.pace, self._body_bytes - self._body_bytes_before)
            if self._body_timer is None:
                self._body_timer = self.loop.call_later(self.body_s / _BODY_LOOKS, self._look_at_body)
            if self.cycle is None or self.cycle.response_complete or STREAMED in self.scope:  # type: ignore[redundant-expr]  # None first
                self._release_body()
            else:
                self._body_held = True
                self.pending.add(self, len(data))

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of the timers."""
        self._forget_timer()
        self._release_body()
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None
        self._stop_write_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not keep up: it may take its time, but not all of it."""
        super().pause_writing()
        self._stop_write_timer()
        self._unwritten = self.transport.get_write_buffer_size()
        self._write_timer = self.loop.call_later(self.write_s, self._look_at_writing)

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._stop_write_timer()
        super().resume_writing()

    def on_message_begin(self) -> None:
        """Count from here."""
        super().on_message_begin()
        self.used_at = self.loop.time()
        self._heading, self._head_bytes = True, 0
        self._under_way, self._body_bytes, self._body_bytes_before, self.pace = True, 0, 0, 0
        self._body_late_s = self._body_s = 0.0

    def on_headers_complete(self) -> None:
        """Let what comes behind the head go nowhere."""
        self.head_is_complete()
        super().on_headers_complete()
        if not self.parser.should_upgrade():
            self.headers = []

    def head_is_complete(self) -> None:
        """Note that the request's head has arrived; for subclasses that serve a request themselves."""
        self._heading = False

    def handle_websocket_upgrade(self) -> None:
        """Reject a handshake that is not a GET or has a body: the WebSocket protocol would hang."""
        headers = dict(self.scope["headers"])
        has_body = b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
        if self.scope["method"] != "GET" or has_body:
            self._tell(_BAD_REQUEST)
            self.transport.close()
            return
        super().handle_websocket_upgrade()
        scope = getattr(self.transport.get_protocol(), "scope", None)
        if scope is not None:  # None where the handshake was refused
            scope[SOCKET] = self.transport.get_extra_info("socket")

    def on_message_complete(self) -> None:
        """The body is whole."""
        self._under_way = False
        if self._body_held:
            self._release_body()
        super().on_message_complete()

    @staticmethod
    def connection_closed(reason: str) -> None:
        """Called for each connection that is closed for want of room; `reason` is idle or refused."""

    def _found_room(self) -> bool:
        """Close the connections that have been idle for longest, several at a time as looking for them takes a while.

        Where there are none, refuse this one.
        """
        others = (other for other in self.connections if isinstance(other, ServerProtocol) and other is not self)
        idle = [other for other in others if other.is_idle()]
        closing = heapq.nsmallest(max(1, len(idle) // _ROOM_SHARE), idle, key=lambda connection: connection.used_at)
        for connection in closing or [self]:
            if connection is self:
                self._tell(_NO_ROOM)
            connection.transport.close()
            # At once, and not when the loop says so: others may be accepted before.
            self.connections.discard(connection)
            self.connection_closed("refused" if connection is self else "idle")
        return bool(closing)

    def is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr]  # None first

    def _in_head(self) -> bool:
        """Whether a head has begun and is not complete."""
        return self._heading

    def _forget_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _look_at_writing(self) -> None:
        """Give up a client that reads too slowly: its answer holds memory, an upstream connection and a place."""
        left = self.transport.get_write_buffer_size()
        if self._unwritten - left >= self.write_s * WRITE_RATE:
            self._unwritten = left
            self._write_timer = self.loop.call_later(self.write_s, self._look_at_writing)
            return
        self._write_timer = None
        if self.on_stall is not None:
            self.on_stall()
        self.transport.abort()

    def _refuse_head(self, status: bytes) -> None:
        self._forget_timer()
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return
        if self._heading and (self.cycle is None or self.cycle.response_complete):  # type: ignore[redundant-expr]  # None first
            self._tell(status)
        self.transport.close()

    def _release_body(self) -> None:
        if self._body_held:
            self._body_held = False
            self.pending.remove(self)

    def _look_at_body(self) -> None:
        """Reject a body that arrives too slowly; time in which the app does not read is excluded."""
        self._body_timer = None
        if not self._under_way or self.transport.is_closing() or self.transport.get_protocol() is not self:
            return
        interval_s = self.body_s / _BODY_LOOKS
        arrived = self.pace = self._body_bytes - self._body_bytes_before
        self._body_bytes_before = self._body_bytes
        if not (self.flow.read_paused or getattr(self.cycle, "waiting_for_100_continue", False)):
            self._body_s += interval_s
            self._body_late_s = max(0.0, self._body_late_s + interval_s - arrived / BODY_RATE)
        if self._body_late_s >= self.body_s:
            self.give_up_body("stalled", _TOO_LATE)
        elif self._body_held and self._body_s >= max(self.body_total_s, self.body_s):
            self.give_up_body("too_long", _TOO_LATE)
        else:
            self._body_timer = self.loop.call_later(interval_s, self._look_at_body)

    def give_up_body(self, reason: BodyEnd, status: bytes) -> None:
        """Answer with `status`, unless the answer has begun, and close the connection."""
        self._release_body()
        self.on_body_given_up(reason)
        cycle = self.cycle
        if not (cycle.response_complete or getattr(cycle, "response_started", False)):
            self._tell(status)
        self.transport.close()

    @staticmethod
    def on_body_given_up(reason: BodyEnd) -> None:
        """For subclasses that count."""

    def _tell(self, status: bytes) -> None:
        self.transport.write(b"HTTP/1.1 %b\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % status)


def patient(
    protocol: type[ServerProtocol],
    *,
    body_s: float = BODY_S,
    body_total_s: float = BODY_TOTAL_S,
    max_pending_bytes: int = MAX_PENDING_BYTES,
    on_body_given_up: Callable[[BodyEnd], None] = lambda _: None,
    write_s: float = WRITE_S,
    on_stall: Callable[[], None] = lambda: None,
) -> type[ServerProtocol]:
    """Return the protocol with other limits on bodies; those given up are reported with the reason.

    `on_stall` is called for each client given up because it did not read its answer.
    """
    members = {
        "body_s": body_s,
        "body_total_s": body_total_s,
        "pending": PendingBodies(max_pending_bytes),
        "on_body_given_up": staticmethod(on_body_given_up),
        "write_s": write_s,
        "on_stall": staticmethod(on_stall),
    }
    return type(protocol.__name__, (protocol,), members)


def roomy(protocol: type[ServerProtocol], most: int, closed: Callable[[str], None]) -> type[ServerProtocol]:
    """Return the protocol for at most `most` connections; `closed` gets the reason for each closed one."""
    name, told = protocol.__name__, staticmethod(closed)
    return type(name, (protocol,), {"most_connections": most, "connection_closed": told})


@dataclass(frozen=True, slots=True)
class Listener:
    """An ASGI app and where it listens; `shared` lets several processes listen on the same port (SO_REUSEPORT).

    `closed` gets the reason when a connection is closed for lack of descriptors: idle or refused.
    """

    app: Any
    host: str
    port: int
    shared: bool = False
    protocol: type[ServerProtocol] = ServerProtocol
    closed: Callable[[str], None] = lambda _: None


class _Server(uvicorn.Server):
    """A uvicorn server that leaves the signals to `serve`."""

    def stop(self) -> None:
        """Stop accepting and finish the requests in progress."""
        self.should_exit = True

    @property
    def in_progress(self) -> int:
        """Requests that are not answered yet."""
        return len(self.server_state.tasks)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    listeners: Sequence[Listener],
    *,
    drain_s: float,
    delay_s: float = 0.0,
    on_stop: Callable[[], None] | None = None,
    supervised: bool = False,
    on_line: Callable[[str], None] = lambda _: None,
    on_listening: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGTERM or SIGINT; then stop accepting, and give requests in progress up to `drain_s` seconds.

    The first listener carries the traffic and stops first, `delay_s` after the signal; the others follow it, so that
    what they show can be read to the end.
    `on_stop` is called as soon as the signal arrives. With `supervised`, the end of standard input is a signal too: it
    means that the supervising process was killed. Then all listeners stop accepting at once, as its successor needs
    their addresses. `on_line` is called with each line of standard input,
    `on_listening` once all addresses are bound. Raises OSError when an address cannot be
    bound within `BIND_WAIT_S`.
    """
    sockets = [await _bind(listener) for listener in listeners]
    on_listening()
    first, other = system.shares(system.limit())
    shares = [first, *[other] * (len(listeners) - 1)]
    servers = [
        _Server(_config(replace(listener, protocol=roomy(listener.protocol, share, listener.closed)), drain_s))
        for listener, share in zip(listeners, shares, strict=True)
    ]
    log = _log.debug if supervised else _log.info  # a supervisor logs it once for its processes

    def stop() -> None:
        if on_stop is not None:
            on_stop()
        log("draining: %d requests in progress, up to %.0f s", servers[0].in_progress, delay_s + drain_s)
        asyncio.get_running_loop().call_later(delay_s, servers[0].stop)

    def orphaned() -> None:
        _log.warning("supervisor exited: draining requests and closing ports")
        if on_stop is not None:
            on_stop()
        for server in servers:
            server.stop()

    # Long-lived objects leave the collector's sight and collections become rare: otherwise full collections show as
    # pauses of tens of milliseconds in the traffic's p99.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    with _stopped_by_signals(stop, orphaned if supervised else None, on_line):
        async with asyncio.TaskGroup() as group:
            for server, bound in zip(servers[1:], sockets[1:], strict=True):
                group.create_task(server.serve([bound]))
            await servers[0].serve([sockets[0]])
            cut = servers[0].in_progress  # cancelled, but not yet ended
            for server in servers[1:]:
                server.stop()
    if cut:
        _log.warning("drained: cut off %d requests after %.0f s", cut, drain_s)
    else:
        log("drained: all requests completed")


@contextlib.contextmanager
def _stopped_by_signals(
    stop: Callable[[], None], orphaned: Callable[[], None] | None, on_line: Callable[[str], None]
) -> Iterator[None]:
    """Call `stop` on SIGTERM and SIGINT, and `orphaned`, if there is one, at the end of standard input."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)

    partial = bytearray()

    def watch_input() -> None:
        if not (data := os.read(0, 65_536)):
            loop.remove_reader(0)
            if orphaned is not None:
                orphaned()
        partial.extend(data)
        *lines, partial[:] = bytes(partial).split(b"\n")
        for line in lines:
            on_line(line.decode("utf-8", "replace"))

    for number in numbers:
        loop.add_signal_handler(number, stop)
    if orphaned is not None:
        loop.add_reader(0, watch_input)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
        loop.remove_reader(0)


async def _bind(listener: Listener) -> socket.socket:
    """Bind; wait a little for a process that is just about to release the address. Raises OSError."""
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    deadline = time.monotonic() + BIND_WAIT_S
    while True:
        try:
            return socket.create_server(
                (listener.host, listener.port), family=family, backlog=BACKLOG, reuse_port=listener.shared
            )
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise cannot_listen(listener.host, listener.port, error) from error
        await asyncio.sleep(BIND_EVERY_S)


def _config(listener: Listener, drain_s: float) -> uvicorn.Config:
    return uvicorn.Config(
        listener.app,
        host=listener.host,
        port=listener.port,
        loop="none",
        http=listener.protocol,
        ws="websockets-sansio",
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_ping_interval=None,
        lifespan="off",
        interface="asgi3",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, round(drain_s)),
    )


def run(main: Coroutine[Any, Any, None], log_format: str = "text") -> None:
    """Run a coroutine on uvloop."""
    import uvloop  # noqa: PLC0415 - only where a process is started

    configure_logs(log_format)
    system.raise_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)
