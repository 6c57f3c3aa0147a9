"""One person's data leaves the store, the queue and the judge's file, and the bytes with it; nobody else's does."""

import asyncio
import sqlite3

import pytest
from click.testing import CliRunner

from gateway.cli import main
from monitors.forgetting import Forgetful, Subject
from monitors.judges.cache import Kept
from monitors.judges.cache_file import AnswerFile
from monitors.queues.sqlite import SQLiteQueue
from monitors.records import Context, Evaluation, Sample, Score, Supplement
from monitors.stores import Query
from monitors.stores.sqlite import SQLiteStore

HERS = "maria.kessler@example.org"
EVER = Query(since=0.0, until=1e12)


def sample(name, **fields):
    return Sample(**({"id": name, "started_at": 1.0, "app": "shop", "question": "q", "response": "r"} | fields))


def evaluation(one, said):
    return Evaluation(
        sample_id=one.id, metric="faithfulness", version="1", outcome=Score(0.5, said, ({"claim": said},))
    )


SAMPLES = {
    "question": sample("question", question=f"Where is the parcel of {HERS}?"),
    "response": sample("response", response=f"Ask {HERS.upper()}."),
    "context": sample("context", contexts=(Context(text="t", source=f"mail from {HERS}"),)),
    "tag": sample("tag", tags={"user": HERS}),
    "session": sample("session", session=f"s-{HERS}"),
    "other app": sample("other app", app="help", question=HERS, trace_id="t" * 32),
    "nobody": sample("nobody", question="maria.kessler(at)example.org", session="s-2"),
}


def supplement(name, **fields):
    return Supplement(**({"id": name, "received_at": 1.0, "source": "feedback"} | fields))


SUPPLEMENTS = [
    supplement("of hers", exchange_id="question", rating=0.0),
    supplement("by trace", trace_id="t" * 32, rating=1.0),
    supplement("says it", exchange_id="nobody", comment=f"She wrote from {HERS}"),
    supplement("of nobody", exchange_id="nobody", rating=1.0),
]


def opened(path, scenario):
    async def run():
        store, queue = SQLiteStore(path / "store.db"), SQLiteQueue(path / "queue.db")
        try:
            return await scenario(store, queue)
        finally:
            await store.aclose()
            await queue.aclose()

    return asyncio.run(run())


def fill(path):
    async def scenario(store, queue):
        for one in SAMPLES.values():
            await store.add(one, [evaluation(one, f"about {one.question}")])
        await store.supplement(SUPPLEMENTS)
        await queue.put(list(SAMPLES.values()))
        await queue.lease(2)
        await queue.supply(SUPPLEMENTS)
        answers = AnswerFile(path / "judge-answers.db")
        await answers.put(b"k", Kept(HERS.encode(), 0.0, 1e12))
        await answers.aclose()

    opened(path, scenario)


async def left(store, queue):
    points = {point.sample_id for point in await store.series(EVER)}
    said = {one.id for name in SAMPLES.values() for one in await store.supplements_of(name)}
    depth = await queue.depth()
    return points, said, depth.ready + depth.leased, {one.id for one in await queue.take(10)}


def test_what_is_meant_goes_and_the_rest_stays(tmp_path):
    fill(tmp_path)

    async def scenario(store, queue):
        assert isinstance(store, Forgetful)
        assert isinstance(queue, Forgetful)
        before = await left(store, queue)
        would = dict(await store.forget(Subject(match=HERS), dry_run=True))
        assert would == {"samples": 6, "evaluations": 6, "supplements": 3}
        assert (await left(store, queue))[:3] == before[:3]
        assert dict(await store.forget(Subject(match=HERS))) == would
        counted = {"queued samples": 6, "dead letters": 0, "queued supplements": 3}
        assert dict(await queue.forget(Subject(match=HERS), dry_run=True)) == counted
        assert dict(await queue.forget(Subject(match=HERS))) == counted
        points, said, waiting, _ = await left(store, queue)
        assert points == {"nobody"}
        assert said == {"of nobody"}
        assert waiting == 1
        assert set((await store.forget(Subject(match=HERS))).values()) == {0}

    opened(tmp_path, scenario)


@pytest.mark.parametrize(
    ("subject", "gone"),
    [
        ({"app": "help"}, {"other app"}),
        ({"session": f"s-{HERS}"}, {"session"}),
        ({"session": HERS}, set()),
        ({"app": "help", "match": HERS}, {"other app"}),
        ({"app": "help", "session": "s-2"}, set()),
        ({"match": "%"}, set()),
        ({"match": "MARIA.KESSLER("}, {"nobody"}),
    ],
)
def test_of_what_is_given_everything_must_fit(tmp_path, subject, gone):
    fill(tmp_path)

    async def scenario(store, queue):
        await store.forget(Subject(**subject))
        await queue.forget(Subject(**subject))
        points, _, waiting, _ = await left(store, queue)
        assert set(SAMPLES) - points == gone
        assert waiting == len(SAMPLES) - len(gone)

    opened(tmp_path, scenario)


@pytest.mark.parametrize("wanted", ["Jos\u00e9", "Jose\u0301", "JOS\u00c9", 'say "hi"', "a\nb", "\u6771\u4eac"])
def test_a_text_is_found_however_it_is_written(tmp_path, wanted):
    text = 'by Jos\u00e9, who did say "hi", a\nb, \u6771\u4eac'

    async def scenario(store, _):
        await store.add(sample("a", question=text), [])
        return await store.forget(Subject(match=wanted))

    assert opened(tmp_path, scenario)["samples"] == 1


def test_a_row_that_cannot_be_read_is_searched_too(tmp_path):
    fill(tmp_path)
    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.execute("UPDATE samples SET payload = '{broken ' || payload WHERE id = 'question'")
    connection.close()

    async def scenario(store, _):
        await store.forget(Subject(match=HERS))
        return await store.series(EVER)

    assert [point.sample_id for point in opened(tmp_path, scenario)] == ["nobody"]


def test_more_than_one_batch(tmp_path):
    async def scenario(store, _):
        for number in range(1203):
            await store.add(sample(f"{number}", question=HERS if number % 2 else "q"), [])
        return await store.forget(Subject(match=HERS))

    assert opened(tmp_path, scenario)["samples"] == 601


def forget(*arguments):
    return CliRunner().invoke(main, ["forget", *map(str, arguments)])


def test_the_command_counts_says_nothing_of_the_content_and_leaves_no_byte(tmp_path):
    fill(tmp_path)
    dry = forget("--data-dir", tmp_path, "--match", HERS, "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert "nothing was deleted" in dry.output
    assert HERS.encode() in (tmp_path / "store.db").read_bytes()
    done = forget("--data-dir", tmp_path, "--match", HERS)
    assert done.exit_code == 0, done.output
    counts = {"samples: 6", "evaluations: 6", "supplements: 3", "queued samples: 6", "queued supplements: 3"}
    assert counts | {"judge answers: 1"} <= set(done.output.splitlines())
    assert HERS not in done.output + dry.output
    for file in tmp_path.iterdir():
        assert HERS.encode() not in file.read_bytes(), file


@pytest.mark.parametrize("arguments", [[], ["--match", " "], ["--match", "x"], ["--session", "s"]])
def test_without_a_subject_or_data_nothing_is_done(tmp_path, arguments):
    answer = forget("--data-dir", tmp_path / "none", *arguments)
    assert answer.exit_code == 2
    assert not (tmp_path / "none").exists()
