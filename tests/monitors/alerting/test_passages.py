"""What is read of stored exchanges to find a contradicting document, and what an alert says of it."""

from __future__ import annotations

import asyncio
import random
import re
from dataclasses import replace

import pytest

from gaugeway.records import Context, Evaluation, Sample, Score, Skipped
from gaugeway.settings.shared import Rule
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.stores import Query
from monitors.alerting import description
from monitors.alerting import stored_exchanges as reading
from monitors.alerting.notifiers.message import annotations_of
from monitors.alerting.stored_exchanges import MAX_EXCHANGES, read_passages
from tests.support.alerting import T0, People, replace_config, run

SUPPORTED = {"claim": "It opens at nine.", "verdict": "supported", "contexts": [0]}
AGAINST = {"claim": "It opens at nine.", "verdict": "contradicted", "contexts": [1]}
HOURS = Context(text="The shop opens at nine.", source="hours.md")
OLD = Context(text="The shop opens at noon.", id="chunk-7")


def exchange(name, started_at, *contexts, value=1.0, pieces=(SUPPORTED,), relevance=0.9):
    """A sample with its evaluations: faithfulness with evidence, and the relevance of its passages."""
    sample = Sample(id=name, started_at=started_at, app="shop", question=f"When, {name}?", contexts=contexts)
    outcomes = {
        "faithfulness": Score(value, evidence=tuple(pieces)),
        "context_relevancy": Score(relevance),
        "lexical_groundedness": Score(value),
    }
    return sample, [
        Evaluation(sample_id=name, metric=metric, version="1", judge="j", outcome=outcome)
        for metric, outcome in outcomes.items()
    ]


def read(path, exchanges, *, quote=True, metric="faithfulness"):
    async def main():
        store = SQLiteStore(path)
        try:
            for sample, evaluations in exchanges:
                await store.add(sample, evaluations)
            points = await store.series(Query(since=0.0, until=T0))
            return await read_passages(store, metric, (points, points), quote=quote)
        finally:
            await store.aclose()

    return asyncio.run(main())


def test_an_exchange_has_the_names_of_its_documents_and_whether_claims_are_contradicted(tmp_path):
    bare = replace(OLD, id=None)
    found = read(
        tmp_path / "s.db",
        [
            exchange("good", 1.0, HOURS, OLD),
            exchange("bad", 2.0, HOURS, OLD, pieces=(SUPPORTED, AGAINST)),
            exchange("bare", 3.0, bare),
            exchange("none", 4.0),
        ],
    )
    assert set(found) == {"good", "bad", "bare"}
    assert found["good"].documents == found["bad"].documents == {"hours.md", "chunk-7"}
    assert (found["good"].contradicted, found["bad"].contradicted) == (False, True)
    (name,) = found["bare"].documents
    assert name.startswith("text:")


def test_a_passage_that_the_answer_contradicts_counts_and_no_verdict_is_neither(tmp_path):
    sample, _ = exchange("one", 1.0, HOURS)
    about = {"sample_id": "one", "version": "1", "judge": "j"}
    outcomes = {
        "hallucination": Score(1.0, evidence=({"context": 0, "contradicted": True, "reason": ""},)),
        "lexical_groundedness": Score(0.5),
        "faithfulness": Skipped("no_claims"),
    }
    with_verdict = [Evaluation(metric=metric, outcome=outcome, **about) for metric, outcome in outcomes.items()]
    metric = "lexical_groundedness"
    assert read(tmp_path / "a.db", [(sample, with_verdict)], metric=metric)["one"].contradicted is True
    assert read(tmp_path / "b.db", [(sample, with_verdict[1:])], metric=metric)["one"].contradicted is None


def test_where_alerts_may_not_quote_documents_have_a_hash_for_a_name(tmp_path):
    found = read(tmp_path / "s.db", [exchange("one", 1.0, HOURS, replace(OLD, id=None))], quote=False)
    assert len(found["one"].documents) == 2
    assert all(set(name) <= set("0123456789abcdef") for name in found["one"].documents)


