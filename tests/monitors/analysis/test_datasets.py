"""Data sets of captured exchanges on real engines: what a row keeps, near-equal questions, versions, two writers."""

import asyncio
import contextlib
import json

import pytest

from gaugeway.records import Alert, Context, Evaluation, Finding, Sample, Score, Supplement
from gaugeway.storage.engines.failures import Unsupported
from gaugeway.storage.erase import Subject
from gaugeway.storage.stores import from_url as open_store
from monitors.analysis import datasets
from monitors.analysis.datasets import UnknownDatasetError, open_datasets, written
from monitors.offline import dataset as reading
from monitors.offline.imports import openai_evals
from tests.support.clickhouse import clickhouse
from tests.support.postgres import postgres

QUESTIONS = (
    "How do I return a parcel?",
    "Which adapter charges the laptop?",
    "When does the museum open on Sundays?",
    "Can pregnant women take ibuprofen?",
    "What does the warranty of the kettle cover?",
)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    return f"sqlite:///{tmp_path}/store.db" if request.param == "sqlite" else postgres().database()


@pytest.fixture
def run(url):
    def run(scenario):
        async def main():
            opened = [open_store(url), open_datasets(url), open_datasets(url)]
            async with contextlib.AsyncExitStack() as stack:
                for one in opened:
                    await stack.enter_async_context(contextlib.aclosing(one))
                return await scenario(*opened)

        return asyncio.run(main())

    return run


def sample(name, question=QUESTIONS[0], at=1000.0, **fields):
    given = {"app": "shop", "response": f"Answer {name}.", "contexts": (Context(text="Parcels.", source="faq"),)}
    return Sample(id=name, started_at=at, question=question, context_source="explicit", **given | fields)


async def stored(store, *samples, score=0.2):
    for one in samples:
        await store.add(one, [Evaluation(sample_id=one.id, metric="faithfulness", version="1", outcome=Score(score))])


async def add(kept, store, *names, name="incident", now=2000.0, **more):
    return await kept.add(store, name, {"exchanges": names, "by": "ana"} | more, now)


def test_a_row_keeps_the_exchange_what_people_said_and_where_it_is_from(run):
    async def scenario(store, kept, other):
        await stored(store, sample("a", model="m1", prompt="2-abc"))
        said = {"received_at": 1500.0, "source": "feedback", "exchange_id": "a"}
        await store.supplement(
            [
                Supplement(id="1", label="faithfulness:pass", by="bo", **said),
                Supplement(id="2", label="faithfulness:fail", by="bo", **said),
                Supplement(id="3", reference="Within 30 days.", **said),
            ]
        )
        added = await add(kept, store, "a")
        assert (added.added, added.dataset.version, added.dataset.rows, added.dataset.apps) == (1, 1, 1, ("shop",))
        made, (record,) = await other.read("incident")
        assert made == added.dataset
        assert (record["user_input"], record["response"], record["model"]) == (QUESTIONS[0], "Answer a.", "m1")
        assert record["retrieved_contexts"] == [{"text": "Parcels.", "source": "faq"}]
        assert record["reference"] == "Within 30 days."
        assert record["expected_verdicts"] == {"faithfulness": "fail"}
        assert record["labels"] == ["faithfulness:pass", "faithfulness:fail"]
        about = {"exchange": "a", "prompt": "2-abc", "at": 1000.0, "alert": None, "by": "ana", "added_at": 2000.0}
        assert record["provenance"] == about

    run(scenario)


def test_near_equal_questions_are_one_row_of_an_app(run):
    async def scenario(store, kept, _):
        first = sample("a", "How can I return order 17, please?")
        await stored(store, first, sample("b", "how do I RETURN an order 18?"), sample("c", QUESTIONS[1]))
        await stored(store, sample("d", "How can I return order 17, please?", app="help"))
        added = await add(kept, store, "a", "b", "c", "d", "gone")
        assert (added.added, added.known, added.left_out) == (3, 1, 1)
        again = await add(kept, store, "b")
        assert (again.added, again.known, again.dataset) == (0, 1, added.dataset)
        _, records = await kept.read("incident")
        assert [record["id"] for record in records] == ["a", "c", "d"]

    run(scenario)


def test_a_label_or_a_reference_takes_the_place_of_a_row_without(run):
    async def scenario(store, kept, _):
        await stored(store, sample("a"), sample("b", reference="Within 30 days."))
        before = (await add(kept, store, "a")).dataset
        added = await add(kept, store, "b")
        assert (added.added, added.replaced, added.dataset.version) == (0, 1, 2)
        assert [record["id"] for record in (await kept.read("incident"))[1]] == ["b"]
        assert await kept.read("incident@1") == (before, (await kept.read("incident@1"))[1])
        assert (await add(kept, store, "a")).known == 1
        corrected = Supplement(id="1", received_at=1.0, source="feedback", exchange_id="b", reference="In 14 days.")
        await store.supplement([corrected])
        assert (await add(kept, store, "b")).replaced == 1
        assert (await kept.read("incident"))[1][0]["reference"] == "In 14 days."

    run(scenario)


