"""Samples that wait for nothing are read, scored, stored and acknowledged together, and none suffers from another."""

import asyncio
import contextlib
import time
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from examples.storage_engine.gaugeway_memory.queue import MemoryQueue
from gaugeway.records import Context, Failed, Sample, Score, Skipped
from gaugeway.sampling import Bias, MetricSampler
from gaugeway.signals import SIGNALS
from gaugeway.storage.engines.failures import EngineError
from gaugeway.storage.engines.sqlite.queue import SQLiteQueue
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from monitors.evaluation import persist as persisting
from monitors.evaluation.backpressure import MOST_UNJUDGED, JudgePace
from monitors.evaluation.evaluator import BudgetFactor, Evaluator
from monitors.evaluation.persist import WorkerObserver
from monitors.evaluation.signals import Signals
from monitors.evaluation.worker import Worker, WorkerSettings
from monitors.exporters import Exporter
from monitors.metrics.lexical_groundedness import LexicalGroundedness
from monitors.metrics.registry import Enabled


class AtOnce:
    """A metric without a judge that awaits nothing; `score_of` gives its outcome, or raises."""

    name, version = "free", "1"

    def __init__(self, score_of=lambda _: Score(0.5), says=True):
        self._score_of, self._says = score_of, says

    def scores_at_once(self, _):
        return self._says

    async def score(self, sample):
        return self._score_of(sample)


class Awaiting(AtOnce):
    """One that awaits something although it said that it would not."""

    async def score(self, sample):
        await asyncio.sleep(0)
        return Score(0.25)


class Judged:
    name, version, judge = "judged", "1", "judge-1"

    async def score(self, _):
        await asyncio.sleep(0.001)
        return Score(1.0)


class Kept(Exporter):
    takes_signals = True

    def __init__(self):
        self.got = []

    def export(self, sample, evaluations):
        self.got += [(sample.id, one.metric) for one in evaluations]


def enabled(*metrics, rate=1.0):
    return [Enabled(metric=one, rate=rate, threshold=0.5, objective=0.9) for one in metrics]


def sample(number, **fields):
    return Sample(id=f"s{number:03d}", started_at=1.0, **{"response": "Yes.", **fields})


class Here:
    def __init__(self, queue, store, evaluator):
        self.queue, self.store, self.failed, self.exporter = queue, store, [], Kept()
        observer = WorkerObserver()
        observer.failed = self.failed.append
        self.stored = []
        observer.stored = lambda sample, _: self.stored.append(sample.id)
        self.worker = Worker(
            queue,
            store,
            evaluator,
            settings=WorkerSettings(concurrency=MOST_UNJUDGED, poll_s=0.01, completes=False),
            observer=observer,
            exporters=[self.exporter],
        )

    @asynccontextmanager
    async def running(self):
        task = asyncio.ensure_future(self.worker.run())
        try:
            yield self
        finally:
            self.worker.stop()
            await asyncio.wait([task], timeout=10)

    async def until_empty(self):
        async with asyncio.timeout(30):
            while (depth := await self.queue.depth()).ready + depth.leased:  # noqa: ASYNC110 - a queue has no event
                await asyncio.sleep(0.01)

    async def outcomes(self, samples):
        found = {one.id: await self.store.sample(one.id) for one in samples}
        return {name: {e.metric: e.outcome for e in one[1]} for name, one in found.items() if one is not None}


def unjudged(*metrics):
    return Evaluator(enabled(*metrics), MetricSampler("s"), signals=Signals(["abstained"]))


@contextlib.asynccontextmanager
async def evaluating(tmp_path, evaluator, queue=None):
    store = SQLiteStore(tmp_path / "store.db")
    here = Here(queue or MemoryQueue(), store, evaluator)
    try:
        yield here
    finally:
        await store.aclose()
        await here.queue.aclose()


SAMPLES = [sample(number) for number in range(20)]
EXPORTED = sorted((one.id, metric) for one in SAMPLES for metric in ("abstained", "free"))


async def test_a_batch_is_one_lookup_one_write_and_one_acknowledgement(tmp_path):
    calls = []

    async with evaluating(tmp_path, unjudged(AtOnce())) as here:
        for owner, name in (
            (here.store, "supplements_of_each"),
            (here.store, "add_each"),
            (here.store, "add"),
            (here.queue, "ack"),
        ):
            watched(owner, name, calls)
        await here.queue.put(SAMPLES)
        async with here.running():
            await here.until_empty()
        assert await here.outcomes(SAMPLES) == {
            one.id: {"free": Score(0.5), "abstained": Score(0.0)} for one in SAMPLES
        }
        assert sorted(here.exporter.got) == EXPORTED
        assert sorted(here.stored) == [one.id for one in SAMPLES]
    assert calls == ["supplements_of_each", "add_each", "ack"]


def watched(owner, name, calls):
    real = getattr(owner, name)

    async def call(*arguments):
        calls.append(name)
        return await real(*arguments)

    setattr(owner, name, call)


def raised(error):
    raise error


