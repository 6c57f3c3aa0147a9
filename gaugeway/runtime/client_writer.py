"""Writes a response to its client: each piece as it arrives, or several together when they arrive very fast."""

from __future__ import annotations

import asyncio
from time import perf_counter

HOLD_S = 0.001
"""How long bytes of a fast response wait for more of it.

Without this an upstream that sends a token every 0.1 ms costs a system call and a wake-up of the client for each of
them. Models take longer for a token, so their tokens are written as they arrive.
"""
HOLD_AFTER = 4
"""A response is fast after this many writes in a row that came within `HOLD_S` of the one before."""
HOLD_BYTES = 16_384


class ClientWriter:
    """Collects the parts of a response and writes them, in few pieces, to the client's connection."""

    __slots__ = ("_bytes", "_fast", "_loop", "_parts", "_timer", "_transport", "_written_at")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._written_at = 0.0
        self._fast = 0

    def add(self, *parts: bytes) -> None:
        """Take parts of the response, to be written with the next `write_soon` or `write`."""
        self._parts += parts
        self._bytes += sum(map(len, parts))

    def write_soon(self) -> None:
        """Write what was added: now, or within `HOLD_S` if the response is fast and less than `HOLD_BYTES` wait."""
        if self._timer is not None:
            if self._bytes >= HOLD_BYTES:
                self.write()
            return
        if perf_counter() - self._written_at >= HOLD_S:
            self._fast = 0
        elif self._fast < HOLD_AFTER:
            self._fast += 1
        elif self._bytes < HOLD_BYTES:
            self._timer = self._loop.call_later(HOLD_S, self.write)
            return
        self.write()

    def write(self) -> None:
        """Write what was added now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._parts:
            parts, self._parts, self._bytes = self._parts, [], 0
            self._transport.write(b"".join(parts))
            self._written_at = perf_counter()

    def drop(self) -> None:
        """Forget what was added: the exchange is over."""
        self._parts, self._bytes = [], 0
        self.write()
