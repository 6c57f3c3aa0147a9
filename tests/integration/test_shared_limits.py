"""Gateways that share limits and keys through real engines that are killed: no request waits, the limit holds."""

import asyncio
import contextlib
import json
import re
import time

import pytest

from examples.storage_engine.gaugeway_memory.queue import MemoryQueue
from gateway.app import Gateway
from gateway.config import Config, Keys, Limits, Upstream
from gaugeway.runtime import audit
from gaugeway.settings import ConfigError
from gaugeway.storage.keys import open_keys
from tests.gateway.proxy.test_passthrough import CHAT, exchange, post, reply
from tests.support.postgres import own_server, postgres
from tests.support.redis import own_redis, redis_server
from tests.support.running import read_request, running_gateway, tcp_server

PROCESSES = "gaugeway_limits_processes"
ERRORS = "gaugeway_limits_sync_errors_total"


@pytest.fixture(autouse=True)
def frequent_syncs(monkeypatch):
    """Share limits and read keys often."""
    monkeypatch.setattr("gateway.access.admission.SYNC_S", 0.05)
    monkeypatch.setattr("gateway.access.admission.REFRESH_S", 0.05)


async def answering(reader, writer):
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError), contextlib.closing(writer):
        while True:
            await read_request(reader)
            writer.write(reply())
            await writer.drain()


@contextlib.asynccontextmanager
async def gateways(count, tmp_path, **tables):
    async with contextlib.AsyncExitStack() as stack:
        port = await stack.enter_async_context(tcp_server(answering))
        config = Config(upstreams=(Upstream(base_url=f"http://127.0.0.1:{port}/v1", api_key="sk"),), **tables)
        yield [
            await stack.enter_async_context(running_gateway("", config=config, keys_file=tmp_path / f"{number}.db"))
            for number in range(count)
        ]


async def ask(gateway, secret=None):
    raw = post(CHAT, "/v1/chat/completions", f"Authorization: Bearer {secret}") if secret else post()
    return int((await exchange(gateway.port, raw))[0].split()[1])


async def admitted(gateway, tries):
    return [await ask(gateway) for _ in range(tries)].count(200)


async def together(running, count):
    for one in running:
        await one.until(lambda one=one: one.counter(PROCESSES) == count, 60)


@pytest.mark.parametrize("engine", ["redis", "postgresql"])
def test_what_one_gateway_lets_in_another_knows(engine, tmp_path):
    url = redis_server().url() if engine == "redis" else postgres().database()

    async def scenario():
        limits = Limits(requests_per_min=6, url=url)
        async with gateways(2, tmp_path, limits=limits) as (one, other):
            await together((one, other), 2)
            begin = time.monotonic()
            total = 0
            for gateway in (one, other):
                for _ in range(8):
                    total += await admitted(gateway, 2)
                    await asyncio.sleep(0.2)
            assert 6 <= total <= 6 + 0.1 * (time.monotonic() - begin) + 2

    asyncio.run(scenario())


@pytest.mark.parametrize("engine", ["redis", "postgresql"])
def test_while_the_engine_is_gone_no_request_waits_and_each_gateway_keeps_to_its_share(engine, tmp_path):
    server = own_redis() if engine == "redis" else own_server()
    url = server.url() if engine == "redis" else server.database()

    async def scenario():
        async with gateways(2, tmp_path, limits=Limits(requests_per_min=12, url=url)) as running:
            await together(running, 2)
            await asyncio.to_thread(server.stop)
            await together(running, 0)
            begin = time.monotonic()
            assert [await admitted(one, 10) for one in running] == [6, 6]
            assert time.monotonic() - begin < 3
            assert all(one.counter(ERRORS) for one in running)
            await asyncio.to_thread(server.start)
            await together(running, 2)
            assert sum([await admitted(one, 10) for one in running]) <= 4 + 0.2 * (time.monotonic() - begin)

    try:
        asyncio.run(scenario())
    finally:
        server.destroy()


def test_keys_made_in_one_place_open_every_gateway_also_when_the_database_is_gone(tmp_path):
    server = own_server()

    async def scenario():
        url = server.database()
        store = open_keys(url, tmp_path)
        _, secret = await store.create(app="shop", now=time.time())
        await store.aclose()
        async with gateways(2, tmp_path, keys=Keys(enabled=True, url=url)) as running:
            assert [await ask(one, secret) for one in running] == [200, 200]
            await asyncio.to_thread(server.stop)
            await asyncio.sleep(0.3)
            assert [await ask(one, secret) for one in running] == [200, 200]
            assert [await ask(one, "gw-unknown") for one in running] == [401, 401]

    try:
        asyncio.run(scenario())
    finally:
        server.destroy()


@pytest.mark.parametrize(
    ("key", "tables"),
    [
        ("keys.url", {"keys": Keys(enabled=True, url="mysql://user:secret@host/x")}),
        ("limits.url", {"limits": Limits(requests_per_min=1, url="redis://user:se/cret@host")}),
    ],
)
def test_a_wrong_url_is_told_with_its_key_and_without_its_password(key, tables, tmp_path):
    config = Config(upstreams=(Upstream(base_url="http://127.0.0.1:9/v1"),), **tables)
    with pytest.raises(ConfigError) as caught:
        Gateway(config, queue=MemoryQueue(), keys_file=tmp_path / "keys.db")
    (problem,) = caught.value.problems
    assert problem.startswith(key)
    assert not re.search(r"\bse\b|cret", problem)


def test_a_reload_is_written_down_applied_or_refused(tmp_path):
    config = Config(upstreams=(Upstream(base_url="http://127.0.0.1:9/v1", api_key="sk-secret"),))

    def refused():
        raise ConfigError(["upstreams[0].api_key: sk-secret is wrong"])

    async def scenario():
        gateway = Gateway(config, queue=MemoryQueue())
        told = audit.open_file(tmp_path)
        gateway.reload(lambda: config)
        gateway.reload(refused)
        audit.close_file(told)
        await gateway.aclose()

    asyncio.run(scenario())
    lines = [json.loads(line) for line in (tmp_path / audit.FILE).read_text().splitlines()]
    assert [(one["action"], one["outcome"]) for one in lines] == [("reload", "applied"), ("reload", "refused")]
    assert lines[1]["problems"] == 1
    assert "sk-secret" not in (tmp_path / audit.FILE).read_text()
