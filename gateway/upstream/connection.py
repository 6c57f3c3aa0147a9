"""One HTTP/1.1 connection to an upstream: bytes in and out, parsed by llhttp (httptools)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httptools

from gateway.exchange import Headers
from gateway.upstream import UpstreamError, UpstreamRequest

MAX_HEAD_BYTES = 256 * 1024
HIGH_WATER_BYTES = 256 * 1024
_ONE_WRITE_BYTES = 64 * 1024
_EARLIEST_FINAL = 200


class StaleError(Exception):
    """The connection ended before anything of the response arrived: it was closed while it lay idle."""


class Connection(asyncio.Protocol):
    """Carries one exchange at a time. `released` is called when it could carry another, `lost` when it is gone.

    Trailers and interim (1xx) responses are dropped; a response that breaks the rules of HTTP/1.1 ends the connection.
    """

    def __init__(self, released: Callable[[Connection], None], lost: Callable[[Connection], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._released = released
        self._lost = lost
        self._transport: Any = None
        self._parser: Any = httptools.HttpResponseParser(self)
        self._response: NativeResponse | None = None
        self._head: asyncio.Future[NativeResponse] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._headers: Headers = []
        self._head_bytes = 0
        self._in_body = False
        self._interim = False
        self._keep_alive = False
        self._until_eof = False
        self._bodiless = False
        self._request_sent = True
        self.opened_at = self._loop.time()
        self.idle_since = self.opened_at

    @property
    def usable(self) -> bool:
        """Whether it is open and carries nothing."""
        return self._transport is not None and not self._transport.is_closing() and self._response is None

    async def exchange(self, request: UpstreamRequest, timeout_s: float, idle_timeout_s: float) -> NativeResponse:
        """Send a request and wait for the response's head.

        `timeout_s` bounds the wait for the head, `idle_timeout_s` each wait for more of the body. Raises UpstreamError,
        and StaleError when the other side closed without a word. Whatever ends this early closes the connection.
        """
        self._headers, self._head_bytes, self._in_body = [], 0, False
        self._bodiless = request.method == "HEAD"
        self._response = NativeResponse(self, idle_timeout_s)
        head = self._head = self._loop.create_future()
        try:
            await self._write(request, head, idle_timeout_s)
            timer = self._loop.call_later(timeout_s, self._head_is_late)
            try:
                response: NativeResponse = await head
            finally:
                timer.cancel()
        except BaseException:
            self.abort()
            if head.done() and not head.cancelled():
                head.exception()  # seen: when both sides fail at once, the one raised here is the one told
            raise
        finally:
            self._head = None
        return response

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def resume(self) -> None:
        """Read on, after the response's buffer was emptied."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    async def _write(self, request: UpstreamRequest, head: asyncio.Future[NativeResponse], timeout_s: float) -> None:
        lines = [b"%b %b HTTP/1.1\r\n" % (request.method.encode("ascii"), request.target)]
        lines += [b"%b: %b\r\n" % header for header in request.headers]
        lines.append(b"\r\n")
        if isinstance(request.body, bytes):
            if len(request.body) <= _ONE_WRITE_BYTES:
                lines.append(request.body)
                self._transport.write(b"".join(lines))
            else:
                self._transport.write(b"".join(lines))
                self._transport.write(request.body)
            return
        self._transport.write(b"".join(lines))
        self._request_sent = False
        chunked = any(name == b"transfer-encoding" for name, _ in request.headers)
        async for chunk in request.body:
            if head.done():  # the upstream has answered already, or is gone: it does not want the rest
                return
            self._transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if chunked else chunk)
            if self._writable is not None:
                either: set[asyncio.Future[Any]] = {self._writable, head}
                done, _ = await asyncio.wait(either, timeout=timeout_s, return_when="FIRST_COMPLETED")
                if not done:
                    raise UpstreamError("timeout", "the upstream did not take the request's body in time")
        if chunked:
            self._transport.write(b"0\r\n\r\n")
        self._request_sent = True

    def _head_is_late(self) -> None:
        self._fail(UpstreamError("timeout", "the upstream did not answer in time"))

    def _fail(self, error: Exception) -> None:
        """End the exchange under way with `error`."""
        if self._head is not None and not self._head.done():
            self._head.set_exception(error)
        elif self._response is not None and isinstance(error, UpstreamError):
            self._response.fail(error)
        self.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._response is None:  # nobody asked: what comes now could be taken for the answer to the next request
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._keep_alive = False
            if self._response is not None:
                self._fail(UpstreamError("protocol", f"the upstream broke HTTP/1.1 ({type(error).__name__})"))
            else:
                self.abort()
        except httptools.HttpParserUpgrade:
            self._fail(UpstreamError("protocol", "the upstream switched protocols unasked"))

    def eof_received(self) -> None:
        self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        response = self._response
        if response is not None:
            if self._head is not None and not self._head.done():
                untouched = not self._head_bytes
                lost = StaleError() if untouched else UpstreamError("protocol", "the upstream closed in the middle")
                self._head.set_exception(lost)
            elif self._in_body and self._until_eof and error is None:
                response.complete()
            else:
                response.fail(UpstreamError("protocol", "the upstream closed in the middle of its response"))
        if self._writable is not None:
            self.resume_writing()
        self._response = None
        self._lost(self)

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    # httptools

    def on_message_begin(self) -> None:
        self._head_bytes += 1
        if self._response is None:  # a second response that nobody asked for
            self._keep_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_body:
            return  # a trailer
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > MAX_HEAD_BYTES:
            self._fail(UpstreamError("protocol", f"the upstream's headers are larger than {MAX_HEAD_BYTES} bytes"))
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self._interim = status < _EARLIEST_FINAL
        response, head = self._response, self._head
        if self._interim:
            self._headers = []
            return
        if response is None or head is None or head.done():
            return
        self._in_body = True
        self._keep_alive = self._parser.should_keep_alive()
        names = {name.lower() for name, _ in self._headers}
        self._until_eof = not names & {b"content-length", b"transfer-encoding"}
        response.status = status
        response.headers = self._headers
        head.set_result(response)
        if self._bodiless:
            # The parser cannot know that no body follows; so the connection ends here too.
            self._keep_alive = False
            self._finish(response)

    def on_body(self, data: bytes) -> None:
        if self._response is not None and self._response.feed(data) and not self._transport.is_closing():
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        if self._interim or self._response is None:
            return
        self._finish(self._response)

    def _finish(self, response: NativeResponse) -> None:
        self._response = None
        response.complete()
        if not (self._keep_alive and self._request_sent) or self._transport.is_closing():
            self._transport.close()
            return
        # Called from inside the parser: bytes behind this message would follow at once, so the release waits for them.
        self._loop.call_soon(self._release)

    def _release(self) -> None:
        if self.usable and self._keep_alive:
            self.idle_since = self._loop.time()
            self._transport.resume_reading()
            self._released(self)


