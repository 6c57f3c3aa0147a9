"""One HTTP/1.1 connection to an upstream: bytes in and out, parsed by llhttp (httptools)."""

from __future__ import annotations

import asyncio
import fcntl
import select
import socket
import sys
import termios
from collections.abc import AsyncIterator, Callable
from typing import Any

import httptools

from gateway.upstreams import HIGHEST_STATUS, UpstreamError, UpstreamErrorKind, UpstreamRequest, bad_status
from gateway.upstreams.response import NativeResponse, Receiver, StaleError
from gaugeway.exchange import Headers

MAX_HEAD_BYTES = 256 * 1024
_ONE_WRITE_BYTES = 64 * 1024
_CONTENT_LENGTH = b"content-length"
_TRANSFER_ENCODING = b"transfer-encoding"
GONE_AFTER_S = 30
"""How long the upstream's machine may leave data or keep-alive probes unacknowledged."""
_LIVENESS = [
    (level, getattr(socket, name), value)
    for level, name, value in (
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", GONE_AFTER_S // 2),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", GONE_AFTER_S // 6),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", GONE_AFTER_S * 1000),
    )
    if hasattr(socket, name)  # not every system has all of them
]
_LOWEST_STATUS, _FIRST_FINAL, _FIRST_REFUSAL = 100, 200, 300


