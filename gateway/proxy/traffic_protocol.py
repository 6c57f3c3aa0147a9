"""The server protocol of the traffic port: requests sent ahead are answered in turn, malformed bytes at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gateway.http.errors import body_of, malformed_request
from gateway.proxy.request_parser import RequestParser
from gaugeway.runtime.serving import BodyEnd, ServerProtocol

_BODY = body_of(malformed_request())
_MALFORMED = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
_MALFORMED += b"content-length: %d\r\n\r\n%b" % (len(_BODY), _BODY)


LINGER_S = 2.0
"""How long what follows malformed bytes is read and ignored: closing on unread bytes resets the connection, and the
client may never see the answer.
"""


class _Discarding:
    """A parser for what follows malformed bytes."""

    @staticmethod
    def feed_data(data: bytes) -> None:
        """Ignore `data`: where the next request would begin is not known."""


class _UnframedCycle(RequestResponseCycle):
    """A request cycle for HTTP/1.0 clients, which do not know chunks: a body without a length ends with the connection.

    RFC 9112, 6.1 forbids to send them a Transfer-Encoding, which uvicorn does.
    """

    _unframed = False

    async def send(self, message: Any) -> None:
        """Send a part of the response."""
        if message["type"] == "http.response.start":
            self._unframed = b"content-length" not in [name.lower() for name, _ in message.get("headers", ())]
            if self._unframed:
                self.chunked_encoding = False
        elif self._unframed:
            self.expected_content_length = len(message.get("body", b""))  # as the base class checks it
        await super().send(message)


class TrafficProtocol(ServerProtocol):
    """The server protocol of a connection whose client may send requests ahead (pipelining).

    Of its requests the server knows only the last one as `cycle`; `running` is the one that is being answered by ASGI.
    """

    running: RequestResponseCycle | None = None

    @staticmethod
    def on_invalid(reason: str) -> None:
        """For subclasses that count. The reason is `malformed`."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # so in the base class
        """Parse requests so that offers of other protocols than WebSocket are ignored."""
        self.parser = RequestParser(self)
        super().connection_made(transport)

    def ignores_upgrade(self) -> bool:
        """Whether the request offers a protocol that is not used, so that another parser takes over behind its head."""
        parser = self.parser
        return parser.should_upgrade() and parser.get_method() != b"CONNECT" and not self._should_upgrade()

    def on_message_complete(self) -> None:
        """The body is whole; where another parser takes over, it only begins."""
        if not self.ignores_upgrade():
            super().on_message_complete()

    def on_headers_complete(self) -> None:
        """Read on behind the first request that has to wait its turn: the client's leaving must be noticed."""
        self.check_host()
        last_cycle = self.cycle
        super().on_headers_complete()
        if self.cycle is not last_cycle and self.scope["http_version"] == "1.0":
            self.cycle.__class__ = _UnframedCycle
        if len(self.pipeline) == 1:
            self.flow.resume_reading()

    def check_host(self) -> None:
        """Raise ValueError for HTTP/1.1 without exactly one Host (RFC 9112, 3.2): the parser calls it malformed."""
        if [name for name, _ in self.headers].count(b"host") != 1 and self.parser.get_http_version() == "1.1":
            raise ValueError("expected one Host")

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the running request of the disconnect as well: the server notifies the last one that arrived."""
        super().connection_lost(exc)
        running = self.running
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self.running = cycle
        super()._start_asgi_task(cycle, app)

    def handle_websocket_upgrade(self) -> None:
        """Refuse a handshake behind a request that is not answered yet: the connection would change its protocol."""
        if self.is_idle():
            super().handle_websocket_upgrade()
        else:
            self.send_400_response("")

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the server's text for it
        """Refuse malformed bytes and close, but answer the requests before them first."""
        self._stop_parsing()
        if self.transport.is_closing():
            return
        self.on_invalid("malformed")
        if not self.is_idle() and (self.pipeline or not self.cycle.more_body):
            self._refuse_in_turn(self._tell_malformed)
            return
        if self.is_idle() or not getattr(self.cycle, "response_started", False):
            self._tell_malformed()
        self._linger()

    def _linger(self) -> None:
        """Close once the client has read the answer, or after LINGER_S."""
        if not self.transport.can_write_eof():
            self.transport.close()
            return
        self.flow.resume_reading()
        self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.close)

    def _tell_malformed(self) -> None:
        self.transport.write(_MALFORMED)

    def give_up_body(self, reason: BodyEnd, status: bytes) -> None:
        """As the base class does, but not in the middle of the answer to a request before it."""
        if not self.pipeline:
            super().give_up_body(reason, status)
            return
        self._stop_parsing()
        self.on_body_given_up(reason)
        self._refuse_in_turn(partial(self._tell, status))

    def _refuse_head(self, status: bytes) -> None:
        if self._heading and not self.is_idle() and not self.transport.is_closing():
            self._stop_parsing()
            self._refuse_in_turn(partial(self._tell, status))
        else:
            super()._refuse_head(status)

    def _stop_parsing(self) -> None:
        self.parser = _Discarding()  # type: ignore[assignment]  # nothing else of it is used from now on
        self._heading = self._under_way = False
        self._forget_timer()
        self._release_body()

    def _refuse_in_turn(self, tell: Callable[[], None]) -> None:
        """Call `tell` behind the answers to all requests that are complete, and close."""
        if self.pipeline and self.cycle.more_body:
            self.pipeline.popleft()  # the request itself is refused
        cycle = self.cycle = RequestResponseCycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=False,
            on_response=self.on_response_complete,
        )
        cycle.more_body = False

        async def refuse(*_: Any) -> None:
            cycle.response_started = cycle.response_complete = True
            tell()
            self.transport.close()

        self.pipeline.appendleft((cycle, refuse))


def counting(protocol: type[TrafficProtocol], on_invalid: Callable[[str], None]) -> type[TrafficProtocol]:
    """Return the protocol with a counter of the connections whose client sent malformed bytes."""
    return type(protocol.__name__, (protocol,), {"on_invalid": staticmethod(on_invalid)})
