"""The embedded store on a real file: its schema's versions, and everything that can happen to a file."""

import asyncio
import re
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing

import msgspec
import pytest

from gaugeway.records import Evaluation, Sample, Score, Skipped, Supplement
from gaugeway.signals import SIGNALS
from gaugeway.storage.engines.failures import EngineError, SchemaError
from gaugeway.storage.engines.sqlite import signal_rows
from gaugeway.storage.engines.sqlite.conditions import VALUE_INDEX, SQLiteConditions
from gaugeway.storage.engines.sqlite.connection import STORE, Database, Schema
from gaugeway.storage.engines.sqlite.queue import SQLiteQueue
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.stores import Query, from_url

EVERYTHING = Query(since=0.0, until=1e12)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.db"


@pytest.fixture
def store(path):
    return SQLiteStore(path, busy_timeout_s=0.2)


def sample(sample_id, started_at=1.0):
    return Sample(id=sample_id, started_at=started_at)


def evaluation(sample_id, metric="m", value=0.5):
    return Evaluation(sample_id=sample_id, metric=metric, version="1", outcome=Score(value))


def run(closable, scenario):
    async def main():
        try:
            return await scenario()
        finally:
            await closable.aclose()

    return asyncio.run(main())


def execute(path, statement, *parameters):
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement, parameters).fetchall()


def layers(*scripts):
    return Schema(kind="trial", application_id=7, migrations=scripts)


def use(path, schema):
    """Open `path` with `schema`, and close it again."""
    database = Database(path, schema=schema, busy_timeout_s=0.2)

    async def scenario():
        await database.fetch("SELECT 1")

    run(database, scenario)


def test_an_unused_store_answers_with_nothing_and_carries_the_schemas_version(store, path):
    async def scenario():
        return await store.series(EVERYTHING), await store.load(), await store.sample("a"), await store.prune(1e12)

    assert run(store, scenario) == ([], {}, None, 0)
    assert execute(path, "PRAGMA user_version") == [(len(STORE.migrations),)]
    assert execute(path, "PRAGMA journal_mode") == [("wal",)]


def test_what_was_stored_is_there_after_closing_and_opening_again(path):
    first, second = SQLiteStore(path), SQLiteStore(path)

    async def write():
        await first.add(sample("a"), [evaluation("a")])
        await first.save({"detector": b"1"})

    async def read():
        return await second.sample("a"), await second.load()

    run(first, write)
    assert run(second, read) == ((sample("a"), [evaluation("a")]), {"detector": b"1"})


