"""One request on a client's connection: its body as it arrives, and the response, framed as its client reads it."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from gaugeway.runtime.client_writer import ClientWriter
from gaugeway.runtime.tasks import spawn

if TYPE_CHECKING:
    from gaugeway.runtime.http_protocol import ServerProtocol

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

STREAMED = "gaugeway.streamed"
"""Set in the ASGI scope by an app that passes a body on as it comes, so that it counts as not held in memory."""
_BODILESS = (204, 304)
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_BAD_NAME = re.compile(rb'[\x00-\x1f\x7f()<>@,;:\[\]={} \t\\"]')
_BAD_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_FAILED = b"Internal Server Error"
_log = logging.getLogger("uvicorn.error")


class Request:
    """A request whose head has arrived. Subclasses answer it from `start` on, which is called when its turn has come.

    A response is `begin`, any number of `write` and `end`, which only collect what `flush` sends; then `done` lets the
    connection go on.
    """

    high_water = HIGH_WATER_LIMIT
    """How many bytes of the body may wait before the connection is not read any more."""
    head_bytes = 0
    """Of a request that waits for its turn, the bytes of its headers."""

    def __init__(self, connection: ServerProtocol, method: bytes, headers: Headers) -> None:
        parser = connection.parser
        self.connection = connection
        self.headers = headers
        self.body = bytearray()
        self.more_body = True
        self.is_held = True
        """Whether the body is held in memory."""
        self.is_http_1_0 = parser.get_http_version() == "1.0"
        self.keep_alive = not self.is_http_1_0 and parser.should_keep_alive()
        self.expects_continue = connection.expects_continue
        self.disconnected = self.response_started = self.response_complete = False
        self._is_head = method == b"HEAD"
        self._chunked = False
        self._left: int | None = None
        self.writer = ClientWriter(connection.transport, connection.loop)
        self._has_news = False
        self._waiter: asyncio.Future[None] | None = None

    # Called by the connection.

    def start(self) -> None:
        """Begin to answer."""

    def body_arrived(self, data: bytes) -> None:
        """Take bytes of the body."""
        self.body += data
        self._wake()

    def body_complete(self) -> None:
        """The body is whole."""
        self.more_body = False
        self._wake()

    def gone(self) -> None:
        """The client has left."""
        self.disconnected = True
        self._wake()

    def resume(self) -> None:
        """The client takes bytes again."""

    def cut_off(self) -> None:
        """The server's time to drain is over. What runs as a task is cancelled by the server."""

    # Called by whoever answers.

    async def receive(self) -> tuple[bytes, bool] | None:
        """Wait for more of the body: what has arrived, and whether more may follow.

        None when the client has left or the response is complete.
        """
        if self.expects_continue and not self.connection.transport.is_closing():
            self.connection.transport.write(_CONTINUE)
            self.expects_continue = False
        if not self._is_over():
            self.connection.read_on()
        while not (self._has_news or self._is_over()):
            self._waiter = self.connection.loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._has_news = False
        if self._is_over():
            return None
        body, self.body = bytes(self.body), bytearray()
        return body, self.more_body

    def _is_over(self) -> bool:
        return self.disconnected or self.response_complete

    def _wake(self) -> None:
        self._has_news = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @property
    def write_paused(self) -> bool:
        """Whether the client does not keep up."""
        return self.connection.flow.write_paused

    def begin(self, status: int, headers: Headers) -> None:
        """Take the head of the response."""
        self.response_started, self.expects_continue = True, False
        lines = [STATUS_LINE[status]]
        closes = False
        for name, value in headers:
            if (lowered := name.lower()) == b"content-length":
                self._left = int(value)
            elif lowered == b"transfer-encoding":
                continue
            elif lowered == b"connection" and b"close" in [token.strip() for token in value.lower().split(b",")]:
                self.keep_alive, closes = False, True
            lines += (lowered, b": ", value, b"\r\n")
        if not (self.keep_alive or closes):
            lines.append(b"connection: close\r\n")
        if self._is_head or status in _BODILESS:
            self._left = 0
        elif self._left is None and not self.is_http_1_0:  # RFC 9112, 6.1: HTTP/1.0 ends with the connection
            self._chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        self.writer.add(*lines)

    def write(self, data: bytes) -> None:
        """Take bytes of the response's body. Raises RuntimeError for more than was announced."""
        if self._chunked:
            if data:
                self.writer.add(b"%x\r\n" % len(data), data, b"\r\n")
        elif not self._is_head:
            if self._left is not None:
                self._left -= len(data)
                if self._left < 0:
                    raise RuntimeError("Response content longer than Content-Length")
            self.writer.add(data)

    def write_soon(self) -> None:
        """Send what was taken, without waiting for the client."""
        self.writer.write_soon()

    async def flush(self) -> None:
        """Send what was taken, and wait until the client has room for more."""
        if self.disconnected:
            return
        self.writer.write_soon()
        if self.write_paused and not (self.response_complete or self.connection.transport.is_closing()):
            await self.connection.flow.drain()

    def end(self) -> None:
        """Send the end of the response. Raises RuntimeError for less than was announced."""
        if self._left:
            raise RuntimeError("Response content shorter than Content-Length")
        if self._chunked:
            self.writer.add(b"0\r\n\r\n")
        self.response_complete = True
        self.writer.write()
        self._wake()

    def cut(self) -> None:
        """Close the connection: the client must not take half a response for a whole one."""
        self.writer.write()
        self.connection.transport.close()

    def done(self) -> None:
        """Let the connection go on, once the response is complete or will not be."""
        self.writer.drop()
        if not (self.keep_alive and self.response_complete):
            self.connection.transport.close()
        self.connection.answered(self)


