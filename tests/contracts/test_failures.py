"""Every port raises EngineError when its engine is broken, and RefusedError for a value that it never takes."""

import asyncio
import contextlib
import sqlite3

import pytest

from gaugeway.demo.servers import free_ports
from gaugeway.records import Evaluation, Sample, Score, Supplement
from gaugeway.storage import queues, stores
from gaugeway.storage.documents import Draw, open_limits
from gaugeway.storage.engines.failures import EngineError, RefusedError, SchemaError
from gaugeway.storage.erase import Subject
from gaugeway.storage.keys import open_keys
from gaugeway.storage.leader import stand
from gaugeway.storage.stores import Query
from gaugeway.storage.templates import StoredTemplate, open_templates
from tests.support.clickhouse import clickhouse
from tests.support.postgres import postgres
from tests.support.redis import redis_server

SAMPLE = Sample(id="a", started_at=1.0)
SUPPLEMENT = Supplement(id="s", received_at=1.0, source="feedback", trace_id="t", rating=1.0)
EVALUATION = Evaluation(sample_id="a", metric="m", version="1", outcome=Score(0.5))
TEMPLATE = StoredTemplate(
    app="a", version="1", kind="system", literals=("x",), slots=(), split={}, seen=1, learned_at=1.0
)
QUERY = Query(since=0.0, until=1e9)
SURROGATE = "\ud800"


def queue_calls(queue):
    return [
        lambda: queue.put([SAMPLE]),
        lambda: queue.lease(1),
        lambda: queue.ack(["a"]),
        lambda: queue.set_aside("a", "why"),
        queue.depth,
        lambda: queue.supply([SUPPLEMENT]),
        lambda: queue.take(1),
        lambda: queue.ack_supplies(["s"]),
        lambda: queue.prune(1.0),
        lambda: queue.forget(Subject(app="a")),
    ]


def store_calls(store):
    return [
        lambda: store.add(SAMPLE, [EVALUATION]),
        lambda: store.sample("a"),
        lambda: store.questions(["a"]),
        lambda: store.supplement([SUPPLEMENT]),
        lambda: store.supplements_of(SAMPLE),
        lambda: store.supplements_of_each([SAMPLE]),
        lambda: store.series(QUERY),
        lambda: store.summary(QUERY),
        lambda: store.paired(QUERY, "m"),
        lambda: store.ratings(QUERY),
        lambda: store.prune(1.0),
        lambda: store.forget(Subject(app="a")),
        lambda: store.ids("", 1),
        lambda: store.holds(["a"]),
        lambda: store.said("", 1),
        store.load,
        lambda: store.save({"a": b"1"}),
    ]


def key_calls(keys):
    return [
        lambda: keys.create(app="a", now=1.0),
        lambda: keys.revoke("k", 1.0),
        keys.keys,
        lambda: keys.changed(None),
        lambda: keys.spend({(1, "app:a"): 1.0}, 1),
    ]


def template_calls(templates):
    return [
        lambda: templates.put_template(TEMPLATE),
        lambda: templates.set_template_state("a", "1", "confirmed"),
        lambda: templates.drop_templates([("a", "1")]),
    ]


def template_reads(templates):
    return [templates.templates, lambda: templates.changed(None)]


def limit_calls(sharing):
    draw = Draw(subject="app:a", kind="requests", per_min=60.0, used=1.0, level=60.0)
    return [lambda: sharing.exchange([draw])]


def open_queue(url):
    return queues.from_url(url, 60.0, 3)


def open_key_file(path):
    return open_keys(None, path.parent, busy_timeout_s=0.05)


async def closed_after(port, calls):
    async with contextlib.aclosing(port):
        for call in calls(port):
            with pytest.raises(EngineError):
                await call()


def all_fail(port, calls):
    asyncio.run(closed_after(port, calls))


def every_template(templates):
    return template_calls(templates) + template_reads(templates)


@pytest.fixture
def port():
    """A port of this machine at which nothing listens."""
    return free_ports(1)[0]


@pytest.mark.parametrize("scheme", ["postgresql", "redis"])
def test_queues_of_an_unreachable_engine(scheme, port):
    path = "" if scheme == "redis" else "/none"
    all_fail(open_queue(f"{scheme}://127.0.0.1:{port}{path}"), queue_calls)


@pytest.mark.parametrize("scheme", ["postgresql", "clickhouse"])
def test_stores_of_an_unreachable_engine(scheme, port):
    all_fail(stores.from_url(f"{scheme}://127.0.0.1:{port}/none"), store_calls)


@pytest.mark.parametrize("scheme", ["postgresql", "clickhouse"])
def test_templates_of_an_unreachable_engine(scheme, port):
    all_fail(open_templates(f"{scheme}://127.0.0.1:{port}/none"), every_template)


def test_keys_of_an_unreachable_engine(port, tmp_path):
    all_fail(open_keys(f"postgresql://127.0.0.1:{port}/none", tmp_path), key_calls)


@pytest.mark.parametrize("url", ["postgresql://127.0.0.1:{}/none", "redis://127.0.0.1:{}"])
def test_limits_of_an_unreachable_engine(url, port):
    all_fail(open_limits(url.format(port)), limit_calls)


def test_states_of_a_leader_in_an_unreachable_engine(port):
    url = f"postgresql://127.0.0.1:{port}/none"

    async def scenario():
        store = stores.from_url(url)
        leader, states = stand(url, store, 1.0)
        for call in (states.load, lambda: states.save({"a": b"1"})):
            with pytest.raises(EngineError):
                await call()
        await leader.aclose()
        await store.aclose()

    asyncio.run(scenario())


