"""Running ASGI apps: several listeners in one process, one orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import uvicorn

_log = logging.getLogger("gaugeway")
KEEP_ALIVE_S = 120


@dataclass(frozen=True, slots=True)
class Listener:
    """An ASGI app and where it listens."""

    app: Any
    host: str
    port: int


class _Server(uvicorn.Server):
    """A uvicorn server that leaves the signals to `serve`."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    listeners: Sequence[Listener],
    *,
    drain_s: float,
    on_stop: Callable[[], None] | None = None,
    supervised: bool = False,
) -> None:
    """Serve until SIGTERM or SIGINT; then stop accepting, and give requests under way up to `drain_s` seconds.

    `on_stop` is called as soon as the signal arrives. With `supervised`, the end of standard input is a signal too: it
    means that the supervising process is gone. Raises OSError when an address cannot be bound.
    """
    servers = [_Server(_config(listener, drain_s)) for listener in listeners]
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if on_stop is not None:
            on_stop()
        for server in servers:
            server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    if supervised:
        loop.add_reader(0, lambda: os.read(0, 1024) or stop())
    # Long-lived objects leave the collector's sight and collections become rare: otherwise full collections show as
    # pauses of tens of milliseconds in the traffic's p99.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    try:
        async with asyncio.TaskGroup() as group:
            for server, listener in zip(servers, listeners, strict=True):
                group.create_task(_serve_one(server, listener))
    except* SystemExit as stops:  # uvicorn ends this way when it cannot bind
        raise OSError("an address is in use") from stops
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        loop.remove_reader(0)


async def _serve_one(server: _Server, listener: Listener) -> None:
    await server.serve()
    if not server.started:
        raise OSError(f"cannot listen on {listener.host}:{listener.port}")


def _config(listener: Listener, drain_s: float) -> uvicorn.Config:
    return uvicorn.Config(
        listener.app,
        host=listener.host,
        port=listener.port,
        loop="none",
        http="httptools",
        ws="none",
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


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on uvloop with plain log lines on standard error."""
    import uvloop  # noqa: PLC0415 - only where a process is started

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    for chatty in ("httpx", "httpx2", "httpcore", "openai", "aiosqlite", "uvicorn.error", "uvicorn"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)