class Refusal(Request):
    """What takes the place of a request that cannot be read: one answer, and the end of the connection."""

    def __init__(self, connection: ServerProtocol, answer: bytes) -> None:
        self.connection, self._answer, self.body = connection, answer, bytearray()
        self.keep_alive = self.more_body = self.response_started = False

    def start(self) -> None:
        """Send the answer."""
        self.connection.transport.write(self._answer)
        self.connection.transport.close()

    def gone(self) -> None:
        """Do nothing."""


class AsgiRequest(Request):
    """A request that an ASGI app answers, in a task."""

    def __init__(self, connection: ServerProtocol, method: bytes, headers: Headers, scope: dict[str, Any]) -> None:
        super().__init__(connection, method, headers)
        self._scope = scope

    def start(self) -> None:
        """Start the app."""
        tasks = self.connection.server_state.tasks
        task = spawn(self._run(), name="request")
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def body_arrived(self, data: bytes) -> None:
        """Take bytes of the body."""
        self.is_held = STREAMED not in self._scope
        super().body_arrived(data)

    async def _run(self) -> None:
        try:
            await self.connection.app(self._scope, self.receive_message, self.send_message)
        except BaseException:  # noqa: BLE001 - a cancel too: the client must get an answer, or the end of the connection
            _log.exception("Exception in ASGI application")
            await self._give_up()
        else:
            if not (self.response_complete or self.disconnected):
                _log.error("ASGI callable returned without completing response.")
                await self._give_up()

    async def _give_up(self) -> None:
        if self.response_started:
            self.connection.transport.close()
            return
        length = (b"content-length", b"%d" % len(_FAILED))
        self.begin(500, [(b"content-type", b"text/plain; charset=utf-8"), length, (b"connection", b"close")])
        self.write(_FAILED)
        self.end()
        self.done()

    async def receive_message(self) -> dict[str, Any]:
        """Do what ASGI calls `receive`."""
        if (received := await self.receive()) is None:
            return {"type": "http.disconnect"}
        body, more = received
        return {"type": "http.request", "body": body, "more_body": more}

    async def send_message(self, message: Any) -> None:
        """Do what ASGI calls `send`."""
        if self.write_paused and not self.disconnected:
            await self.connection.flow.drain()
        if self.disconnected:
            return
        expected = "http.response.body" if self.response_started else "http.response.start"
        if message["type"] != expected or self.response_complete:
            raise RuntimeError(f"Unexpected ASGI message '{message['type']}'.")
        if not self.response_started:
            headers = list(message.get("headers", ()))
            if any(_BAD_NAME.search(name) or _BAD_VALUE.search(value) for name, value in headers):
                raise RuntimeError("Invalid HTTP header.")
            self.begin(message["status"], headers)
            self.write_soon()
            return
        self.write(message.get("body", b""))
        if message.get("more_body", False):
            self.write_soon()
        else:
            self.end()
            self.done()
