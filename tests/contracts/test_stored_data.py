"""What the release before this one stored opens, is read as it was, and can be added to."""

import asyncio
import gzip
import json

import asyncpg
import pytest
from redis import Redis

from gaugeway.storage import stores
from gaugeway.storage.engine import adapter
from gaugeway.storage.keys import Keys, digest, open_keys
from gaugeway.storage.templates import open_templates
from tests.contracts.stored_data import scenario
from tests.contracts.stored_data.write import FILES, HERE, REDIS_PREFIX
from tests.support.postgres import postgres
from tests.support.redis import redis_server

SOME = {"sqlite": ("store", "queue", "keys", "templates"), "postgresql": ("store", "queue", "keys", "templates")}


def unpacked(name):
    return gzip.decompress((HERE / f"{name}.gz").read_bytes())


def expected(engine, kind):
    return json.loads(unpacked("expected.json"))[engine][kind]


async def restored(url):
    """Run a dump, which makes its tables, in an empty database."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(unpacked("postgres.sql").decode())
    finally:
        await connection.close()


@pytest.fixture
def engine(request, tmp_path):
    """The name of an engine, and the URL of each kind of what it has stored."""
    if request.param == "postgresql":
        url = postgres().database(empty=True)
        asyncio.run(restored(url))
        return request.param, dict.fromkeys(SOME["postgresql"], url)
    for name in FILES:
        (tmp_path / name).write_bytes(unpacked(name))
    return request.param, {kind: f"sqlite:///{tmp_path}/{kind}.db" for kind in SOME["sqlite"]}


@pytest.mark.parametrize("engine", SOME, indirect=True)
def test_a_store_is_read_as_it_was_and_added_to(engine):
    name, urls = engine
    assert scenario.as_json(asyncio.run(scenario.read_store(urls["store"]))) == expected(name, "store")

    async def add():
        store = stores.from_url(urls["store"])
        first, second, *_ = scenario.samples()
        assert await store.add(first, scenario.evaluations(first)) == []
        (late,) = scenario.evaluations(second)[:1]
        new = late.__class__(sample_id="second", metric="late", version="v1", outcome=late.outcome)
        assert await store.add(second, [new]) == [new]
        kept = {(summary.app, summary.metric) for summary in await store.summary(scenario.WHOLE_HOUR)}
        assert ("shop", "late") in kept
        await store.aclose()

    asyncio.run(add())


@pytest.mark.parametrize("engine", SOME, indirect=True)
def test_a_queue_hands_out_what_waits(engine):
    name, urls = engine
    assert scenario.as_json(asyncio.run(scenario.read_queue(urls["queue"]))) == expected(name, "queue")


def test_a_queue_in_redis_hands_out_what_waits():
    server = redis_server()
    with Redis(port=server.port) as client:
        client.response_callbacks.clear()
        for command in json.loads((HERE / "redis.json").read_text("utf-8")):
            client.execute_command(*command)
    found = asyncio.run(scenario.read_queue(server.url(prefix=REDIS_PREFIX)))
    assert scenario.as_json(found) == expected("redis", "queue")


@pytest.mark.parametrize("engine", SOME, indirect=True)
def test_keys_templates_and_spending_are_there(engine, tmp_path):
    name, urls = engine
    keys = open_keys(None, tmp_path) if name == "sqlite" else Keys(adapter(urls["keys"], "keys").from_url(urls["keys"]))
    found = asyncio.run(scenario.read_keys(keys))
    assert scenario.as_json(found) == expected(name, "keys")
    assert found["keys"][0].digest == digest(expected(name, "secret").encode())
    templates = asyncio.run(scenario.read_templates(open_templates(urls["templates"])))
    assert scenario.as_json(templates) == expected(name, "templates")