def test_every_change_is_a_version_that_stays_as_it_was(run):
    async def scenario(store, kept, _):
        samples = [sample(f"s{n}", question) for n, question in enumerate(QUESTIONS)]
        await stored(store, *samples)
        made = [(await add(kept, store, one.id, now=2000.0 + n)).dataset for n, one in enumerate(samples)]
        assert [one.version for one in made] == [1, 2, 3, 4, 5]
        assert len({one.hash for one in made}) == 5
        for n, one in enumerate(made, 1):
            version, records = await kept.read(f"incident@{n}")
            assert version == one
            assert [record["id"] for record in records] == [f"s{m}" for m in range(n)]
        assert await kept.remove("incident", ["s4"], 3000.0)
        removed, _ = await kept.read("incident")
        assert (removed.version, removed.hash, removed.rows) == (6, made[3].hash, 4)
        assert not await kept.remove("incident", ["s4"], 3000.0)
        assert await kept.versions() == [removed]
        assert await kept.versions("help") == []
        for wrong in ("incident@7", "incident@0", "incident@x", "incident@", "other"):
            with pytest.raises(UnknownDatasetError, match=f"no data set {wrong}"):
                await kept.read(wrong)
        assert await kept.remove("incident", [], 3000.0)
        assert await kept.versions() == []
        assert not await kept.remove("incident", [], 3000.0)

    run(scenario)


def test_two_that_add_at_once_lose_nothing(run):
    async def scenario(store, one, other):
        words = [chr(ord("a") + n) * 4 for n in range(12)]
        await stored(store, *(sample(word, f"Where is {word}?") for word in words))
        await asyncio.gather(*(add((one, other)[n % 2], store, word) for n, word in enumerate(words)))
        version, records = await other.read("incident")
        assert (version.version, version.rows) == (12, 12)
        assert sorted(record["id"] for record in records) == words

    run(scenario)


def test_an_alert_gives_its_worst_answers(run):
    async def scenario(store, kept, _):
        for n, score in enumerate((0.1, 0.5, 0.3, 0.95)):
            await stored(store, sample(f"s{n}", QUESTIONS[n], at=1000.0 + n), score=score)
        await stored(store, sample("before", QUESTIONS[4], at=900.0), score=0.0)
        finding = Finding(evidence_log10=1.0, baseline=0.9, onset=1000.0, n=4)
        about = {"rule": "r", "metric": "faithfulness", "app": "shop", "severity": "page", "state": "resolved"}
        alert = Alert(fingerprint="fp", since=1001.0, ended_at=1100.0, finding=finding, direction="drop", **about)
        added = await kept.add(store, "incident", {"alert": alert, "limit": 2}, 2000.0)
        assert added.added == 2
        _, records = await kept.read("incident")
        assert [(record["id"], record["provenance"]["alert"]) for record in records] == [("s0", "fp"), ("s2", "fp")]
        await kept.add(store, "incident", {"alert": alert}, 2000.0)
        assert [record["id"] for record in (await kept.read("incident"))[1]] == ["s0", "s2", "s1"]

    run(scenario)


def test_a_filter_and_labels_select_answers(run):
    async def scenario(store, kept, _):
        for n, score in enumerate((0.6, 0.2, 0.7)):
            await stored(store, sample(f"s{n}", QUESTIONS[n], at=1000.0 + n), score=score)
        await store.supplement([Supplement(id="1", received_at=1.0, source="feedback", exchange_id="s2", rating=0.0)])

        async def ids(**wanted):
            await kept.add(store, "some", {"since": 0.0, **wanted}, 2000.0)
            _, records = await kept.read("some")
            await kept.remove("some", [], 2000.0)
            return [record["id"] for record in records]

        assert await ids(app="shop", metric="faithfulness", below=0.7) == ["s1", "s0"]
        assert await ids(metric="faithfulness", above=0.6) == ["s2"]
        assert await ids(labelled=True) == ["s2"]
        assert await ids(exchanges=["s1"]) == ["s1"]
        with pytest.raises(ValueError, match="give exchanges"):
            await ids()
        for wrong in ({"below": 0.5}, {"app": "shop", "above": 0.5}):
            with pytest.raises(ValueError, match="need a metric"):
                await ids(**wrong)
        with pytest.raises(ValueError, match="no stored exchange"):
            await ids(app="nobody")

    run(scenario)


