"""The receiving end of an upstream connection: what a response is delivered to as it arrives."""

from __future__ import annotations

import asyncio
from typing import Protocol

from gateway.upstreams import UpstreamError
from gaugeway.exchange import Headers

HIGH_WATER_BYTES = 256 * 1024


class StaleError(Exception):
    """The connection ended before anything of the response arrived.

    `unread`: the upstream closed it before it had received a byte of the request. Otherwise it may have processed it.
    """

    def __init__(self, *, unread: bool = False) -> None:
        super().__init__()
        self.unread = unread


class Receiver(Protocol):
    """Receives one response, in calls from the event loop: its head, its bytes, then `complete` or `fail`."""

    def begin(self, status: int, headers: Headers) -> None:
        """The head is there."""

    def feed(self, data: bytes) -> bool:
        """Take in bytes of the body; True when the upstream should pause."""

    def arrived(self) -> None:
        """All that came together was fed."""

    def complete(self) -> None:
        """The body is whole."""

    def fail(self, error: UpstreamError | StaleError) -> None:
        """The rest will not come."""


class Source(Protocol):
    """The connection a response comes from."""

    def resume(self) -> None:
        """Read on."""

    def abort(self) -> None:
        """Close at once."""


class NativeResponse:
    """A response to await: `head` is done when its head has arrived. Bytes that arrive together are read together."""

    def __init__(self, connection: Source, idle_timeout_s: float) -> None:
        self.status = 0
        self.headers: Headers = []
        self.head: asyncio.Future[None] = asyncio.get_running_loop().create_future()
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
        """Release the response; before its end the connection is closed."""
        if not self._ended:
            self._connection.abort()

    def begin(self, status: int, headers: Headers) -> None:
        """The head is there."""
        self.status = status
        self.headers = headers
        if not self.head.done():
            self.head.set_result(None)

    def feed(self, data: bytes) -> bool:
        """Buffer bytes; True when so many are unread that the upstream should pause."""
        self._chunks.append(data)
        self._size += len(data)
        self._wake()
        if self._size > HIGH_WATER_BYTES and not self._paused:
            self._paused = True
            return True
        return False

    def complete(self) -> None:
        """The body is whole."""
        if self._error is None:
            self._ended = True
            self._paused = False  # the connection is not ours any more: emptying the buffer must not resume it
            self._wake()

    def arrived(self) -> None:
        """Do nothing: `feed` woke the reader."""

    def fail(self, error: UpstreamError | StaleError) -> None:
        """End the response early; what has arrived of the body is still delivered."""
        if not self.head.done():
            self.head.set_exception(error)
        elif not self._ended and self._error is None and isinstance(error, UpstreamError):
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
        if self._waiter is None or self._waiter.done():
            return  # in time after all
        self.fail(UpstreamError("timeout", "the upstream paused for too long in the middle of its response"))
        self._connection.abort()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
