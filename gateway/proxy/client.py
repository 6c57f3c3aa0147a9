"""The client's side of an exchange: a port, and its implementation over ASGI.

The server's own requests (`gateway.proxy.server`) are the other implementation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

from gaugeway.exchange import Headers
from gaugeway.runtime.http_request import STREAMED
from gaugeway.runtime.tasks import spawn

if TYPE_CHECKING:
    from litestar.types import HTTPScope, Receive, Send

WATCH_AFTER_S = 0.02


class ClientDisconnected(Exception):
    """The client hung up."""


class TookTooLong(Exception):
    """`gateway.total_timeout_s` ran out."""


class Client(Protocol):
    """Who sent a request, and gets the response: `begin`, any number of `write` and `end`, which `flush` sends."""

    async def receive(self) -> tuple[bytes, bool] | None:
        """Wait for more of the body: what has arrived, and whether more may follow; None when the client has left."""

    def pass_on(self) -> None:
        """Let the body be passed on as it comes: it does not count as held in memory."""

    def watch(self, gone: Callable[[], None]) -> None:
        """Call `gone` when the client leaves from now on."""

    def begin(self, status: int, headers: Headers) -> None:
        """Take the head of the response."""

    def write(self, data: bytes) -> None:
        """Take bytes of the response's body."""

    def end(self) -> None:
        """The response is whole."""

    def cut(self) -> None:
        """The rest of the response will not come."""

    async def flush(self) -> None:
        """Send what was taken, and wait until the client has room for more."""

    def done(self) -> None:
        """The exchange is over."""


class AsgiClient:
    """A client behind an ASGI server. Only what `flush` sends reaches it; the server closes what is cut."""

    def __init__(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._body_read = asyncio.Event()
        self._start: Any = None
        self._pieces: list[bytes] = []
        self._ended = False
        self._timer: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None

    async def receive(self) -> tuple[bytes, bool] | None:
        message: Any = await self._receive()
        if message["type"] != "http.request":
            return None
        if not (more := message.get("more_body", False)):
            self._body_read.set()
        return message.get("body", b""), more

    def pass_on(self) -> None:
        cast("dict[str, object]", self._scope)[STREAMED] = True

    def watch(self, gone: Callable[[], None]) -> None:
        """Watching costs a task, so it begins only when the upstream has not answered within 20 ms."""
        self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, self._start_watching, gone)

    def _start_watching(self, gone: Callable[[], None]) -> None:
        self._watcher = spawn(self._watch(gone), name="hang-up watcher")

    async def _watch(self, gone: Callable[[], None]) -> None:
        await self._body_read.wait()  # only one may call `receive` at a time
        while await self.receive() is not None:
            pass
        gone()

    def begin(self, status: int, headers: Headers) -> None:
        self._start = {"type": "http.response.start", "status": status, "headers": headers}

    def write(self, data: bytes) -> None:
        self._pieces.append(data)

    def end(self) -> None:
        self._ended = True

    def cut(self) -> None:
        """Do nothing: the server closes a connection whose app returns without the end of its response."""

    async def flush(self) -> None:
        if self._start is not None:
            start, self._start = self._start, None
            await self._send(start)
        if self._pieces or self._ended:
            body, self._pieces = b"".join(self._pieces), []
            ended, self._ended = self._ended, False
            await self._send({"type": "http.response.body", "body": body, "more_body": not ended})

    def done(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