def test_without_content_there_is_nothing_to_keep(run):
    async def scenario(store, kept, _):
        await stored(store, sample("a", "blake2b:1234", response="blake2b:5678"))
        with pytest.raises(ValueError, match=r"capture\.content is false"):
            await add(kept, store, "a")
        assert await kept.versions() == []

    run(scenario)


def test_the_bounds_hold(run, monkeypatch):
    async def scenario(store, kept, _):
        await stored(store, *(sample(f"s{n}", question) for n, question in enumerate(QUESTIONS)))
        monkeypatch.setattr(datasets, "MAX_ROWS", 2)
        added = await add(kept, store, "s0", "s1", "s2")
        assert (added.added, added.too_many) == (2, 1)
        monkeypatch.setattr(datasets, "MAX_DATASETS", 1)
        with pytest.raises(ValueError, match="no room: at most 1 data sets"):
            await add(kept, store, "s0", name="second")
        monkeypatch.setattr(datasets, "MAX_STORED_CHARACTERS", 100)
        monkeypatch.setattr(datasets, "MAX_ROWS", 9)
        with pytest.raises(ValueError, match="no room"):
            await add(kept, store, "s3")
        for wrong in ("", "Incident", "a@2", "a/b", "x" * 65):
            with pytest.raises(ValueError, match="no name of a data set"):
                await add(kept, store, "s0", name=wrong)
        assert (await kept.read("incident"))[0] == added.dataset

    run(scenario)


def test_exchanges_that_are_named_are_all_added(run):
    async def scenario(store, kept, _):
        names = [chr(ord("a") + n) * 4 for n in range(24)]
        await stored(store, *(sample(name, f"Where is {name}?") for name in names))
        assert (await add(kept, store, *names, limit=3)).added == 24

    run(scenario)


def test_a_person_is_deleted_from_every_version(run):
    async def scenario(store, kept, _):
        await stored(store, sample("a", "Where is the parcel of Maria Kessler?"), sample("b", QUESTIONS[1]))
        before = (await add(kept, store, "a", "b")).dataset
        assert await kept.forget(Subject(match="maria kessler"), dry_run=True) == 1
        assert (await kept.read("incident"))[0] == before
        assert await kept.forget(Subject(match="maria kessler")) == 1
        after, records = await kept.read("incident@1")
        assert [record["id"] for record in records] == ["b"]
        assert after.hash != before.hash
        assert await kept.forget(Subject(app="nobody")) == 0
        for digit in "023456789":  # of the hashes in a version, which are about nobody; the metric's version is 1
            assert await kept.forget(Subject(match=digit), dry_run=True) == 0
        assert (await kept.read("incident@1"))[0] == after

    run(scenario)


def test_files_of_other_tools(run, tmp_path):
    async def scenario(store, kept, _):
        await stored(store, sample("a", reference="Within 30 days."), sample("b", QUESTIONS[1]))
        await add(kept, store, "a", "b")
        return (await kept.read("incident"))[1]

    records = run(scenario)
    own = tmp_path / "set.jsonl"
    own.write_text(written(records, "jsonl"))
    samples, notes = reading.read(own)
    assert notes == []
    assert [(one.id, one.question, one.reference) for one in samples] == [
        ("a", QUESTIONS[0], "Within 30 days."),
        ("b", QUESTIONS[1], None),
    ]
    first, second = map(json.loads, written(records, "ragas").splitlines())
    assert first == {
        "user_input": QUESTIONS[0],
        "response": "Answer a.",
        "retrieved_contexts": ["Parcels."],
        "reference": "Within 30 days.",
        "reference_contexts": None,
    }
    assert second["reference"] is None
    golden, _ = json.loads(written(records, "deepeval"))
    assert golden == {
        "input": QUESTIONS[0],
        "actual_output": "Answer a.",
        "expected_output": "Within 30 days.",
        "retrieval_context": ["Parcels."],
        "context": None,
    }
    evals = tmp_path / "evals.jsonl"
    evals.write_text(written(records, "openai-evals"))
    imported = openai_evals.load([evals], {})
    (back, _), _ = reading.collect(enumerate(imported.records, 1))
    assert (back.id, back.question, back.response) == ("a", QUESTIONS[0], "Answer a.")
    assert (back.reference, [passage.text for passage in back.contexts]) == ("Within 30 days.", ["Parcels."])


def test_an_engine_that_keeps_none_says_so(tmp_path):
    async def main():
        url = f"sqlite:///{tmp_path}/store.db"
        opened = open_store(url), open_datasets(clickhouse().database())
        async with contextlib.AsyncExitStack() as stack:
            store, columnar = [await stack.enter_async_context(contextlib.aclosing(one)) for one in opened]
            assert await columnar.versions() == []
            await stored(store, sample("a"))
            with pytest.raises(Unsupported, match="does not offer datasets"):
                await add(columnar, store, "a")

    asyncio.run(main())
