"""The server protocol of the traffic port: requests sent ahead are answered in turn, malformed bytes at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from gateway.exchange import Headers
from gateway.http.errors import body_of, malformed_request
from monitors.runtime.serving import ServerProtocol

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope

_REFUSAL = body_of(malformed_request())
_HEADERS: Headers = [
    (b"content-type", b"application/json"),
    (b"content-length", b"%d" % len(_REFUSAL)),
    (b"connection", b"close"),
]


class _Discarding:
    """A parser for what follows malformed bytes."""

    @staticmethod
    def feed_data(data: bytes) -> None:
        """Ignore `data`: where the next request would begin is not known."""


class TrafficProtocol(ServerProtocol):
    """The server protocol of a connection whose client may send requests ahead (pipelining).

    Of its requests the server knows only the last one as `cycle`; `running` is the one that is being answered by ASGI.
    """

    running: RequestResponseCycle | None = None

    @staticmethod
    def on_invalid(reason: str) -> None:
        """For subclasses that count. The reason is `malformed`."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request under way as well that its client has gone: the server tells the last one that arrived."""
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
        cycle = self.cycle
        if self.is_idle():
            self._write_refusal()
        elif not cycle.more_body:
            self._refuse_in_turn()
        elif self.pipeline:  # the body of a request that waits for its turn is malformed: it gets the refusal
            self.pipeline.popleft()
            self._refuse_in_turn()
        else:
            if not getattr(cycle, "response_started", False):
                self._write_refusal()
            self.transport.close()

    def _stop_parsing(self) -> None:
        self.parser = _Discarding()  # type: ignore[assignment]  # nothing else of it is used from now on
        self._heading = self._under_way = False
        self._forget_timer()
        self._release_body()

    def _write_refusal(self) -> None:
        lines = [b"%b: %b\r\n" % header for header in _HEADERS]
        self.transport.write(b"".join([STATUS_LINE[400], *lines, b"\r\n", _REFUSAL]))
        self.transport.close()

    def _refuse_in_turn(self) -> None:
        """Let the server send the refusal like the answer to one more request."""
        self.cycle = RequestResponseCycle(
            scope={"type": "http", "method": "GET"},  # type: ignore[typeddict-item]  # nothing else is looked at
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
        self.cycle.more_body = False
        self.pipeline.appendleft((self.cycle, _refuse))


async def _refuse(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:  # noqa: ARG001 - an ASGI app
    await send({"type": "http.response.start", "status": 400, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": _REFUSAL, "more_body": False})


def counting(protocol: type[TrafficProtocol], on_invalid: Callable[[str], None]) -> type[TrafficProtocol]:
    """Return the protocol with a counter of the connections whose client sent malformed bytes."""
    return type(protocol.__name__, (protocol,), {"on_invalid": staticmethod(on_invalid)})
