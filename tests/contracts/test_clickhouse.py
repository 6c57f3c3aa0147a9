"""The store in ClickHouse beyond the port: two processes at once, what is deleted, moved, refused, and not told."""

import asyncio

import pytest
from click.testing import CliRunner

from gaugeway.cli.main import main
from gaugeway.demo.servers import free_ports
from gaugeway.records import Context, Evaluation, Sample, Score, Skipped, Supplement
from gaugeway.storage.copy import move_store
from gaugeway.storage.engines.clickhouse.schema import SCRIPTS
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.erase import Subject
from gaugeway.storage.stores import Query
from tests.support.clickhouse import clickhouse

EVER = Query(since=0.0, until=1e12)
HERS = "maria.kessler@example.org"


def sample(name, **fields):
    return Sample(**({"id": name, "started_at": 1.0} | fields))


def evaluation(name, outcome=None, metric="faithfulness"):
    return Evaluation(sample_id=name, metric=metric, version="1", outcome=outcome or Score(0.5))


@pytest.fixture
def url():
    return clickhouse().database()


def opened(url, scenario, count=1):
    from gaugeway.storage.engines.clickhouse.store import ClickHouseStore

    async def run():
        stores = [ClickHouseStore(url) for _ in range(count)]
        try:
            return await scenario(*stores)
        finally:
            for store in stores:
                await store.aclose()

    return asyncio.run(run())


def test_what_two_processes_add_at_the_same_moment_is_read_once_and_an_outcome_before_a_skip(url):
    joined = {"contexts": (Context(text="c"),), "context_source": "contexts_api"}

    async def scenario(one, two):
        await asyncio.gather(one.load(), two.load())
        for number in range(5):
            name = f"{number}"
            first = [evaluation(name, Score(0.25)), evaluation(name, Skipped("no_contexts"), "m")]
            second = [evaluation(name, Score(0.75)), evaluation(name, Score(0.5), "m")]
            await asyncio.gather(one.add(sample(name), first), two.add(sample(name, **joined), second))
        points = await one.series(EVER)
        assert [point.sample_id for point in points if point.metric == "m"] == list("01234")
        assert len(points) == 10
        assert points == await two.series(EVER)
        assert sum(found.n for found in await one.summary(EVER)) == sum(point.outcome == "score" for point in points)
        assert (await one.holds(list("01234"))) == dict.fromkeys("01234", 2)

    opened(url, scenario, 2)


def test_rows_that_were_written_twice_are_read_by_the_same_rule_before_and_after_a_merge(url):
    from gaugeway.storage.engines.clickhouse import schema as clickhouse_schema
    from gaugeway.storage.engines.clickhouse import store as clickhouse_adding

    async def scenario(store):
        for position, outcome in ((7, Skipped("no_contexts")), (9, Score(0.9)), (8, Score(0.8))):
            call = clickhouse_adding.wanted(sample("a"), [evaluation("a", outcome)])
            made = clickhouse_adding.additions([call], {}, position)
            await store.database.insert("samples", clickhouse_schema.SAMPLES, made.samples)
            await store.database.insert("evaluations", clickhouse_schema.EVALUATIONS, made.evaluations)
        for _ in range(2):
            assert [point.value for point in await store.series(EVER)] == [0.8]
            assert [one.n for one in await store.summary(EVER)] == [1]
            assert (await store.sample("a"))[1] == [evaluation("a", Score(0.8))]
            await store.database.command("OPTIMIZE TABLE evaluations FINAL")

    opened(url, scenario)


def test_many_states_are_one_block(url):
    states = {f"detector/{number}": bytes(range(256)) * 80 for number in range(300)}  # 6 MB

    async def scenario(store):
        await store.save(states)
        assert await store.load() == states

    opened(url, scenario)
    database = url.rpartition("/")[2].partition("?")[0]
    made = clickhouse().ask(f"SELECT count() FROM system.parts WHERE database = '{database}' AND table = 'states'")
    assert made == [["1"]]


def test_one_bad_call_does_not_spoil_its_batch(url):
    async def scenario(store):
        bad = store.add(sample("b", started_at=1e300), [])
        worse = store.add(sample("c", question="\ud800"), [])
        found = await asyncio.gather(store.add(sample("a"), [evaluation("a")]), bad, worse, return_exceptions=True)
        assert found[0] == [evaluation("a")]
        assert all(isinstance(one, ValueError) for one in found[1:])

    opened(url, scenario)