FILES = {
    "queue": (lambda path: open_queue(f"sqlite:///{path}"), queue_calls),
    "store": (lambda path: stores.from_url(f"sqlite:///{path}"), store_calls),
    "keys": (open_key_file, key_calls),
}


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("damage", ["no database", "a directory", "no directory", "another kind", "a newer release"])
def test_files_that_cannot_be_used(tmp_path, kind, damage):
    make, calls = FILES[kind]
    path = tmp_path / f"{kind}.db"
    if damage == "no database":
        path.write_bytes(b"x" * 5000)
    elif damage == "a directory":
        path.mkdir()
    elif damage == "no directory":
        (tmp_path / "file").write_text("")
        path = tmp_path / f"file/{kind}.db"
    else:
        made = make(path)
        asyncio.run(opened(made, calls))
        with contextlib.closing(sqlite3.connect(path)) as connection:
            name = "application_id" if damage == "another kind" else "user_version"
            connection.execute(f"PRAGMA {name} = 99")
    all_fail(make(path), calls)


async def opened(port, calls):
    async with contextlib.aclosing(port):
        await calls(port)[0]()


@pytest.mark.parametrize("kind", FILES)
def test_a_file_of_a_newer_release_is_a_schema_error(tmp_path, kind):
    make, calls = FILES[kind]
    path = tmp_path / f"{kind}.db"

    async def scenario():
        await opened(make(path), calls)
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA user_version = 99")
        with pytest.raises(SchemaError, match="newer"):
            await opened(make(path), calls)

    asyncio.run(scenario())


def test_a_template_file_that_cannot_be_used(tmp_path):
    (tmp_path / "templates.db").write_bytes(b"x" * 5000)
    all_fail(open_templates(f"sqlite:///{tmp_path}/store.db"), every_template)


def test_a_template_file_in_no_directory(tmp_path):
    (tmp_path / "file").write_text("")
    all_fail(open_templates(f"sqlite:///{tmp_path}/file/store.db"), template_calls)


def test_a_key_file_that_vanishes(tmp_path):
    async def scenario():
        async with contextlib.aclosing(open_key_file(tmp_path / "keys.db")) as keys:
            await keys.create(app="a", now=1.0)
            await keys.keys()
            (tmp_path / "keys.db").unlink()
            with pytest.raises(EngineError, match="gone"):
                await keys.keys()

    asyncio.run(scenario())


def test_a_damaged_row_of_a_key(tmp_path):
    async def scenario():
        async with contextlib.aclosing(open_key_file(tmp_path / "keys.db")) as keys:
            await keys.create(app="a", now=1.0)
            with contextlib.closing(sqlite3.connect(tmp_path / "keys.db")) as connection, connection:
                connection.execute("UPDATE keys SET models = 'no json'")
            with pytest.raises(EngineError, match="damaged"):
                await keys.keys()

    asyncio.run(scenario())


@pytest.mark.full
def test_tables_that_vanish_under_a_running_process(tmp_path):
    url = postgres().database()

    async def scenario():
        store, queue, keys = stores.from_url(url), open_queue(url), open_keys(url, tmp_path)
        await store.load()
        await queue.depth()
        await keys.keys()
        postgres().ask(url, "DROP SCHEMA gaugeway CASCADE")
        await closed_after(store, store_calls)
        await closed_after(queue, queue_calls)
        await closed_after(keys, key_calls)

    asyncio.run(scenario())


@pytest.fixture(params=["sqlite", "postgresql", "redis"])
def queue_url(request, tmp_path):
    if request.param == "redis":
        return redis_server().url()
    return postgres().database() if request.param == "postgresql" else f"sqlite:///{tmp_path}/queue.db"


def test_a_queue_refuses_a_value_that_cannot_be_encoded(queue_url):
    async def scenario():
        async with contextlib.aclosing(open_queue(queue_url)) as queue:
            for wrong in (Sample(id=SURROGATE, started_at=1.0), Sample(id="b", started_at=1.0, question=SURROGATE)):
                with pytest.raises(RefusedError):
                    await queue.put([wrong])
            with pytest.raises(RefusedError):
                await queue.supply([Supplement(id=SURROGATE, received_at=1.0, source="feedback", trace_id="t")])
            await queue.put([SAMPLE])
            assert [lease.sample for lease in await queue.lease(10)] == [SAMPLE]

    asyncio.run(scenario())


@pytest.fixture(params=["sqlite", "postgresql", "clickhouse"])
def store_url(request, tmp_path):
    engines = {"postgresql": postgres, "clickhouse": clickhouse}
    return f"sqlite:///{tmp_path}/store.db" if request.param == "sqlite" else engines[request.param]().database()


def test_a_store_refuses_a_value_that_cannot_be_stored(store_url):
    async def scenario():
        async with contextlib.aclosing(stores.from_url(store_url)) as store:
            for wrong in (Sample(id=SURROGATE, started_at=1.0), Sample(id="b", started_at=1.0, question=SURROGATE)):
                with pytest.raises(RefusedError):
                    await store.add(wrong, [])
            with pytest.raises(RefusedError, match="another sample"):
                await store.add(Sample(id="b", started_at=1.0), [EVALUATION])
            with pytest.raises(RefusedError):
                await store.save({"a": b"1", "b": object()})
            with pytest.raises(RefusedError):
                await store.series(Query(since=0.0, until=1e9, app=SURROGATE))
            await store.add(SAMPLE, [EVALUATION])
            assert await store.sample("a") == (SAMPLE, [EVALUATION])

    asyncio.run(scenario())