@pytest.mark.parametrize(
    ("score_of", "outcome", "failures"),
    [
        (lambda: 1 / 0, Failed("metric_error", "ZeroDivisionError: division by zero"), []),
        (lambda: raised(asyncio.CancelledError()), Failed("metric_error", "CancelledError: "), []),
        (lambda: raised(SystemExit(3)), Failed("metric_error", "SystemExit: 3"), []),
        (lambda: raised(GeneratorExit()), Failed("metric_error", "GeneratorExit: "), []),
        (lambda: Score(1.5), Failed("invalid_score", "a score lies in [0, 1], got 1.5"), []),
        (lambda: Skipped("no_contexts"), Skipped("no_contexts"), []),
        (lambda: Score(0.5, "", ({"claim": "\ud83d"},)), Failed("unstorable", "UnicodeEncodeError"), ["store"]),
    ],
)
async def test_a_sample_that_fails_in_a_batch_is_the_only_one(tmp_path, score_of, outcome, failures):
    metric = AtOnce(lambda one: score_of() if one.id == "s007" else Score(0.5))
    async with evaluating(tmp_path, unjudged(metric)) as here:
        await here.queue.put(SAMPLES)
        async with here.running():
            await here.until_empty()
        outcomes, failed, exported = await here.outcomes(SAMPLES), here.failed, sorted(here.exporter.got)
    found = {name: one["free"] for name, one in outcomes.items()}
    assert {name for name, one in found.items() if one == Score(0.5)} == {one.id for one in SAMPLES} - {"s007"}
    shown = found["s007"]
    assert type(shown) is type(outcome)
    assert shown == outcome or shown.error == outcome.error
    assert failed == failures
    assert exported == EXPORTED


async def test_a_sample_that_ends_its_batch_does_so_once(tmp_path):
    poisoned = []

    def score_of(one):
        if one.id == "s007":
            poisoned.append(one)
            asyncio.current_task().cancel()
        return Score(0.5)

    async with evaluating(tmp_path, unjudged(AtOnce(score_of)), MemoryQueue(lease_s=0.3)) as here:
        await here.queue.put(SAMPLES)
        async with here.running(), asyncio.timeout(30):
            while len(await here.outcomes(SAMPLES)) < len(SAMPLES) - 1:  # noqa: ASYNC110 - a store has no event
                await asyncio.sleep(0.02)
        stored = set(await here.outcomes(SAMPLES))
    assert stored >= {one.id for one in SAMPLES} - {"s007"}
    assert len(poisoned) > 1, "it was leased again"


async def test_a_sample_that_the_store_refuses_is_set_aside_and_the_rest_of_its_batch_is_stored(tmp_path):
    async with evaluating(tmp_path, unjudged(AtOnce())) as here:
        await here.queue.put([*SAMPLES, sample(99, question="\ud83d")])
        async with here.running():
            await here.until_empty()
        assert len(await here.outcomes(SAMPLES)) == len(SAMPLES)
        assert here.failed == ["store", "dead_letter"]
        assert (await here.queue.depth()).dead == 1
        assert sorted(here.exporter.got) == EXPORTED


async def test_an_engine_that_fails_once_for_a_batch_is_asked_again_for_each_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(persisting, "FIRST_BACK_OFF_S", 0.001)

    async with evaluating(tmp_path, unjudged(AtOnce())) as here:
        real, tries = here.store.add_each, []

        async def add_each(some):
            tries.append(len(some))
            if len(tries) == 1:
                raise EngineError("locked")
            return await real(some)

        here.store.add_each = add_each
        await here.queue.put(SAMPLES)
        async with here.running():
            await here.until_empty()
        assert len(await here.outcomes(SAMPLES)) == len(SAMPLES)
        assert sorted(here.exporter.got) == EXPORTED
        assert here.failed == ["store"] * len(SAMPLES), "as many as are delayed"


async def test_an_observer_that_fails_for_one_sample_keeps_no_other_from_being_told_and_acknowledged(tmp_path, caplog):
    async with evaluating(tmp_path, unjudged(AtOnce())) as here:

        def stored(one, _):
            if one.id == "s007":
                raise KeyError("observer")

        here.worker._observer.stored = stored  # noqa: SLF001 - a defect that no real observer has
        await here.queue.put(SAMPLES)
        async with here.running():
            async with asyncio.timeout(30):
                while (await here.queue.depth()).ready + (await here.queue.depth()).leased > 1:  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.01)
        assert sorted(here.exporter.got) == [one for one in EXPORTED if one[0] != "s007"]
        assert (await here.queue.depth()).leased == 1, "it is delivered again when its lease ends"
    assert "evaluation of s007 ended: KeyError: 'observer'" in caplog.text


async def test_a_metric_that_awaits_against_its_word_is_evaluated_in_a_task(tmp_path):
    async with evaluating(tmp_path, unjudged(Awaiting())) as here:
        await here.queue.put(SAMPLES)
        async with here.running():
            await here.until_empty()
        outcomes = await here.outcomes(SAMPLES)
    assert [one["free"] for one in outcomes.values()] == [Score(0.25)] * len(SAMPLES)


