"""A TCP proxy that breaks: it stalls, refuses, resets, or forgets connections without a word."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from typing import Literal, Self, TypeAlias

Mode: TypeAlias = Literal["pass", "stall", "refuse"]
"""`stall`: connections open and not a byte moves; `refuse`: those there are reset, new ones are not taken."""
_AT_ONCE = 65536
_LEAVE_S = 2.0
_RST_AT_CLOSE = struct.pack("ii", 1, 0)


class _Line:
    """One connection through the proxy, both ways."""

    def __init__(self, *ends: asyncio.StreamWriter) -> None:
        self.ends = ends
        self.forgotten = False

    def reset(self) -> None:
        """End it as a machine does that knows nothing of it."""
        for end in self.ends:
            with contextlib.suppress(OSError):
                end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST_AT_CLOSE)
            end.transport.abort()


class Wire:
    """A way to `host`:`port` that starts at the loopback `port` of this object. Runs in a thread of its own."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._lines: set[_Line] = set()
        self._open = asyncio.Event()
        self._ended = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listening = threading.Event()
        self.port = 0
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._listening.wait(10):
            raise OSError("the proxy does not start")
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._refuse())
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(5)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._listen()
        self._open.set()
        self._listening.set()
        await self._ended.wait()
        self._open.set()  # who waits for it finds its connection reset, and goes
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_S):
                while self._lines:  # noqa: ASYNC110 - they have no event
                    await asyncio.sleep(0.01)

    def set(self, mode: Mode) -> None:
        """Change what happens to connections, those there are and those to come."""
        self._do(self._become(mode))

    def forget(self) -> int:
        """Let every connection there is hang for ever; return how many. New ones pass."""
        return self._do(self._forget())

    def _do(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _become(self, mode: Mode) -> None:
        if mode == "refuse":
            await self._refuse()
            return
        if mode == "pass":
            self._open.set()
        else:
            self._open.clear()
        if self._server is None:
            await self._listen()

    async def _forget(self) -> int:
        for line in self._lines:
            line.forgotten = True
        return len(self._lines)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._take, "127.0.0.1", self.port, reuse_address=True)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for line in list(self._lines):
            line.reset()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = _Line(writer)
        self._lines.add(line)
        try:
            await self._open.wait()
            onward, out = await asyncio.open_connection(*self._target)
            line.ends = writer, out
            await asyncio.gather(self._move(line, reader, out), self._move(line, onward, writer))
        except OSError:
            line.reset()
        finally:
            self._lines.discard(line)
            for end in line.ends:
                end.close()

    async def _move(self, line: _Line, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_AT_ONCE):
                await self._open.wait()
                if line.forgotten:
                    continue
                writer.write(data)
                await writer.drain()
        if not line.forgotten:
            with contextlib.suppress(OSError, RuntimeError):
                writer.write_eof()