class Connection(asyncio.Protocol):
    """Carries one exchange at a time. `released` is called when it is idle again, `lost` when it is closed.

    Trailers and interim (1xx) responses are dropped; a response that violates HTTP/1.1 closes the connection. So do
    unsolicited bytes: they could be mistaken for the response to the next request.
    """

    def __init__(self, released: Callable[[Connection], None], lost: Callable[[Connection], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._released = released
        self._lost = lost
        self._transport: Any = None
        self._parser: Any = httptools.HttpResponseParser(self)
        self._response: Receiver | None = None
        self._writable: asyncio.Future[None] | None = None
        self._unwanted: asyncio.Future[None] | None = None
        self._poll: select.poll | None = None
        self._fileno = -1
        self._headers: Headers = []
        self._head_bytes = 0
        self._barren_bytes = 0
        self._in_body = False
        self._keep_alive = False
        self._until_eof = False
        self._finished = False
        self._eof = False
        self._unread = False
        self._written_bytes = 0
        self._bodiless = False
        self._request_sent = True
        self.opened_at = self._loop.time()
        self.idle_since = self.opened_at

    @property
    def usable(self) -> bool:
        """Whether it is open and idle."""
        return self._transport is not None and not self._transport.is_closing() and self._response is None

    @property
    def quiet(self) -> bool:
        """Whether nothing waits to be read: the end, or unsolicited bytes, that the loop has not seen yet."""
        return self._poll is None or not self._poll.poll(0)

    async def exchange(self, request: UpstreamRequest, timeout_s: float, idle_timeout_s: float) -> NativeResponse:
        """Send a request and wait for the response's head.

        `timeout_s` bounds the wait for the head, `idle_timeout_s` each wait for more of the body. Raises UpstreamError,
        and StaleError when the other side closed without a byte. Whatever ends this early closes the connection.
        """
        response = NativeResponse(self, idle_timeout_s)
        head = response.head
        self._begin(request.method, response)
        try:
            await self._write(request, idle_timeout_s)
            timer = self._loop.call_later(timeout_s, self._head_is_late, head)
            try:
                await head
            finally:
                timer.cancel()
        except BaseException:  # a cancel too: whatever ends the wait, half an exchange must not stay behind
            if self._response is response:  # otherwise the connection may be carrying another exchange by now
                self._response = None
                self.abort()
            if head.done() and not head.cancelled():
                head.exception()  # seen: when both sides fail at once, the one raised here is reported
            raise
        return response

    def start(self, request: UpstreamRequest, receiver: Receiver) -> None:
        """Send a request with a complete body; `receiver` takes the response, and watches the time.

        Raises StaleError when the connection is not usable any more, UpstreamError when the headers misframe the body.
        """
        if not isinstance(body := request.body, bytes):
            raise TypeError("a streamed body needs `exchange`")
        if (length := _announced_length(request)) not in (None, len(body)):
            raise _misframed()
        self._begin(request.method, receiver)
        self._write_whole(_head_lines(request), body, length)

    def deliver_to(self, receiver: Receiver) -> None:
        """Let `receiver` take the rest of the response under way."""
        if self._response is not None:
            self._response = receiver

    def _begin(self, method: str, receiver: Receiver) -> None:
        if not self.usable:
            raise StaleError(unread=True)
        self._headers, self._head_bytes, self._barren_bytes, self._written_bytes = [], 0, 0, 0
        self._in_body = self._keep_alive = self._until_eof = False
        self._bodiless = method == "HEAD"
        self._response = receiver

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def resume(self) -> None:
        """Resume reading, after a pause for back-pressure."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    async def _write(self, request: UpstreamRequest, timeout_s: float) -> None:
        body = request.body
        length = _announced_length(request)
        if length == -1 or (isinstance(body, bytes) and length not in (None, len(body))):
            raise _misframed()
        if isinstance(body, bytes):
            self._write_whole(_head_lines(request), body, length)
        else:
            self._transport.write(b"".join(_head_lines(request)))
            await self._write_stream(body, length, timeout_s)

    def _write_whole(self, lines: list[bytes], body: bytes, length: int | None) -> None:
        if length is None:
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
        if len(body) <= _ONE_WRITE_BYTES:
            lines.append(body)
            body = b""
        head = b"".join(lines)
        self._written_bytes = len(head) + len(body)
        self._transport.write(head)
        if body:
            self._transport.write(body)

    async def _write_stream(self, body: AsyncIterator[bytes], length: int | None, timeout_s: float) -> None:
        """Send a body as it arrives, as fast as the upstream takes it; `length` None for chunks.

        Stops when the upstream refuses or is gone; if it begins to answer with success it still gets the rest.
        """
        self._request_sent = False
        unwanted = self._unwanted = self._loop.create_future()
        sent = 0
        try:
            while (chunk := await _next(body, unwanted)) is not None and not unwanted.done():
                if not chunk:
                    continue  # as a chunk it would end the body
                sent += len(chunk)
                if length is not None and sent > length:
                    raise _misframed()
                self._transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if length is None else chunk)
                if (full := self._writable) is not None:
                    either = (full, unwanted)
                    if not (await asyncio.wait(either, timeout=timeout_s, return_when="FIRST_COMPLETED"))[0]:
                        raise UpstreamError("timeout", "the upstream did not read the request body in time")
            if unwanted.done():
                return
            if length is None:
                self._transport.write(b"0\r\n\r\n")
            elif sent != length:
                raise _misframed()
            self._request_sent = True
        finally:
            self._unwanted = None

    def _stop_sending(self) -> None:
        if self._unwanted is not None and not self._unwanted.done():
            self._unwanted.set_result(None)

    def _head_is_late(self, head: asyncio.Future[None]) -> None:
        if not head.done():
            self._fail("the upstream did not respond in time", "timeout")

    def _fail(self, detail: str, kind: UpstreamErrorKind = "protocol") -> None:
        """End the exchange under way with an error, and the connection."""
        response, self._response = self._response, None
        if response is not None:
            response.fail(UpstreamError(kind, detail))
        self._stop_sending()
        self.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        if (raw := transport.get_extra_info("socket")) is not None:
            self._fileno = raw.fileno()
            self._poll = select.poll()
            self._poll.register(self._fileno, select.POLLIN)
            if raw.family in (socket.AF_INET, socket.AF_INET6):
                for option in _LIVENESS:
                    raw.setsockopt(*option)

    def data_received(self, data: bytes) -> None:
        if (response := self._response) is None:
            self.abort()
            return
        self._barren_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"the upstream sent an invalid HTTP response ({error})")
        except httptools.HttpParserUpgrade:
            self._fail("the upstream switched protocols without being asked to")
        if self._barren_bytes > MAX_HEAD_BYTES:  # an endless header, trailer or chunk extension
            self._fail(f"the upstream's headers are larger than {MAX_HEAD_BYTES} bytes")
        response.arrived()
        if self._finished:  # and all bytes that came with the end of the message were looked at
            self._release()

    def eof_received(self) -> None:
        self._eof = True
        self._unread = self._nothing_acknowledged()
        self.abort()  # there will be no answer to what is still unsent

    def connection_lost(self, error: Exception | None) -> None:
        response, self._response = self._response, None
        if response is not None:
            if not self._in_body:
                cut = UpstreamError("protocol", "the upstream closed the connection while sending response headers")
                response.fail(cut if self._barren_bytes else StaleError(unread=self._unread))
            elif self._until_eof and self._eof and error is None:
                response.complete()
            else:
                response.fail(
                    UpstreamError("protocol", "the upstream closed the connection while sending the response body")
                )
        self._stop_sending()
        self.resume_writing()
        self._lost(self)

    def _nothing_acknowledged(self) -> bool:
        """Whether the end of the connection was sent before any byte of the request had arrived over there.

        A FIN acknowledges all that its sender has received. If the whole request is still unacknowledged behind it,
        the upstream closed first (TLS only adds bytes). A reset proves nothing: it is not taken for an acknowledgement.
        """
        if not self._written_bytes or self._fileno < 0 or not sys.platform.startswith("linux"):
            return False
        waiting = int.from_bytes(fcntl.ioctl(self._fileno, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
        return waiting + int(self._transport.get_write_buffer_size()) >= self._written_bytes

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    # httptools

    def on_message_begin(self) -> None:
        self._keep_alive = False  # known at the end of the head; a second response that nobody asked for ends it

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_body:
            return  # a trailer
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > MAX_HEAD_BYTES:
            self._fail(f"the upstream's headers are larger than {MAX_HEAD_BYTES} bytes")
            return
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if (response := self._response) is None or self._in_body:
            return
        if not _LOWEST_STATUS <= (status := self._parser.get_status_code()) <= HIGHEST_STATUS:
            self._fail(bad_status(status))
            return
        if status < _FIRST_FINAL:
            self._headers = []
            return
        sized = chunked = False
        for name, value in self._headers:
            if len(name) == len(_CONTENT_LENGTH) and name.lower() == _CONTENT_LENGTH:
                sized = True
            elif len(name) == len(_TRANSFER_ENCODING) and name.lower() == _TRANSFER_ENCODING:
                if chunked or value.strip().lower() != b"chunked":
                    self._fail("the upstream's transfer encoding is not known")
                    return
                chunked = True
        self._in_body = True
        self._barren_bytes = 0
        self._keep_alive = self._parser.should_keep_alive()
        self._until_eof = not (sized or chunked)
        response.begin(status, self._headers)
        if status >= _FIRST_REFUSAL:
            self._stop_sending()
        if self._bodiless:
            self._finish(response)

    def on_body(self, data: bytes) -> None:
        if (response := self._response) is None or not self._in_body:
            self._keep_alive = False
            return
        self._barren_bytes = 0
        if response.feed(data) and not self._transport.is_closing():
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        if self._in_body and self._response is not None:
            self._finish(self._response)

    def _finish(self, response: Receiver) -> None:
        self._response = None
        response.complete()
        self._finished = True

    def _release(self) -> None:
        """Go back to the pool, unless a part of this exchange is still unsent or unread."""
        self._finished = False
        sent = self._request_sent and not self._transport.get_write_buffer_size()
        if not (sent and self._keep_alive and self.usable):
            self._stop_sending()
            self.abort()
            return
        if self._bodiless:  # the parser waits for the body that a HEAD does not have
            self._parser = httptools.HttpResponseParser(self)
        self.idle_since = self._loop.time()
        self._transport.resume_reading()
        self._released(self)


async def _next(body: AsyncIterator[bytes], unwanted: asyncio.Future[None]) -> bytes | None:
    """Return the body's next bytes; None at its end, or as soon as it is unwanted."""
    chunk = asyncio.ensure_future(anext(body, None))
    try:
        await asyncio.wait((chunk, unwanted), return_when="FIRST_COMPLETED")
    finally:
        if not chunk.done():
            chunk.cancel()
            await asyncio.wait((chunk,))  # a generator that still runs could not be closed
    return None if chunk.cancelled() else chunk.result()


def _misframed() -> UpstreamError:
    return UpstreamError("protocol", "the request's body does not have the length that its headers announce")


def _head_lines(request: UpstreamRequest) -> list[bytes]:
    lines = [b"%b %b HTTP/1.1\r\n" % (request.method.encode("ascii"), request.target)]
    lines += [b"%b: %b\r\n" % header for header in request.headers]
    lines.append(b"\r\n")
    return lines


def _announced_length(request: UpstreamRequest) -> int | None:
    """Return the body's length as the headers (names in lower case) announce it; None for chunks, -1 for nonsense."""
    announced = b"0"
    for name, value in request.headers:
        if name == _CONTENT_LENGTH:
            announced = value
        elif name == _TRANSFER_ENCODING:
            return None
    return int(announced) if announced.isdigit() else -1