def test_no_more_exchanges_are_read_than_the_limit(tmp_path):
    some = [exchange(f"e{index}", float(index), HOURS) for index in range(MAX_EXCHANGES + 50)]
    assert len(read(tmp_path / "s.db", some)) == MAX_EXCHANGES


def test_a_store_that_is_too_slow_gives_no_passages(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_READ_S", 0.0)
    assert read(tmp_path / "s.db", [exchange("one", 1.0, HOURS)]) == {}


async def drop(world, *, wrong):
    """Sixty good minutes, then some exchanges get a wrong document and their answers contradict it."""
    rng = random.Random(3)
    number = 0
    for minute in range(110):
        for _ in range(6):
            number += 1
            bad = wrong and minute >= 60 and rng.random() < 0.5
            value = 0.1 if bad else min(1.0, rng.uniform(0.85, 1.0) - (0.0 if wrong or minute < 60 else 0.3))
            names = {f"doc-{rng.randrange(5)}.md" for _ in range(2)} | ({"old.md"} if bad else set())
            contexts = [Context(text=f"From {name}.", source=name) for name in sorted(names)]
            pieces = (AGAINST,) if bad else (SUPPORTED,)
            relevance = rng.uniform(0.8, 1.0)
            one = exchange(f"x{number}", world.now + 9.0 * (number % 6), *contexts, value=value, pieces=pieces)
            await world.store.add(
                one[0], [replace(e, outcome=Score(relevance)) if e.metric == "context_relevancy" else e for e in one[1]]
            )
        world.now += 60.0
        await world.tick()
    await world.later(600.0)
    return world.alert


@pytest.mark.full
@pytest.mark.parametrize("quote", [True, False])
def test_an_alert_names_the_document_that_contradicts_the_answers(tmp_path, quote):
    alert = run(
        tmp_path / "store.db",
        lambda world: drop(world, wrong=True),
        rules=(Rule(metric="faithfulness", slo=0.85, name="answers"),),
        config=replace_config(content=quote),
        people=People(),
    )
    assert alert.likely_cause == "retrieval"
    assert ("source=old.md" in alert.affected) is quote
    assert "of them the answer and a passage contradict each other" in alert.cause_detail
    assert alert.cause_strength >= 0.95
    assert alert.cause_evidence[0].startswith("scores of exchanges with and without the source")


@pytest.mark.full
def test_an_alert_about_answers_that_got_worse_with_all_documents_names_the_generation(tmp_path):
    alert = run(
        tmp_path / "store.db",
        lambda world: drop(world, wrong=False),
        rules=(Rule(metric="faithfulness", slo=0.85, name="answers"),),
        people=People(),
    )
    assert alert.likely_cause == "generation"
    assert "no source that the drop is confined to" in alert.cause_evidence
    assert 0.6 <= alert.cause_strength <= 1.0


async def decay(world):
    """Of 300 sources one, in use all along, is damaged after an hour: answers that got it score lower.

    A few others always score lowest.
    """
    rng = random.Random(5)
    number = 0
    for minute in range(110):
        for _ in range(8):
            number += 1
            has = rng.random() < 0.25
            low = has and minute >= 60
            value = rng.choice([0.1, 0.25, 0.5]) if low else rng.choice([0.8, 1.0, 1.0])
            value = 0.0 if number % 40 == 0 and not has else value
            names = {f"doc-{rng.randrange(299)}" for _ in range(3)} | ({"tariffs#3"} if has else set())
            contexts = [Context(text=f"From {name}.", id=name, source="manual.pdf") for name in sorted(names)]
            at = world.now + 7.0 * (number % 8)
            sample, evaluations = exchange(f"y{number}", at, *contexts, value=value, relevance=rng.uniform(0.8, 1.0))
            await world.store.add(sample, evaluations)
        world.now += 60.0
        await world.tick()
    await world.later(600.0)
    shown = [await world.store.sample(name) for name in world.alert.worst_exchanges]
    return world.alert, [{one.id for one in sample.contexts} for sample, _ in shown]


@pytest.mark.full
def test_an_alert_names_the_one_of_300_sources_that_became_bad_with_its_share_of_bad_and_good_answers(tmp_path):
    alert, contexts = run(
        tmp_path / "store.db",
        decay,
        rules=(Rule(metric="faithfulness", slo=0.9, name="answers"),),
        people=People(),
    )
    assert (alert.likely_cause, alert.cause_source) == ("retrieval", "tariffs#3")
    assert re.match(r"Source tariffs#3, since \d\d:\d\d UTC, in \d+ % of the bad answers and ", alert.cause_detail)
    assert annotations_of(alert)["source"] == "tariffs#3"
    assert 0.8 <= alert.cause_strength <= 0.9
    assert len(contexts) == 3
    assert all("tariffs#3" in one for one in contexts)
    assert [one.value for one in alert.examples] == [0.1] * 3


QUESTIONS = (
    "How long can I return a parcel?",
    "Which adapter charges the laptop?",
    "When is my invoice due?",
    "Can I change the delivery address?",
    "How do I reset my password?",
    "Does the warranty cover the battery?",
)


async def arrival(world, *, asked, before=50, since=20):
    """Six questions, asked again and again; after a while a new source comes with half of the answers.

    `asked`: with every answer to these questions; without them, with any. Nine in ten answers with it are bad, although
    no claim contradicts a passage, and its passages are somewhat less relevant.
    """
    rng = random.Random(11)
    per_minute, number, first = 15, 0, None
    for minute in range(before + since):
        for k in range(per_minute):
            number += 1
            which = rng.randrange(6)
            has = minute >= before and (which in asked if asked else rng.random() < 0.5)
            value = rng.choice([0.0, 0.0, 0.1]) if rng.random() < (0.9 if has else 0.03) else rng.choice([1.0, 0.95])
            names = [f"kb/{which}.md", f"kb/{(which + 1) % 6}.md", *(["kb/legacy-2011.md"] if has else [])]
            contexts = [Context(text=f"From {name}.", source=name) for name in names]
            at = world.now + 60.0 * k / per_minute
            pieces = [{"claim": "So it is.", "verdict": "not_supported"}] if value < 0.5 else [SUPPORTED]
            sample, evaluations = exchange(f"z{number}", at, *contexts, value=value, pieces=pieces)
            relevance = Score(min(1.0, max(0.0, rng.gauss(0.57 - 0.2 * has, 0.2))))
            await world.store.add(
                replace(sample, question=QUESTIONS[which]),
                [replace(e, outcome=relevance) if e.metric == "context_relevancy" else e for e in evaluations],
            )
        world.now += 60.0
        if minute >= before:
            await world.tick()
            if first is None and any(alert.state == "firing" for alert in world.engine.alerts()):
                first = world.alert
    await world.later(600.0)
    return first, world.alert


@pytest.mark.full
@pytest.mark.parametrize("asked", [(0, 2, 5), ()])
def test_an_alert_names_a_new_source_at_once_also_where_it_comes_with_whole_questions(tmp_path, monkeypatch, asked):
    """Questions are known of exchanges whose passages are read, though more have been asked since."""
    monkeypatch.setattr(description, "_TOPICS_FROM", 20)
    first, last = run(
        tmp_path / "store.db",
        lambda world: arrival(world, asked=asked),
        rules=(Rule(metric="faithfulness", slo=0.9, name="answers"),),
        people=People(),
    )
    for alert in (first, last):
        assert (alert.likely_cause, alert.cause_source) == ("retrieval", "kb/legacy-2011.md")
        assert annotations_of(alert)["changed"].startswith("source kb/legacy-2011.md appeared in ")
        assert 0.8 <= alert.cause_strength <= 0.95
        assert "when the same questions scored better" in alert.cause_detail
    assert last.finding.n > 150