@pytest.mark.full
def test_the_same_evaluation_stored_by_two_processes_at_once_is_new_to_only_one_of_them(path):
    script = """
import asyncio, sys, time
from gaugeway.records import Evaluation, Sample, Score
from gaugeway.storage.engines.sqlite.store import SQLiteStore

async def main():
    store = SQLiteStore(sys.argv[1])
    new = 0
    for number in range(100):
        sample = Sample(id=str(number), started_at=1.0)
        found = Evaluation(sample_id=sample.id, metric="m", version="1", outcome=Score(0.5))
        new += len(await store.add(sample, [found]))
    await store.aclose()
    print(new)

asyncio.run(main())
"""
    command = [sys.executable, "-c", script, str(path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        outputs = [process.communicate(timeout=60)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert sum(map(int, outputs)) == 100
    assert execute(path, "SELECT count(*) FROM evaluations") == [(100,)]


def test_a_file_of_a_newer_release_is_refused_with_both_versions(store, path):
    run(store, store.load)
    execute(path, "PRAGMA user_version = 99")
    with pytest.raises(SchemaError, match=r"store\.db was written by a newer Gaugeway: its schema has version 99"):
        run(store, store.load)
    with pytest.raises(SchemaError, match=f"this release knows {len(STORE.migrations)}"):
        run(store, lambda: store.add(sample("a"), []))


def test_the_file_of_a_queue_is_no_store(path):
    queue, store = SQLiteQueue(path), SQLiteStore(path)
    run(queue, queue.depth)
    with pytest.raises(SchemaError, match="not a store of Gaugeway; give it a file of its own"):
        run(store, store.load)


def test_migrations_lead_an_old_file_forward_and_keep_its_rows(path):
    first = "CREATE TABLE t (\n    a TEXT -- no; statement; ends here\n);\nINSERT INTO t VALUES ('x;y');\n"
    second = "ALTER TABLE t ADD COLUMN b INTEGER NOT NULL DEFAULT 3;\n\nCREATE INDEX t_b ON t (b);"
    use(path, layers(first))
    assert execute(path, "PRAGMA user_version") == [(1,)]
    use(path, layers(first, second))
    use(path, layers(first, second))
    assert execute(path, "SELECT a, b FROM t") == [("x;y", 3)]
    assert execute(path, "PRAGMA user_version") == [(2,)]


def test_a_migration_that_fails_changes_nothing(path):
    use(path, layers("CREATE TABLE t (a TEXT);"))
    broken = layers("CREATE TABLE t (a TEXT);", "ALTER TABLE t ADD COLUMN b INTEGER;\nNONSENSE;")
    with pytest.raises(EngineError, match="NONSENSE"):
        use(path, broken)
    assert execute(path, "PRAGMA user_version") == [(1,)]
    assert execute(path, "SELECT name FROM pragma_table_info('t')") == [("a",)]
    use(path, layers("CREATE TABLE t (a TEXT);"))


def test_a_file_of_the_first_release_is_led_forward_and_its_samples_are_found_by_their_trace(store, path):
    old = Schema(kind=STORE.kind, application_id=STORE.application_id, migrations=STORE.migrations[:1])
    use(path, old)
    traced = Sample(id="a", started_at=1.0, trace_id="t")
    for sample_id, payload in [
        ("a", msgspec.json.encode(traced).decode()),
        ("b", "{"),
        ("c", '{"id":"c","started_at":1.0}'),
    ]:
        row = (sample_id, 1.0, "default", "unknown", payload)
        execute(path, "INSERT INTO samples (id, started_at, app, model, payload) VALUES (?, ?, ?, ?, ?)", *row)
    said = Supplement(id="1", received_at=1.0, source="feedback", trace_id="t")
    assert run(store, lambda: store.supplement([said])) == [traced]
    assert execute(path, "SELECT id, trace_id FROM samples ORDER BY id") == [("a", "t"), ("b", None), ("c", None)]
    assert execute(path, "PRAGMA user_version") == [(len(STORE.migrations),)]


def test_a_file_of_an_earlier_release_is_led_forward_and_its_scores_know_their_tags(store, path):
    use(path, Schema(kind=STORE.kind, application_id=STORE.application_id, migrations=STORE.migrations[:2]))
    for sample_id, payload in [("a", '{"tags":{"tenant":"x"}}'), ("b", "{"), ("c", '{"tags":{}}')]:
        execute(path, "INSERT INTO samples VALUES (?, 1.0, 'shop', 'gpt', ?, NULL, NULL)", sample_id, payload)
        values = (sample_id, "faithfulness", "1", 1.0, "shop", "gpt", "score", 0.5, "", "", "[]", None, 0.0, 0.0, 1.0)
        execute(path, f"INSERT INTO evaluations VALUES ({', '.join('?' * len(values))})", *values)
    points = run(store, lambda: store.series(Query(since=0.0, until=2.0)))
    assert [(point.sample_id, point.tags) for point in points] == [("a", {"tenant": "x"}), ("b", {}), ("c", {})]


def signal(sample_id, metric, value):
    return Evaluation(sample_id=sample_id, metric=metric, version="2", outcome=Score(value), weight=1.0)


def test_signals_of_an_earlier_release_stay_where_they_are_and_are_read_with_the_others(store, path):
    use(path, Schema(kind=STORE.kind, application_id=STORE.application_id, migrations=STORE.migrations[:8]))
    payload = msgspec.json.encode(sample("a", 5.0)).decode()
    row = ("a", 5.0, "default", "unknown", payload)
    execute(path, "INSERT INTO samples (id, started_at, app, model, payload) VALUES (?, ?, ?, ?, ?)", *row)
    for metric, value in (("abstained", 1.0), ("slow", 0.0)):
        values = ("a", metric, "2", 5.0, "default", "unknown", "score", value, "", "", "[]", None, 0.0, 0.0, 1.0, 1.0)
        execute(
            path,
            "INSERT INTO evaluations (sample_id, metric, version, started_at, app, model, outcome, value, reason, "
            f"detail, evidence, judge, seconds, cost_usd, rate, weight) VALUES ({', '.join('?' * len(values))})",
            *values,
        )

    async def scenario():
        old = [signal("a", "abstained", 1.0), signal("a", "slow", 0.0)]
        assert await store.sample("a") == (sample("a", 5.0), old)
        new = signal("a", "truncated", 1.0)
        assert await store.add(sample("a", 5.0), [*old, new]) == [new]
        assert await store.add(sample("b", 6.0), [signal("b", "abstained", 0.0)]) == [signal("b", "abstained", 0.0)]
        for order, expected in (("oldest", ["a", "b"]), ("newest", ["b", "a"]), ("highest", ["a", "b"])):
            points = await store.series(Query(since=0.0, until=1e6, metric="abstained", order=order, limit=5))
            assert [one.sample_id for one in points] == expected
        (found,) = await store.summary(Query(since=0.0, until=1e12, metric="abstained"))
        assert (found.n, found.wx) == (2, 1.0)
        assert await store.holds(["a", "b"]) == {"a": 3, "b": 1}

    run(store, scenario)
    assert execute(path, "SELECT sample_id, metric FROM evaluations ORDER BY metric") == [
        ("a", "abstained"),
        ("a", "slow"),
    ]
    assert execute(path, "SELECT sample_id, abstained, truncated FROM signals ORDER BY 1") == [
        ("a", None, 1.0),
        ("b", 0.0, None),
    ]


def test_every_signal_has_a_column(store, path):
    run(store, store.load)
    columns = {row[0] for row in execute(path, "SELECT name FROM pragma_table_info('signals')")}
    assert set(signal_rows.NAMES) == set(SIGNALS) <= columns


@pytest.mark.parametrize("metric", ["abstained", "retriever_score", None])
@pytest.mark.parametrize("order", ["oldest", "newest", "lowest", "highest"])
@pytest.mark.parametrize("app", [None, "shop"])
@pytest.mark.parametrize("index", [None, VALUE_INDEX])
def test_signals_are_found_by_an_index(store, path, *, metric, order, app, index):
    run(store, store.load)
    if index and (metric is None or order not in ("lowest", "highest")):
        return
    query = Query(since=1.0, until=1e6, metric=metric, app=app, order=order, limit=20)
    given = SQLiteConditions(query)
    for statement, values in (given.evaluation_points(index), *given.signal_points(index)):
        with closing(sqlite3.connect(path)) as connection:
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
        reads = [step for step in plan if re.search(r"\b(signals|evaluations)\b", step)]
        assert [step.split()[0] for step in reads] == ["SEARCH"], plan
        if order in ("oldest", "newest"):
            assert not any("ORDER BY" in step for step in plan), plan


def test_samples_and_supplements_are_found_by_an_index(store, path):
    run(store, store.load)
    for table, condition, index in [
        ("samples", "trace_id = 't'", "samples_trace_id"),
        ("samples", "context_key = 'k'", "samples_context_key"),
        ("supplements", "received_at < 1", "supplements_received_at"),
        (
            "supplements",
            re.sub(r"\?\d", "'x'", SQLiteConditions.sql["supplements"].partition("WHERE")[2]),
            "supplements_address",
        ),
    ]:
        plan = execute(path, f"EXPLAIN QUERY PLAN SELECT payload FROM {table} WHERE {condition}")
        steps = [step[3] for step in plan]
        assert any(f"SEARCH {table} USING INDEX {index} " in step for step in steps), steps
        assert not any(re.match(rf"SCAN {table}\b", step) for step in steps), steps


def test_supplements_that_cannot_be_read_are_left_out(store, path):
    async def scenario():
        for supplement_id in ("1", "2"):
            await store.supplement([Supplement(id=supplement_id, received_at=1.0, source="contexts", key="k")])
        execute(path, "UPDATE supplements SET payload = '{' WHERE id = '1'")
        return await store.supplements_of(Sample(id="a", started_at=1.0, context_key="k"))

    assert [one.id for one in run(store, scenario)] == ["2"]


def test_queries_by_metric_app_and_time_use_an_index(store, path):
    run(store, store.load)
    for condition, index in [
        ("metric = 'm' AND started_at >= 1 AND started_at < 2", "evaluations_metric"),
        ("app = 'a' AND metric = 'm' AND started_at >= 1 AND started_at < 2", "evaluations_app"),
        ("started_at >= 1 AND started_at < 2", "evaluations_started_at"),
    ]:
        plan = execute(path, f"EXPLAIN QUERY PLAN SELECT value FROM evaluations WHERE {condition}")
        assert f"USING INDEX {index} " in plan[0][3]


def test_reading_does_not_wait_for_a_writer(store, path):
    async def scenario():
        await store.add(sample("a"), [evaluation("a")])
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            points = await store.series(EVERYTHING)
            other.execute("ROLLBACK")
        return points

    assert len(run(store, scenario)) == 1


def test_a_locked_file_fails_an_addition_in_time_and_the_next_one_succeeds(store, path):
    async def scenario():
        await store.add(sample("a"), [evaluation("a")])
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            started = time.monotonic()
            with pytest.raises(EngineError, match="locked"):
                await store.add(sample("b"), [evaluation("b")])
            assert time.monotonic() - started < 30.0
            other.execute("ROLLBACK")
        return await store.add(sample("b"), [evaluation("b")])

    assert run(store, scenario) == [evaluation("b")]


def test_a_full_disk_fails_the_whole_addition_and_the_next_one_succeeds(store):
    large = Evaluation(sample_id="b", metric="m", version="1", outcome=Score(0.5, "x" * 500_000))

    async def scenario():
        await store.add(sample("a"), [evaluation("a")])
        connection = store._writer._connection  # noqa: SLF001 - a disk that is full, of this connection alone
        await connection.execute("PRAGMA max_page_count = 30")
        with pytest.raises(EngineError, match="full"):
            await store.add(sample("b"), [evaluation("b", "small"), large])
        assert await store.sample("b") is None
        return await store.add(sample("b"), [large])

    assert run(store, scenario) == [large]


def test_an_unwritable_path_fails_the_first_use_and_not_the_constructor(tmp_path):
    obstacle = tmp_path / "data"
    obstacle.write_text("a file where the directory should be")
    store = SQLiteStore(obstacle / "store.db")

    async def scenario():
        with pytest.raises(OSError, match="data"):
            await store.add(sample("a"), [])
        with pytest.raises(OSError, match="data"):
            await store.series(EVERYTHING)
        obstacle.unlink()
        await store.add(sample("a"), [])
        return await store.sample("a")

    assert run(store, scenario) == (sample("a"), [])


def test_after_the_file_was_removed_the_store_begins_a_new_one(store, path):
    async def scenario():
        await store.add(sample("a"), [evaluation("a")])
        assert await store.sample("a") is not None
        path.unlink()
        assert await store.sample("a") is None
        await store.add(sample("b"), [evaluation("b")])
        return await store.series(EVERYTHING)

    assert [point.sample_id for point in run(store, scenario)] == ["b"]
    assert execute(path, "SELECT id FROM samples") == [("b",)]


@pytest.mark.parametrize("steps", range(14))
@pytest.mark.parametrize("operation", ["add", "prune", "save", "series", "supplement"])
def test_cancelling_an_operation_at_any_point_leaves_no_transaction_open(store, path, operation, steps):
    many = [evaluation("new", f"m{number}") for number in range(20)]
    operations = {
        "add": lambda: store.add(sample("new", 5.0), many),
        "prune": lambda: store.prune(2.0),
        "save": lambda: store.save({"a": b"1", "b": b"2"}),
        "series": lambda: store.series(EVERYTHING),
        "supplement": lambda: store.supplement(
            [Supplement(id=str(number), received_at=1.0, source="contexts", key="k") for number in range(20)]
        ),
    }

    async def scenario():
        await store.add(sample("old"), [evaluation("old")])
        task = asyncio.ensure_future(operations[operation]())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        with closing(sqlite3.connect(path, timeout=5, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            other.execute("ROLLBACK")
        await store.add(sample("after"), [evaluation("after")])

    run(store, scenario)
    assert execute(path, "SELECT count(*) FROM evaluations WHERE sample_id = 'new'")[0][0] in (0, 20)
    assert execute(path, "SELECT count(*) FROM states")[0][0] in (0, 2)
    assert execute(path, "SELECT count(*) FROM supplements")[0][0] in (0, 20)
    assert execute(path, "SELECT (SELECT count(*) FROM samples) = count(DISTINCT sample_id) FROM evaluations") == [(1,)]


def test_additions_pruning_and_reading_at_the_same_time_all_succeed(store):
    async def scenario():
        await asyncio.gather(
            *(store.add(sample(str(number), 5.0), [evaluation(str(number))]) for number in range(20)),
            *(store.series(EVERYTHING) for _ in range(5)),
            store.prune(2.0),
            store.save({"a": b"1"}),
        )
        return await store.series(EVERYTHING)

    assert len(run(store, scenario)) == 20


def test_a_skipped_metric_is_no_number_in_the_file(store, path):
    skipped = Evaluation(sample_id="a", metric="m", version="1", outcome=Skipped("no_contexts"))
    run(store, lambda: store.add(sample("a"), [skipped]))
    assert execute(path, "SELECT outcome, value, reason FROM evaluations") == [("skipped", None, "no_contexts")]


def test_the_directory_and_the_file_are_for_the_owner_only(tmp_path):
    path = tmp_path / "data" / "store.db"
    store = SQLiteStore(path)

    async def scenario():
        await store.add(sample("a"), [])
        return {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir()}

    assert run(store, scenario) == {"store.db": 0o600, "store.db-wal": 0o600, "store.db-shm": 0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_file_that_is_no_database_is_reported_until_it_is_gone(store, path):
    path.write_bytes(b"not a database at all " * 500)

    async def scenario():
        for _ in range(2):
            with pytest.raises(EngineError, match="not a database"):
                await store.add(sample("a"), [])
        path.unlink()
        await store.add(sample("b"), [])
        return await store.sample("b")

    assert run(store, scenario) == (sample("b"), [])


def test_a_path_with_unusual_characters_is_opened_as_it_is_written(tmp_path):
    path = tmp_path / "a b%20c?#é.db"
    store = from_url(f"sqlite:///{path}")
    run(store, store.load)
    run(store, lambda: store.save({"a": b"1"}))
    assert path.exists()


def test_a_process_that_forgets_to_close_ends_all_the_same(path):
    script = """
import asyncio, sys
from gaugeway.storage.engines.sqlite.store import SQLiteStore

store = SQLiteStore(sys.argv[1])
asyncio.run(store.save({"a": b"1"}))
print("done")
"""
    command = [sys.executable, "-c", script, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "done\n"


def test_a_sqlite_url_names_the_file(tmp_path):
    path = tmp_path / "data" / "store.db"
    store = from_url(f"sqlite:///{path}")
    assert isinstance(store, SQLiteStore)
    run(store, lambda: store.add(sample("a"), []))
    assert path.exists()


@pytest.mark.parametrize("url", ["memory://", "mysql://user:secret@host/db", "store.db"])
def test_an_unknown_scheme_is_refused_with_those_that_are_known(url):
    with pytest.raises(ValueError, match=r"(unsupported URL|no) scheme.*; use .*sqlite://") as refusal:
        from_url(url)
    assert "secret" not in str(refusal.value)


def test_rows_that_cannot_be_read_are_left_out_of_every_answer_and_said_once(path, store, caplog):
    async def scenario():
        for at in range(4):
            await store.add(sample(str(at), float(at)), [evaluation(str(at))])
        await store.add(sample("evidence"), [evaluation("evidence", "m")])
        execute(path, "UPDATE evaluations SET value = ? WHERE sample_id = '1'", b"\x00\x00\x00?")
        execute(path, "UPDATE evaluations SET rate = ? WHERE sample_id = '2'", b"\x00")
        execute(path, "UPDATE evaluations SET evidence = '?' WHERE sample_id = 'evidence'")
        execute(path, "UPDATE samples SET payload = '{' WHERE id = '3'")
        for order in ("oldest", "highest"):
            page = Query(since=0.0, until=1e12, order=order, limit=3)
            assert {point.sample_id for point in await store.series(page)} == {"0", "3", "evidence"}
        for _ in range(2):
            assert [(one.n, one.w) for one in await store.summary(EVERYTHING)] == [(3, 3.0)]
        assert await store.sample("1") == (sample("1", 1.0), [])
        assert await store.sample("3") is None
        assert await store.sample("evidence") == (sample("evidence"), [])

    run(store, scenario)
    assert caplog.text.count("unreadable row") == 1


def test_a_sample_of_a_release_that_did_not_say_how_it_was_found_is_read(store, path):
    run(store, lambda: store.add(Sample(id="a", started_at=1.0), []))
    execute(path, "UPDATE samples SET payload = ?", '{"id":"a","started_at":1.0,"context_source":"tools"}')
    found, _ = run(store, lambda: store.sample("a"))
    assert (found.context_source, found.capture) == ("tools", None)
