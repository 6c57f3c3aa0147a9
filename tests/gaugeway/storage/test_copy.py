"""Moving between engines: everything arrives, broken off it goes on, and what is not there is told."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys

import pytest

from gaugeway.records import Evaluation, Failed, Sample, Score, Skipped, Supplement
from gaugeway.storage import copy as moving
from gaugeway.storage.copy import IncompleteError, move_store
from gaugeway.storage.engines.postgres.migrate import scripts
from gaugeway.storage.engines.postgres.queue import PostgresQueue
from gaugeway.storage.engines.postgres.store import PostgresStore
from gaugeway.storage.engines.sqlite.queue import SQLiteQueue
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.queues import Depth
from gaugeway.storage.stores import Query
from gaugeway.storage.stores import from_url as open_store
from gaugeway.storage.templates import StoredTemplate, open_templates
from tests.support.postgres import postgres

EVER = Query(since=0.0, until=1e12)
COUNT = 90


def gaugeway(*words):
    return subprocess.run(
        [sys.executable, "-m", "gaugeway", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


async def fill(store):
    for k in range(COUNT):
        name, outcome = f"s{k:03}", (Score(k / COUNT, "why"), Skipped("no_contexts"), Failed("timeout", "60 s"))[k % 3]
        made = [Evaluation(sample_id=name, metric=metric, version="1", outcome=outcome, judge="j") for metric in "ab"]
        await store.add(Sample(id=name, started_at=k * 8_000.0, tags={"k": str(k)}), made if k % 10 else [])
    await store.supplement(
        [Supplement(id=f"p{k}", received_at=float(k), source="feedback", exchange_id=f"s{k:03}") for k in range(30)]
    )
    await store.save({"alerts/cases": b"\x00", "there": b"old"})


async def contents(store):
    samples = [await store.sample(name) for name in await store.ids("", 1000)]
    said = await store.said("", 1000)
    states = {name: value for name, value in (await store.load()).items() if not name.startswith("move/")}
    return samples, said, states, len(await store.series(EVER))


@contextlib.asynccontextmanager
async def stores(path, url):
    async with contextlib.aclosing(SQLiteStore(path)) as file, contextlib.aclosing(PostgresStore(url)) as database:
        yield file, database


@pytest.fixture
def small_pages(monkeypatch):
    monkeypatch.setattr(moving, "PAGE", 20)


async def test_a_store_comes_out_of_the_move_as_it_went_in_and_back_again(tmp_path, small_pages):
    url = postgres().database()

    async with stores(tmp_path / "s.db", url) as (file, database):
        await fill(file)
        await database.save({"there": b"new"})
        moved = await move_store(file, database, origin="x")
        assert (moved.samples, moved.evaluations, moved.supplements, moved.states) == (COUNT, 162, 30, 1)
        before, after = await contents(file), await contents(database)
        assert after[0] == before[0]
        assert after[1] == before[1]
        assert after[2] == before[2] | {"there": b"new"}, "what is there stays"
        async with contextlib.aclosing(SQLiteStore(tmp_path / "back.db")) as back:
            await move_store(database, back, origin="y")
            assert (await contents(back))[:2] == before[:2]


async def test_a_move_that_was_broken_off_goes_on_where_it_was(tmp_path, small_pages):
    url = postgres().database()

    class Broken(Exception):
        pass

    async with stores(tmp_path / "s.db", url) as (file, database):
        await fill(file)

        def stop(moved):
            if moved.samples >= 40:
                raise Broken

        with pytest.raises(Broken):
            await move_store(file, database, origin="x", progress=stop)
        seen = []
        real = file.sample

        async def sample(sample_id):
            seen.append(sample_id)
            return await real(sample_id)

        file.sample = sample
        moved = await move_store(file, database, origin="x")
        assert seen == [f"s{k:03}" for k in range(40, COUNT)]
        assert moved.samples == COUNT
        assert (await contents(database))[0] == (await contents(file))[0]


async def test_what_is_not_found_again_ends_the_move(tmp_path):
    async with stores(tmp_path / "s.db", postgres().database()) as (file, database):
        await fill(file)

        async def forgetful(*_):
            return []

        database.add = forgetful
        with pytest.raises(IncompleteError, match="90 of 90 samples are missing in the target"):
            await move_store(file, database, origin="x")


@pytest.mark.full
def test_what_was_learned_of_prompts_moves_with_what_people_said_of_it(tmp_path):
    source, target = f"sqlite:///{tmp_path}/store.db", postgres().database()
    learned = [
        StoredTemplate(
            app="shop",
            version=state,
            kind="u",
            literals=("\x02Facts: ", "\x04"),
            slots=("passages",),
            split={"kind": "lines"},
            seen=10,
            learned_at=1.0,
            state=state,
        )
        for state in ("confirmed", "learned", "rejected")
    ]

    async def kept(url, new=()):
        async with contextlib.aclosing(open_templates(url)) as templates, contextlib.aclosing(open_store(url)) as store:
            await store.load()
            for one in new:
                await templates.put_template(one)
            return await templates.templates()

    asyncio.run(kept(source, learned))
    for _ in range(2):
        done = gaugeway("move", "--from", source, "--to", target)
        assert done.returncode == 0, done.stderr
        assert "3 learned prompts" in done.stdout
        assert asyncio.run(kept(target)) == learned


@pytest.mark.full
async def test_the_commands_make_the_tables_and_move_store_and_queue(tmp_path):
    url = postgres().database(empty=True)
    config = tmp_path / "gaugeway.toml"
    config.write_text(f'[queue]\nurl = "{url}"\n[store]\nurl = "{url}"\n')
    name = url.replace("gaugeway:secret@", "")
    latest = len(scripts())
    for said in (f"{name}: version 0 -> {latest}", f"{name}: version {latest} already"):
        done = gaugeway("migrate", "--config", config)
        assert (done.returncode, done.stdout.strip(), done.stderr) == (0, said, "")

    async with (
        contextlib.aclosing(SQLiteStore(tmp_path / "store.db")) as store,
        contextlib.aclosing(SQLiteQueue(tmp_path / "queue.db")) as queue,
    ):
        await fill(store)
        await queue.put([Sample(id=f"q{k}", started_at=1.0 + k) for k in range(250)])
        await queue.supply([Supplement(id="p", received_at=1.0, source="feedback", exchange_id="q1")])
    done = gaugeway("move", "--from", f"sqlite:///{tmp_path}/store.db", "--to", url)
    assert done.returncode == 0, done.stderr
    assert "90 samples, 162 evaluations, 30 supplements, 2 states" in done.stdout
    done = gaugeway("move", "--queue", "--from", f"sqlite:///{tmp_path}/queue.db", "--to", url)
    assert done.returncode == 0, done.stderr
    assert "250 samples" in done.stdout

    async with (
        contextlib.aclosing(PostgresQueue(url, 60.0, 3)) as queue,
        contextlib.aclosing(SQLiteQueue(tmp_path / "queue.db")) as old,
    ):
        assert (await old.depth()).ready == 0
        assert await queue.depth() == Depth(ready=250, leased=0, dead=0, oldest_started_at=1.0)
        assert len(await queue.take(10)) == 1


@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--from", "sqlite:///{here}/no.db", "--to", "sqlite:///{here}/x.db"], "no.db does not exist"),
        (["--from", "sqlite:///{here}/a.db", "--to", "sqlite:///{here}/a.db"], "are the same"),
        (
            ["--from", "mysql://me:secret@db/x", "--to", "sqlite:///{here}/a.db"],
            "--from: unsupported URL scheme 'mysql'",
        ),
        (["--from", "sqlite:///{here}/a.db", "--to", "y"], "--to: the URL has no scheme; use "),
        (
            ["--from", "postgres://me:secret@127.0.0.1:9/x", "--to", "sqlite:///{here}/a.db"],
            "postgres://127.0.0.1:9/x: ",
        ),
    ],
)
def test_a_move_that_cannot_be_is_refused_and_tells_no_password(tmp_path, words, said):
    done = gaugeway("move", *(word.format(here=tmp_path) for word in words))
    assert done.returncode == 2
    assert said in done.stderr
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr
