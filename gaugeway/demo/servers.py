"""Serving an ASGI app on a free loopback port, in the running event loop."""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from typing import Any

import uvicorn

from gaugeway.runtime.tasks import spawn

_LOWEST_PORT, _BELOW_PORT = 20_000, 32_000


class _Server(uvicorn.Server):
    """uvicorn without signal handlers: signals belong to the program that starts it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def in_loop(app: Any, port: int = 0) -> AsyncIterator[str]:
    """Serve `app` from the running event loop; yields its address without a path."""
    server, listener = prepared(app, port)
    task = spawn(server.serve([listener]), name="demo-server")
    try:
        yield address_of(listener)
    finally:
        server.should_exit = True
        await task
        listener.close()


async def body(receive: Callable[[], Awaitable[MutableMapping[str, Any]]]) -> bytes:
    """Return the whole body of a request."""
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface that nobody listens on right now, all different.

    They lie below the range from which the system serves port 0 and outgoing connections: until the caller's own
    process listens on one, nothing else is given it by chance.
    """
    candidates = random.sample(range(_LOWEST_PORT, _BELOW_PORT), _BELOW_PORT - _LOWEST_PORT)
    return list(itertools.islice(filter(is_free, candidates), count))


def is_free(port: int) -> bool:
    """Return whether a loopback port is free."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def prepared(app: Any, port: int) -> tuple[uvicorn.Server, socket.socket]:
    """Return a server and its listener, bound at once, so that early connections wait instead of failing."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(2048)
    config = uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        date_header=False,
        timeout_keep_alive=75,  # as providers have it; with uvicorn's 5 s a busy machine reuses one that just ended
        timeout_graceful_shutdown=2,
    )
    return _Server(config), listener


def address_of(listener: socket.socket) -> str:
    """Return the address that a socket listens on."""
    return f"http://127.0.0.1:{listener.getsockname()[1]}"