def test_lists_that_are_too_long_for_one_parameter_are_asked_for_in_pieces(url):
    names = [f"{number:0>200}" for number in range(1000)]

    async def scenario(store):
        await asyncio.gather(*(store.add(sample(name, question="q"), [evaluation(name)]) for name in names))
        assert len(await store.questions(names)) == 1000
        assert await store.holds(names) == dict.fromkeys(names, 1)
        said = [Supplement(id=name, received_at=1.0, source="feedback", exchange_id=name) for name in names]
        for _ in range(2):
            assert len(await store.supplement(said)) == 1000
        assert (await store.forget(Subject(match="q"))) == {"samples": 1000, "evaluations": 1000, "supplements": 1000}

    opened(url, scenario)


def test_what_is_about_one_person_goes_and_the_rest_stays(url):
    async def scenario(store):
        await store.add(sample("hers", question=f"Where is the parcel of {HERS}?", trace_id="t"), [evaluation("hers")])
        await store.add(sample("other", question="q"), [evaluation("other")])
        said = [("1", {"exchange_id": "hers"}), ("2", {"trace_id": "t"}), ("3", {"exchange_id": "other"})]
        said.append(("4", {"exchange_id": "other", "comment": f"She is {HERS}"}))
        given = [Supplement(id=name, received_at=1.0, source="feedback", **fields) for name, fields in said]
        await store.supplement(given)
        would = {"samples": 1, "evaluations": 1, "supplements": 3}
        assert await store.forget(Subject(match=HERS), dry_run=True) == would
        assert len(await store.series(EVER)) == 2
        assert await store.forget(Subject(match=HERS)) == would
        assert [point.sample_id for point in await store.series(EVER)] == ["other"]
        assert [one.id for one in await store.supplements_of(sample("other", trace_id="t"))] == ["3"]
        rows = await store.database.query("SELECT count() FROM samples")
        assert rows == [(1,)]
        assert set((await store.forget(Subject(match=HERS))).values()) == {0}

    opened(url, scenario)


def test_a_store_is_moved_here_and_back(url, tmp_path):
    async def scenario(store):
        old, new = SQLiteStore(tmp_path / "old.db"), SQLiteStore(tmp_path / "new.db")
        for number in range(250):
            name = f"{number:03}"
            await old.add(sample(name, started_at=number * 3e4, tags={"a": "\0'\\"}), [evaluation(name, Score(0.25))])
        await old.supplement([Supplement(id="s", received_at=1.0, source="feedback", exchange_id="001", rating=1.0)])
        await old.save({"alerts": b"\x00\xff"})
        for source, target in ((old, store), (store, new)):
            moved = await move_store(source, target, origin="x")
            assert (moved.samples, moved.evaluations, moved.supplements, moved.states) == (250, 250, 1, 1)
        assert await new.series(EVER) == await old.series(EVER)
        assert (await new.load())["alerts"] == b"\x00\xff"
        await old.aclose()
        await new.aclose()

    opened(url, scenario)


def test_a_refusal_quotes_nothing_of_what_was_asked_and_the_next_call_works(url):
    async def scenario(store):
        with pytest.raises(OSError, match=r"^clickhouse://127.0.0.1:\d+/test_\d+: error 47 \(UNKNOWN_IDENTIFIER\)$"):
            await store.database.query("SELECT nonsense, {text:String}", {"text": HERS})
        assert await store.load() == {}

    opened(url, scenario)


def test_the_tables_are_made_once_and_those_of_a_newer_release_are_refused(url, tmp_path):
    config = tmp_path / "gaugeway.toml"
    config.write_text(f'[store]\nurl = "{url}"\n')

    def migrate():
        return CliRunner().invoke(main, ["migrate", "--config", str(config), "--data-dir", str(tmp_path)]).output

    newest = len(SCRIPTS)
    assert migrate().endswith(f"version 0 -> {newest}\n")
    assert migrate().endswith(f"version {newest} already\n")
    database = url.rpartition("/")[2].partition("?")[0]
    clickhouse().ask("INSERT INTO versions (version) VALUES (99)", database)
    assert f"version 99, this release knows {newest}" in migrate()


def test_an_engine_that_is_not_there_is_named_without_the_password_and_left_in_peace():
    pytest.importorskip("clickhouse_connect")

    async def scenario(store):
        for expected in ("127.0.0.1", "next try in"):
            with pytest.raises(OSError, match=expected) as caught:
                await store.load()
            assert "secret" not in str(caught.value)

    opened(f"clickhouse://u:secret@127.0.0.1:{free_ports(1)[0]}/d", scenario)
