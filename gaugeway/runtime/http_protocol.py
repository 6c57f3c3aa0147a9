"""The server protocol: reads requests from a connection, bounds their size and time, has them answered in turn."""

from __future__ import annotations

import asyncio
import heapq
import logging
import sys
from collections import deque
from itertools import islice
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl
from uvicorn.server import ServerState

from gaugeway.runtime import http_bounds as bounds
from gaugeway.runtime.http_request import AsgiRequest, Refusal, Request
from gaugeway.runtime.request_parser import Discarding, RequestParser, offers_websocket

SOCKET = "gaugeway.socket"
"""The client's socket, in the ASGI scope of a WebSocket."""
_BODY_LOOKS = 12
_ROOM_SHARE = 16
_log = logging.getLogger("uvicorn.error")


class ServerProtocol(asyncio.Protocol):
    """A connection for `uvicorn.Server`. Its client may send requests ahead; each is answered in its turn.

    Bounds hold for a request's head and for the times of both bodies. Trailers are dropped: they must not become
    headers of the request they follow. Malformed bytes are refused once the requests before them are answered. Beyond
    `most_connections` the connections that have been idle for longest are closed for new ones; where none is idle, the
    new one is refused.
    """

    malformed = bounds.BAD_REQUEST
    """The answer to malformed bytes."""
    head_s = bounds.HEAD_S
    body_s = bounds.BODY_S
    body_total_s = bounds.BODY_TOTAL_S
    pending = bounds.PendingBodies()
    most_connections = sys.maxsize
    write_s = bounds.WRITE_S

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.loop = _loop or asyncio.get_running_loop()
        self._config, self._app_state = config, app_state
        self.app = config.loaded_app
        self.server_state = server_state
        self._connections: set[Any] = server_state.connections
        self.transport: asyncio.Transport
        self.flow: FlowControl
        self.parser: Any = RequestParser(self)
        self.current: Request | None = None
        """The request that is being answered."""
        self.receiving: Request | None = None
        """The request whose body arrives."""
        self._waiting: deque[Request] = deque()
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.expects_continue = False
        self.used_at = 0.0
        self._keep_alive_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._unwritten = 0
        self._heading = False
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._under_way = False
        self._body_bytes = self._body_bytes_before = 0
        self._body_late_s = self._body_s = 0.0
        self._body_held = False
        self._body_timer: asyncio.TimerHandle | None = None
        self.pace = 0
        """Bytes of the body in the last full interval between two looks at it, or in this one if more."""

    # What is counted, for subclasses.

    @staticmethod
    def on_invalid(reason: str) -> None:
        """Called for each connection whose client sent malformed bytes; the reason is `malformed`."""

    @staticmethod
    def on_body_given_up(reason: bounds.BodyEnd) -> None:
        """Called for each body that is given up."""

    @staticmethod
    def on_stall() -> None:
        """Called for each client that is given up because it did not read its answer."""

    @staticmethod
    def connection_closed(reason: str) -> None:
        """Called for each connection that is closed for want of room; `reason` is idle or refused."""

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # a server gets no other
        """Start the timer for the request head."""
        self._connections.add(self)
        self.transport = transport
        self.flow = FlowControl(transport)
        self.used_at = self.loop.time()
        if len(self._connections) > self.most_connections and not self._found_room():
            return
        self._head_timer = self.loop.call_later(self.head_s, self._refuse_head, bounds.TOO_LATE)

    def data_received(self, data: bytes) -> None:
        """Count what arrives of a head. A whole one mostly comes in one piece, which costs no timer."""
        if self._keep_alive_timer is not None:
            self._stop_keep_alive_timer()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            if self._is_handshake():
                self._open_websocket()
        except httptools.HttpParserError:
            self._refuse_malformed()
        if self._heading:
            self._head_bytes += len(data)
            if self._head_bytes > bounds.MAX_HEAD_BYTES:
                self._refuse_head(bounds.TOO_LONG)
            elif self._head_timer is None:
                self._head_timer = self.loop.call_later(self.head_s, self._refuse_head, bounds.TOO_LATE)
            return
        if self._head_timer is not None:
            self._stop_head_timer()
        if self._under_way:
            self._count_body(len(data))

    def eof_received(self) -> None:
        """Close: a client that closes its sending side has hung up."""

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - as asyncio has it
        """Let go of the timers and of the request that is being answered."""
        self._stop_parsing()
        self._stop_keep_alive_timer()
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None
        self._stop_write_timer()
        self._connections.discard(self)
        self._waiting.clear()
        current, self.current = self.current, None
        if current is not None:
            current.gone()
        self.flow.resume_writing()

    def pause_writing(self) -> None:
        """The client does not keep up: it may take its time, but not all of it."""
        self.flow.pause_writing()
        self._stop_write_timer()
        self._unwritten = self.transport.get_write_buffer_size()
        self._write_timer = self.loop.call_later(self.write_s, self._look_at_writing)

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._stop_write_timer()
        self.flow.resume_writing()
        if self.current is not None:
            self.current.resume()

    # Called by uvicorn's server.

    def shutdown(self) -> None:
        """Close as soon as all requests that have arrived are answered."""
        if self.is_idle():
            self.transport.close()
        else:
            self._last().keep_alive = False

    def cut_off(self) -> None:
        """End the request that is being answered: the server's time to drain is over."""
        if self.current is not None:
            self.current.cut_off()

    # httptools

    def on_message_begin(self) -> None:
        """Count from here."""
        self.url, self.headers, self.expects_continue = b"", [], False
        self.used_at = self.loop.time()
        self._heading, self._head_bytes = True, 0
        self._under_way, self._body_bytes, self._body_bytes_before, self.pace = True, 0, 0, 0
        self._body_late_s = self._body_s = 0.0

    def on_url(self, url: bytes) -> None:
        """Take a part of the request's target."""
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        if (name := name.lower()) == b"expect" and value.lower() == b"100-continue":
            self.expects_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Have the request answered, now or in its turn."""
        self._heading = False
        if self.parser.should_upgrade() and self._is_handshake():
            return
        request = self.receiving = self.accept(self.parser.get_method(), self.headers)
        self.headers = []  # what comes behind the head goes nowhere
        if self.current is None:
            self.current = request
            request.start()
        else:
            request.head_bytes = sum(len(name) + len(value) for name, value in request.headers)
            self._waiting.append(request)
            if self._holds_enough():
                self.flow.pause_reading()

    def on_body(self, data: bytes) -> None:
        """Take bytes of the body; an answer that is complete needs no more of them."""
        if (request := self.receiving) is None or request.response_complete:
            return
        request.body_arrived(data)
        if len(request.body) > request.high_water or self._holds_enough():
            self.flow.pause_reading()

    def on_message_complete(self) -> None:
        """The body is whole; where another parser takes over, it only begins."""
        if self.ignores_upgrade():
            return
        self._under_way = False
        if self._body_held:
            self._release_body()
        request, self.receiving = self.receiving, None
        if request is not None and not request.response_complete:
            request.body_complete()

    # Requests and their answers.

    def accept(self, method: bytes, headers: list[tuple[bytes, bytes]]) -> Request:
        """Make the request whose head has arrived: one for the ASGI app."""
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        scope = {
            **self._scope(),
            "method": method.decode("ascii"),
            "http_version": self.parser.get_http_version(),
            "path": unquote(path) if "%" in path else path,
            "raw_path": url.path,
            "query_string": url.query or b"",
            "headers": headers,
        }
        return AsgiRequest(self, method, headers, scope)

    def _scope(self) -> dict[str, Any]:
        return {
            "type": "http",
            "asgi": {"version": self._config.asgi_version, "spec_version": "2.3"},
            "server": get_local_addr(self.transport),
            "client": get_remote_addr(self.transport),
            "scheme": "https" if is_ssl(self.transport) else "http",
            "root_path": "",
            "state": self._app_state.copy(),
        }

    def answered(self, request: Request) -> None:
        """Go on behind a request that is answered."""
        if self.current is not request:
            return
        self.current = None
        if self.transport.is_closing():
            self._waiting.clear()
            return
        if self._waiting:
            self.current = self._waiting.popleft()
            self.read_on()
            self.current.start()
        else:
            self.read_on()
            self._stop_keep_alive_timer()
            self._keep_alive_timer = self.loop.call_later(self._config.timeout_keep_alive, self.transport.close)

    def read_on(self) -> None:
        """Read from the client again, unless enough of what it sent ahead waits."""
        if not self._holds_enough():
            self.flow.resume_reading()

    def _holds_enough(self) -> bool:
        """Whether no more is read before a request is answered; until then the client's leaving goes unnoticed."""
        if not (waiting := self._waiting):
            return False
        size = sum(request.head_bytes + len(request.body) for request in islice(waiting, bounds.MOST_AHEAD))
        return len(waiting) > bounds.MOST_AHEAD or size > bounds.MOST_BYTES_AHEAD

    def is_idle(self) -> bool:
        """Whether no request waits for an answer."""
        return self.current is None

    def _last(self) -> Request:
        """Return the last of the requests that wait for an answer."""
        assert self.current is not None  # noqa: S101 - for the type checker: the connection is not idle
        return self._waiting[-1] if self._waiting else self.current

    # WebSockets

    def ignores_upgrade(self) -> bool:
        """Whether the request offers a protocol that is not used, so that another parser takes over behind its head."""
        parser = self.parser
        return bool(parser.should_upgrade()) and parser.get_method() != b"CONNECT" and not self._is_handshake()

    def _is_handshake(self) -> bool:
        """Whether the head that arrived asks for a WebSocket."""
        headers = self.headers or (self.receiving.headers if self.receiving is not None else ())
        return self._config.ws_protocol_class is not None and offers_websocket(headers)

    def _open_websocket(self) -> None:
        """Hand the connection over to the WebSocket protocol.

        Not for a handshake that is not a GET or has a body, at which that protocol would hang, nor behind a request
        that is not answered yet: the connection would change its protocol.
        """
        headers = dict(self.headers)
        has_body = b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
        if not self.is_idle():
            self._refuse_malformed()
            return
        if self.parser.get_method() != b"GET" or has_body:
            self.transport.write(bounds.BAD_REQUEST)
            self.transport.close()
            return
        self._connections.discard(self)
        lines = [b"GET %b HTTP/1.1\r\n" % self.url, *(b"%b: %b\r\n" % header for header in self.headers), b"\r\n"]
        make: Any = self._config.ws_protocol_class
        protocol = make(config=self._config, server_state=self.server_state, app_state=self._app_state)
        protocol.connection_made(self.transport)
        protocol.data_received(b"".join(lines))
        self.transport.set_protocol(protocol)
        scope = getattr(protocol, "scope", None)
        if scope is not None:  # None where the handshake was refused
            scope[SOCKET] = self.transport.get_extra_info("socket")

    # Room and idle connections.

    def _found_room(self) -> bool:
        """Close the connections that have been idle for longest, several at a time as looking for them takes a while.

        Where there are none, refuse this one.
        """
        others = (other for other in self._connections if isinstance(other, ServerProtocol) and other is not self)
        idle = [other for other in others if other.is_idle()]
        closing = heapq.nsmallest(max(1, len(idle) // _ROOM_SHARE), idle, key=lambda connection: connection.used_at)
        for connection in closing or [self]:
            if connection is self:
                self.transport.write(bounds.NO_ROOM)
            connection.transport.close()
            # At once, and not when the loop says so: others may be accepted before.
            self._connections.discard(connection)
            self.connection_closed("refused" if connection is self else "idle")
        return bool(closing)

    def _stop_keep_alive_timer(self) -> None:
        if self._keep_alive_timer is not None:
            self._keep_alive_timer.cancel()
            self._keep_alive_timer = None

    # Slow clients.

    def _count_body(self, size: int) -> None:
        self._body_bytes += size
        self.pace = max(self.pace, self._body_bytes - self._body_bytes_before)
        if self._body_timer is None:
            self._body_timer = self.loop.call_later(self.body_s / _BODY_LOOKS, self._look_at_body)
        if (request := self.receiving) is not None and request.is_held and not request.response_complete:
            self._body_held = True
            self.pending.add(self, size)
        else:
            self._release_body()

    def _look_at_body(self) -> None:
        """Reject a body that arrives too slowly; time in which the app does not read is excluded."""
        self._body_timer = None
        if not self._under_way or self._has_ended():
            return
        interval_s = self.body_s / _BODY_LOOKS
        arrived = self.pace = self._body_bytes - self._body_bytes_before
        self._body_bytes_before = self._body_bytes
        if not (self.flow.read_paused or (self.receiving is not None and self.receiving.expects_continue)):
            self._body_s += interval_s
            self._body_late_s = max(0.0, self._body_late_s + interval_s - arrived / bounds.BODY_RATE)
        if self._body_late_s >= self.body_s:
            self.give_up_body("stalled", bounds.TOO_LATE)
        elif self._body_held and self._body_s >= max(self.body_total_s, self.body_s):
            self.give_up_body("too_long", bounds.TOO_LATE)
        else:
            self._body_timer = self.loop.call_later(interval_s, self._look_at_body)

    def give_up_body(self, reason: bounds.BodyEnd, answer: bytes) -> None:
        """Send `answer`, unless another one has begun, and close the connection, behind the requests before."""
        self.on_body_given_up(reason)
        request = self.receiving
        self._stop_parsing()
        if self._waiting:
            self._refuse_in_turn(answer)
            return
        if request is not None and not request.response_started:
            self.transport.write(answer)
        self.transport.close()

    def _release_body(self) -> None:
        if self._body_held:
            self._body_held = False
            self.pending.remove(self)

    def _look_at_writing(self) -> None:
        """Give up a client that reads too slowly: its answer holds memory, an upstream connection and a place."""
        left = self.transport.get_write_buffer_size()
        if self._unwritten - left >= self.write_s * bounds.WRITE_RATE:
            self._unwritten = left
            self._write_timer = self.loop.call_later(self.write_s, self._look_at_writing)
            return
        self._write_timer = None
        self.on_stall()
        self.transport.abort()

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    # What cannot be read.

    def _has_ended(self) -> bool:
        return self.transport.is_closing() or self.transport.get_protocol() is not self

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_parsing(self) -> None:
        self.parser = Discarding()
        self._heading = self._under_way = False
        self.receiving = None
        self._stop_head_timer()
        self._release_body()

    def _refuse_head(self, answer: bytes) -> None:
        """Close, with `answer` if a head has begun."""
        self._stop_head_timer()
        if self._has_ended():
            return
        if self._heading and not self.is_idle():
            self._stop_parsing()
            self._refuse_in_turn(answer)
            return
        if self._heading:
            self.transport.write(answer)
        self.transport.close()

    def _refuse_malformed(self) -> None:
        """Refuse malformed bytes and close, but answer the requests before them first."""
        _log.warning("Invalid HTTP request received.")
        broken = self.receiving
        self._stop_parsing()
        if self.transport.is_closing():
            return
        self.on_invalid("malformed")
        if broken is not None and broken.response_complete:  # the request that they belong to has its answer
            self._linger()
            return
        if not self.is_idle() and (self._waiting or not self._last().more_body):
            self._refuse_in_turn(self.malformed)
            return
        if self.current is None or not self.current.response_started:
            self.transport.write(self.malformed)
        self._linger()

    def _refuse_in_turn(self, answer: bytes) -> None:
        """Send `answer` behind the answers to all requests that are complete, and close."""
        if self._waiting and self._waiting[-1].more_body:
            self._waiting.pop()  # the request itself is refused
        self._waiting.append(Refusal(self, answer))

    def _linger(self) -> None:
        """Close once the client has read the answer, or after `LINGER_S`."""
        if not self.transport.can_write_eof():
            self.transport.close()
            return
        self.flow.resume_reading()
        self.transport.write_eof()
        self.loop.call_later(bounds.LINGER_S, self.transport.close)
