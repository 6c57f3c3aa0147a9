"""Real servers on free loopback ports, inside the test's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn

from examples.storage_engine.gaugeway_memory.queue import MemoryQueue
from gateway.app import Gateway
from gateway.config import Config, Upstream
from gateway.config import Gateway as GatewayTable
from gaugeway.runtime.http_protocol import ServerProtocol
from gaugeway.runtime.serving import Listener, _config, _Server
from gaugeway.runtime.tasks import spawn

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(app: Any) -> AsyncIterator[int]:
    """Serve an ASGI app as the product does; yields the port."""
    protocol = getattr(app, "protocol", ServerProtocol)
    async with serving_with(_config(Listener(app, "127.0.0.1", 0, protocol=protocol), drain_s=1)) as port:
        yield port


@contextlib.asynccontextmanager
async def serving_with(config: uvicorn.Config) -> AsyncIterator[int]:
    """Serve on a free port with these settings; yields the port."""
    server = _Server(config)
    task = spawn(server.serve(), name="server under test")
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.005)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task


@contextlib.asynccontextmanager
async def tcp_server(handler: Handler) -> AsyncIterator[int]:
    """A server of raw bytes: what an upstream really sends and receives."""
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


class Running:
    """A gateway under test."""

    def __init__(self, gateway: Gateway, port: int, queue: Any) -> None:
        self.gateway = gateway
        self.port = port
        self.queue = queue

    def counter(self, name: str, **labels: str) -> float:
        """The value of a counter; 0 when it was never counted."""
        return self.gateway.registry.get_sample_value(name, labels) or 0.0

    def total(self, name: str, **labels: str) -> float:
        """The sum of a counter over all series that carry these labels."""
        return sum(
            sample.value
            for family in self.gateway.registry.collect()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    async def samples(self, count: int, within_s: float = 60.0) -> list[Any]:
        """Wait for `count` samples in the queue and take them."""
        taken: list[Any] = []
        async with asyncio.timeout(within_s):
            while len(taken) < count:
                taken += [lease.sample for lease in await self.queue.lease(count)]
                await asyncio.sleep(0.01)
        return taken

    async def until(self, condition: Callable[[], bool], within_s: float = 60.0) -> None:
        """Wait until `condition` holds."""
        async with asyncio.timeout(within_s):
            while not condition():  # noqa: ASYNC110 - counters have no event to wait for
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def running_gateway(
    base_url: str,
    *,
    queue: Any = None,
    config: Config | None = None,
    keys_file: Path | None = None,
    fast_path: bool = True,
    **settings: Any,
) -> AsyncIterator[Running]:
    """Run a gateway in front of `base_url`; `settings` are keys of `[gateway]`. `fast_path` as of Gateway."""
    config = config or Config(gateway=GatewayTable(**settings), upstreams=(Upstream(base_url=base_url),))
    queue = queue or MemoryQueue()
    gateway = Gateway(config, queue=queue, keys_file=keys_file, fast_path=fast_path)
    await gateway.start()
    async with serving(gateway) as port:
        try:
            yield Running(gateway, port, queue)
        finally:
            await gateway.aclose()


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Read one HTTP/1.1 request as raw bytes: (head with its empty line, body with its framing)."""
    head = await reader.readuntil(b"\r\n\r\n")
    lowered = head.lower()
    if b"content-length:" in lowered:
        length = int(lowered.split(b"content-length:")[1].split(b"\r\n")[0])
        return head, await reader.readexactly(length)
    if b"transfer-encoding: chunked" in lowered:
        body = b""
        while not body.endswith(b"0\r\n\r\n"):
            body += await reader.read(65536)
        return head, body
    return head, b""


def header_lines(head: bytes) -> dict[str, str]:
    """The headers of a raw head, names in lower case."""
    lines = head.decode("latin-1").split("\r\n")[1:]
    return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}


def toml(path: Path, text: str) -> Path:
    """Write a configuration file."""
    path.write_text(text, "utf-8")
    return path