async def test_what_was_stored_before_a_crash_and_not_acknowledged_is_stored_and_exported_once(tmp_path):
    clock = [0.0]

    async with evaluating(tmp_path, unjudged(AtOnce()), MemoryQueue(clock=lambda: clock[0])) as here:
        real, stuck = here.queue.ack, asyncio.Event()

        async def hang(_):
            stuck.set()
            await asyncio.Event().wait()

        here.queue.ack = hang
        await here.queue.put(SAMPLES)
        crashed = asyncio.ensure_future(here.worker.run())
        await stuck.wait()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            if task is crashed or task.get_name().startswith("evaluation of "):
                task.cancel()
        await asyncio.wait([crashed])
        assert len(await here.outcomes(SAMPLES)) == len(SAMPLES)
        assert (await here.queue.depth()).leased == len(SAMPLES)
        clock[0] += 1000.0  # the leases of the one that died have run out
        here.queue.ack = real
        again = Here(here.queue, here.store, unjudged(AtOnce()))
        async with again.running():
            await again.until_empty()
        assert sorted(here.exporter.got) == EXPORTED
        assert again.exporter.got == []
        assert again.stored == []
        assert all(len(one) == 2 for one in (await here.outcomes(SAMPLES)).values())


async def test_whose_leases_are_lost_meanwhile_is_stored_and_exported_once_by_two_workers(tmp_path):
    clock = [0.0]

    async with evaluating(tmp_path, unjudged(AtOnce()), MemoryQueue(clock=lambda: clock[0])) as here:
        real, reached, go = here.store.add_each, asyncio.Event(), asyncio.Event()

        async def late(some):
            reached.set()
            await go.wait()
            return await real(some)

        here.store.add_each = late
        await here.queue.put(SAMPLES)
        async with here.running():
            await reached.wait()
            here.worker.stop()  # else it leases them again itself
            clock[0] += 1000.0
            other = Here(here.queue, SQLiteStore(tmp_path / "store.db"), unjudged(AtOnce()))
            async with other.running():
                await other.until_empty()
            await other.store.aclose()
            go.set()
        assert sorted(here.exporter.got + other.exporter.got) == EXPORTED
        assert sorted(other.exporter.got) == EXPORTED, "who was first"
        assert (await here.queue.depth()).dead == 0


async def test_a_long_batch_gives_others_a_turn(tmp_path):
    turns = []

    def slow(_):
        time.sleep(0.011)  # longer than a batch goes on without a pause
        turns.append("scored")
        return Score(0.5)

    async with evaluating(tmp_path, unjudged(AtOnce(slow))) as here:

        async def page():
            while True:
                turns.append("page")
                await asyncio.sleep(0)

        await here.queue.put(SAMPLES)
        reader = asyncio.ensure_future(page())
        async with here.running():
            await here.until_empty()
        reader.cancel()
    scored = [place for place, turn in enumerate(turns) if turn == "scored"]
    assert all("page" in turns[a:b] for a, b in pairwise(scored))


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
async def test_judged_and_unjudged_samples_of_a_batch_get_what_each_gets_alone(tmp_path, engine):
    text = "The refund takes five days. Label 7 is on the box. "
    samples = [
        sample(
            number,
            response=text if number % 3 else "I'm sorry, I don't know.",
            contexts=(Context(text=text * (1 + number % 4)),) if number % 5 else (),
            skip_reason="hop" if number % 11 == 10 else None,
        )
        for number in range(60)
    ]

    def evaluator():
        metrics = [*enabled(LexicalGroundedness()), *enabled(Judged(), rate=0.3)]
        return Evaluator(
            metrics,
            MetricSampler("s", bias=[Bias(factor=3.0, signal="refusal")]),
            budget_factor=lambda one, _: BudgetFactor(0.5, 0.25) if one.id > "s030" else BudgetFactor(),
            judge_pace=JudgePace(4),
            signals=Signals(SIGNALS),
        )

    queue = MemoryQueue() if engine == "memory" else SQLiteQueue(tmp_path / "queue.db")
    one_by_one = evaluator()
    async with evaluating(tmp_path, evaluator(), queue) as here:
        await here.queue.put(samples)
        async with here.running():
            await here.until_empty()
        found = {one.id: await here.store.sample(one.id) for one in samples}
        together, expected = (
            {name: [facts(e) for e in one[1]] for name, one in found.items()},
            {one.id: [facts(e) for e in await one_by_one.evaluate(one)] for one in samples},
        )
    assert {name: by_name(some) for name, some in together.items()} == {
        name: by_name(some) for name, some in expected.items()
    }
    judged = [name for name, some in together.items() if "judged" in by_name(some)]
    assert 0 < len(judged) < len(samples)


def facts(one):
    return one.metric, one.version, one.outcome, one.judge, one.cost_usd, one.rate, one.weight


def by_name(some):
    return {one[0]: one for one in some}