class NativeResponse:
    """A response as it arrives. Bytes that came together are returned together."""

    def __init__(self, connection: Connection, idle_timeout_s: float) -> None:
        self.status = 0
        self.headers: Headers = []
        self._connection = connection
        self._idle_timeout_s = idle_timeout_s
        self._chunks: list[bytes] = []
        self._size = 0
        self._paused = False
        self._ended = False
        self._error: UpstreamError | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def read(self) -> tuple[bytes, bool]:
        """Return what has arrived, and whether more may follow. Raises UpstreamError."""
        while not (self._chunks or self._ended):
            if self._error is not None:
                raise self._error
            await self._wait()
        chunks, self._chunks, self._size = self._chunks, [], 0
        if self._paused:
            self._paused = False
            self._connection.resume()
        return chunks[0] if len(chunks) == 1 else b"".join(chunks), not self._ended

    async def aclose(self) -> None:
        """Let go; before the end the connection is closed."""
        if not self._ended:
            self._connection.abort()

    def feed(self, data: bytes) -> bool:
        """Take in bytes; True when so much waits that the upstream should pause."""
        self._chunks.append(data)
        self._size += len(data)
        self._wake()
        if self._size > HIGH_WATER_BYTES and not self._paused:
            self._paused = True
            return True
        return False

    def complete(self) -> None:
        """The body is whole."""
        self._ended = True
        self._wake()

    def fail(self, error: UpstreamError) -> None:
        """The rest of the body will not come; what has come is still delivered."""
        if not self._ended and self._error is None:
            self._error = error
            self._wake()

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(self._idle_timeout_s, self._is_late)
        try:
            await self._waiter
        finally:
            self._waiter = None
            timer.cancel()

    def _is_late(self) -> None:
        self.fail(UpstreamError("timeout", "the upstream paused for too long in the middle of its response"))
        self._connection.abort()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
