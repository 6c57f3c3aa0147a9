"""The client's side of a request: reading its body, noticing that it hung up, and the time limits."""

from __future__ import annotations

import asyncio
import time
from asyncio import CancelledError, Event, Task, TimerHandle, current_task
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from gateway.http.errors import too_large
from gaugeway.runtime.tasks import spawn

if TYPE_CHECKING:
    from litestar.types import Receive

WATCH_AFTER_S = 0.02
Reason: TypeAlias = Literal["client", "total"]


class ClientDisconnected(Exception):
    """The client hung up."""


class TookTooLong(Exception):
    """`gateway.total_timeout_s` ran out."""


class Client:
    """Reads the request's body and, afterwards, notices when the client hangs up."""

    def __init__(self, receive: Receive, max_body_bytes: int) -> None:
        self._receive = receive
        self._max_body_bytes = max_body_bytes
        self._body_read = Event()
        self._read_at: float | None = None
        self.received = 0

    async def chunks(self, first: Any = None) -> AsyncIterator[bytes]:
        """Yield the body as it arrives, starting with the message `first` if one was received already.

        Raises Rejection when the body is too large, ClientDisconnected when it breaks off.
        """
        size = 0
        more = True
        while more:
            message: Any = first or await self._receive()
            first = None
            if message["type"] != "http.request":
                raise ClientDisconnected
            more = message.get("more_body", False)
            if chunk := message.get("body", b""):
                size += len(chunk)
                self.received = size
                if size > self._max_body_bytes:
                    raise too_large(self._max_body_bytes)
                yield chunk
        self._complete()

    def _complete(self) -> None:
        self._read_at = time.perf_counter()
        self._body_read.set()

    async def read(self) -> bytes:
        """Return the whole body. Raises as `chunks` does."""
        message: Any = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            body: bytes = message.get("body", b"")
            if len(body) > self._max_body_bytes:
                raise too_large(self._max_body_bytes)
            self._complete()
            return body
        return b"".join([chunk async for chunk in self.chunks(message)])

    def body_complete_at(self, default: float) -> float:
        """Return when the body was complete (`perf_counter`), or `default` while it is still being read."""
        return self._read_at or default

    async def hang_up(self) -> None:
        """Return when the client has gone. Waits for the body first: only one may call `receive` at a time."""
        await self._body_read.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass


class Guard:
    """Cancels the block it guards when the client hangs up or the total time limit runs out.

    The block then ends with ClientDisconnected or TookTooLong. Watching costs a task, so it begins only when the
    upstream has not answered within 20 ms; `total_s` is in seconds, None for no limit.
    """

    def __init__(self, client: Client, *, total_s: float | None) -> None:
        self._client = client
        self._total_s = total_s
        self._timers: dict[Reason, TimerHandle] = {}
        self._guarded: Task[object] | None = None
        self._watcher: Task[None] | None = None
        self._reason: Reason | None = None
        self._delivered = False

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._guarded = current_task()
        self._timers["client"] = loop.call_later(WATCH_AFTER_S, self._start_watching)
        if self._total_s is not None:
            self._timers["total"] = loop.call_later(self._total_s, self._cancel, "total")
        return self

    def delivered(self) -> None:
        """Count the response as delivered, even if the client hangs up from now on."""
        self._delivered = True

    def _start_watching(self) -> None:
        self._watcher = spawn(self._watch(), name="hang-up watcher")

    async def _watch(self) -> None:
        await self._client.hang_up()
        self._cancel("client")

    def _cancel(self, reason: Reason) -> None:
        if not self._delivered and self._reason is None and self._guarded is not None:
            self._reason = reason
            self._guarded.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for timer in self._timers.values():
            timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        guarded, self._guarded = self._guarded, None
        if self._reason is None or guarded is None or guarded.uncancel() > 0 or kind is not CancelledError:
            return
        raise ClientDisconnected if self._reason == "client" else TookTooLong from error
