"""Runs ASGI apps: several listeners in one process, with one graceful shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import uvicorn
from msgspec import Struct
from msgspec.structs import replace

from gaugeway.runtime import system
from gaugeway.runtime.http_bounds import roomy
from gaugeway.runtime.http_protocol import ServerProtocol
from gaugeway.runtime.logs import configure_logs
from gaugeway.settings.endpoints import BIND_EVERY_S, BIND_WAIT_S, cannot_listen

_log = logging.getLogger("gaugeway")
KEEP_ALIVE_S = 120
BACKLOG = 2048
"""How long an address may still be taken: by gateways whose supervisor was killed, until they notice."""
MAX_MESSAGE_BYTES = 64 * 1024 * 1024


class Listener(Struct, frozen=True):
    """An ASGI app and where it listens; `shared` lets several processes listen on the same port (SO_REUSEPORT).

    `closed` gets the reason when a connection is closed for lack of descriptors: idle or refused.
    """

    app: Any
    host: str
    port: int
    shared: bool = False
    protocol: type[ServerProtocol] = ServerProtocol
    closed: Callable[[str], None] = lambda _: None


class _Server(uvicorn.Server):
    """A uvicorn server that leaves the signals to `serve`. `cut` counts the requests that the deadline ended."""

    cut = 0

    def stop(self) -> None:
        """Stop accepting and finish the requests in progress."""
        self.should_exit = True

    @property
    def in_progress(self) -> int:
        """Requests that are not answered yet, and WebSockets."""
        connections: set[Any] = self.server_state.connections
        return sum(not (isinstance(known, ServerProtocol) and known.is_idle()) for known in connections)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish the requests in progress; at the deadline, cut them off."""
        await super().shutdown(sockets)
        self.cut = self.in_progress
        connections: set[Any] = self.server_state.connections
        for connection in list(connections):
            if isinstance(connection, ServerProtocol):
                connection.cut_off()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    listeners: Sequence[Listener],
    *,
    drain_s: float,
    delay_s: float = 0.0,
    on_stop: Callable[[], None] | None = None,
    supervised: bool = False,
    on_line: Callable[[str], None] = lambda _: None,
    on_listening: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGTERM or SIGINT; then stop accepting, and give requests in progress up to `drain_s` seconds.

    The first listener carries the traffic and stops first, `delay_s` after the signal; the others follow it, so that
    what they show can be read to the end.
    `on_stop` is called as soon as the signal arrives. With `supervised`, the end of standard input is a signal too: it
    means that the supervising process was killed. Then all listeners stop accepting at once, as its successor needs
    their addresses. `on_line` is called with each line of standard input,
    `on_listening` once all addresses are bound. Raises OSError when an address cannot be
    bound within `BIND_WAIT_S`.
    """
    sockets = [await _bind(listener) for listener in listeners]
    on_listening()
    first, other = system.shares(system.limit())
    servers = [
        _Server(_config(replace(listener, protocol=roomy(listener.protocol, share, listener.closed)), drain_s))
        for listener, share in zip(listeners, [first, *[other] * (len(listeners) - 1)], strict=True)
    ]
    log = _log.debug if supervised else _log.info  # a supervisor logs it once for its processes

    def stop() -> None:
        if on_stop is not None:
            on_stop()
        log("draining: %d requests in progress, up to %.0f s", servers[0].in_progress, delay_s + drain_s)
        asyncio.get_running_loop().call_later(delay_s, servers[0].stop)

    def orphaned() -> None:
        _log.warning("supervisor exited: draining requests and closing ports")
        if on_stop is not None:
            on_stop()
        for server in servers:
            server.stop()

    # Long-lived objects leave the collector's sight and collections become rare: otherwise full collections show as
    # pauses of tens of milliseconds in the traffic's p99.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    with _stopped_by_signals(stop, orphaned if supervised else None, on_line):
        async with asyncio.TaskGroup() as group:
            for server, bound in zip(servers[1:], sockets[1:], strict=True):
                group.create_task(server.serve([bound]))
            await servers[0].serve([sockets[0]])
            for server in servers[1:]:
                server.stop()
    if servers[0].cut:
        _log.warning("drained: cut off %d requests after %.0f s", servers[0].cut, drain_s)
    else:
        log("drained: all requests completed")


@contextlib.contextmanager
def _stopped_by_signals(
    stop: Callable[[], None], orphaned: Callable[[], None] | None, on_line: Callable[[str], None]
) -> Iterator[None]:
    """Call `stop` on SIGTERM and SIGINT, and `orphaned`, if there is one, at the end of standard input."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)

    partial = bytearray()

    def watch_input() -> None:
        if not (data := os.read(0, 65_536)):
            loop.remove_reader(0)
            if orphaned is not None:
                orphaned()
        partial.extend(data)
        *lines, partial[:] = bytes(partial).split(b"\n")
        for line in lines:
            on_line(line.decode("utf-8", "replace"))

    for number in numbers:
        loop.add_signal_handler(number, stop)
    if orphaned is not None:
        loop.add_reader(0, watch_input)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
        loop.remove_reader(0)


async def _bind(listener: Listener) -> socket.socket:
    """Bind; wait a little for a process that is just about to release the address. Raises OSError."""
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    deadline = time.monotonic() + BIND_WAIT_S
    while True:
        try:
            return socket.create_server(
                (listener.host, listener.port), family=family, backlog=BACKLOG, reuse_port=listener.shared
            )
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise cannot_listen(listener.host, listener.port, error) from error
        await asyncio.sleep(BIND_EVERY_S)


def _config(listener: Listener, drain_s: float) -> uvicorn.Config:
    return uvicorn.Config(
        listener.app,
        host=listener.host,
        port=listener.port,
        loop="none",
        http=listener.protocol,
        ws="websockets-sansio",
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_ping_interval=None,
        lifespan="off",
        interface="asgi3",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, round(drain_s)),
    )


def run(main: Coroutine[Any, Any, None], log_format: str = "text") -> None:
    """Run a coroutine on uvloop."""
    import uvloop  # noqa: PLC0415 - only where a process is started

    configure_logs(log_format)
    system.raise_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)
