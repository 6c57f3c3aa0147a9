"""Idle connections take neither the traffic's port nor the admin port, whatever the limit of file descriptors."""

import asyncio
import contextlib
import json
import os
import resource
import socket
import time
from pathlib import Path

import httpx
import pytest

from gaugeway.runtime import system
from gaugeway.runtime.http_protocol import ServerProtocol
from tests.support.product import product
from tests.support.running import read_request, running_gateway, tcp_server
from tests.support.scripted_model import serve

BODY = {"model": "m", "messages": [{"role": "user", "content": "Hi?"}]}
REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"


@pytest.mark.full
@pytest.mark.parametrize("chunked", [False, True])  # by callbacks, and by a task
def test_idle_connections_take_neither_port_where_the_limit_cannot_be_raised(tmp_path, chunked):
    with serve() as url, contextlib.ExitStack() as held:
        text, content = f'[[upstreams]]\nbase_url = "{url}"\n', json.dumps(BODY).encode()
        with product(tmp_path, text, command="gateway", descriptors=(256, 256)) as running:
            for port, count in ((running.port, 400), (running.admin_port, 100)):
                for _ in range(count):
                    held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            for _ in range(5):
                answer = httpx.post(
                    f"{running.base_url}/chat/completions",
                    content=iter([content]) if chunked else content,
                    headers={"content-type": "application/json"},
                    timeout=20,
                )
                assert answer.status_code == 200
                assert running.value(running.admin, "gaugeway_connections_closed_total", reason="idle") > 0
            assert len(list(Path(f"/proc/{running.pid}/fd").iterdir())) < 256
            spent = processor_s(running.pid)
            time.sleep(1.0)
            assert processor_s(running.pid) - spent < 0.9, "it does not spin"


@pytest.mark.full
def test_each_process_raises_its_limit_and_says_so(tmp_path):
    with serve() as url, product(tmp_path, f'[[upstreams]]\nbase_url = "{url}"\n', descriptors=(200, 900)) as running:
        for pid in (running.pid, running.pid_of("gateway"), running.pid_of("monitors")):
            assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (900, 900)
        assert running.log.read_text().count("file descriptor limit: 900 (was 200)") == 1


def test_the_limit_is_raised_to_the_hard_one_but_not_without_bound(monkeypatch):
    class Limits:
        RLIM_INFINITY = resource.RLIM_INFINITY
        RLIMIT_NOFILE = resource.RLIMIT_NOFILE

        def __init__(self, soft, hard):
            self.now = (soft, hard)

        def getrlimit(self, _):
            return self.now

        def setrlimit(self, _, wanted):
            self.now = wanted

    for before, after in (
        ((1024, 4096), (4096, 4096)),
        ((1024, 10**9), (system.MAX_DESCRIPTORS, 10**9)),
        ((1024, resource.RLIM_INFINITY), (system.MAX_DESCRIPTORS, resource.RLIM_INFINITY)),
        ((10**6, 10**6), (10**6, 10**6)),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), (resource.RLIM_INFINITY, resource.RLIM_INFINITY)),
    ):
        limits = Limits(*before)
        monkeypatch.setattr(system, "resource", limits)
        assert 0 < system.raise_limit() <= 10**6
        assert limits.now == after


def processor_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.asynccontextmanager
async def upstream(go, asked):
    """Answers when `go` is set; `asked` gets an entry for each request."""

    async def handler(reader, writer):
        while True:
            try:
                await read_request(reader)
            except asyncio.IncompleteReadError:
                writer.close()
                return
            asked.append(1)
            await go.wait()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")

    async with tcp_server(handler) as port:
        yield f"http://127.0.0.1:{port}/v1"


@pytest.mark.anyio
@pytest.mark.parametrize("fast_path", [False, True])
async def test_a_request_under_way_is_never_closed_for_a_new_connection(monkeypatch, fast_path):
    monkeypatch.setattr(ServerProtocol, "most_connections", 4)
    go, asked = asyncio.Event(), []
    async with upstream(go, asked) as url, running_gateway(url, fast_path=fast_path) as running:
        active = []
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(REQUEST)
            active.append((reader, writer))
        idle_reader, idle_writer = await asyncio.open_connection("127.0.0.1", running.port)
        await running.until(lambda: len(asked) == 3, 60)
        late_reader, late_writer = await asyncio.open_connection("127.0.0.1", running.port)
        assert await asyncio.wait_for(idle_reader.read(), 60) == b"", "the idle one makes room"
        late_writer.write(REQUEST)
        await running.until(lambda: len(asked) == 4, 60)
        refused_reader, refused_writer = await asyncio.open_connection("127.0.0.1", running.port)
        answer = await asyncio.wait_for(refused_reader.read(), 60)
        assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n"), "all are busy"
        go.set()
        for reader, _ in [*active, (late_reader, late_writer)]:
            assert (await asyncio.wait_for(reader.readline(), 10)).startswith(b"HTTP/1.1 200")
        for writer in (*(one for _, one in active), idle_writer, late_writer, refused_writer):
            writer.close()


@pytest.mark.anyio
async def test_what_was_used_last_stays_longest(monkeypatch):
    monkeypatch.setattr(ServerProtocol, "most_connections", 20)
    go, asked = asyncio.Event(), []
    go.set()
    async with upstream(go, asked) as url, running_gateway(url) as running, httpx.AsyncClient() as client:
        post = lambda: client.post(f"http://127.0.0.1:{running.port}/v1/chat/completions", json=BODY)  # noqa: E731
        await post()
        held = []
        for _ in range(100):
            held.append(await asyncio.open_connection("127.0.0.1", running.port))
            assert (await post()).status_code == 200
        closed = [reader.at_eof() for reader, _ in held]
        assert sum(closed) >= 80
        assert not any(closed[-10:])
        for _, writer in held:
            writer.close()
