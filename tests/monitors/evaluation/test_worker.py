"""The worker between a real store and judges that take their time: nothing blocks it, and slowness loses no score."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest

from examples.storage_engine.gaugeway_memory.queue import MemoryQueue
from gaugeway.records import Context, Failed, Sample, Score
from gaugeway.sampling import MetricSampler
from gaugeway.settings.shared import Config, Judge, Monitors
from gaugeway.storage.engines.failures import EngineError, SchemaError
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.stores import Store
from monitors.evaluation import persist as persisting
from monitors.evaluation.evaluator import Evaluator
from monitors.evaluation.persist import WorkerObserver
from monitors.evaluation.worker import Worker, WorkerSettings
from monitors.judges import JudgeError
from monitors.judges.openai import OpenAIJudge
from monitors.metrics.faithfulness import Faithfulness, Hallucination
from monitors.metrics.judged.claims import Fused, Separate
from monitors.metrics.registry import Enabled
from monitors.scheduler import judged_timeout_s
from tests.support.bench import Metric
from tests.support.llm_server import LLMServer, Reply


def work(path, samples, metrics, *, store=None, leave=0, concurrency=8, **timeouts):
    """Evaluate `samples`; the outcomes by sample and metric, the operations that failed, and the queue's depth."""

    async def run():
        queue, real = MemoryQueue(), SQLiteStore(path, busy_timeout_s=0.2)
        failed, scored = [], []
        observer = WorkerObserver()
        observer.failed = failed.append
        observer.scored = lambda sample, new: scored.append((sample.id, list(new)))
        enabled = [Enabled(metric=one, rate=1.0, threshold=0.5, objective=0.9) for one in metrics]
        worker = Worker(
            queue,
            store(real) if store else real,
            Evaluator(enabled, MetricSampler("s"), **timeouts),
            settings=WorkerSettings(concurrency=concurrency, poll_s=0.01),
            observer=observer,
        )
        await queue.put(samples)
        running = asyncio.ensure_future(worker.run())
        deadline = time.monotonic() + 60
        while (await queue.depth()).ready + (await queue.depth()).leased > leave and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
            if concurrency == 1 and scored:
                break
        worker.stop()
        await asyncio.wait([running], timeout=5)
        outcomes = {
            sample.id: {one.metric: one.outcome for one in found[1]}
            for sample in samples
            if (found := await real.sample(sample.id)) is not None
        }
        await real.aclose()
        return outcomes, failed, await queue.depth(), scored

    return asyncio.run(run())


def sample(sample_id="s1", **fields):
    return Sample(id=sample_id, started_at=1.0, **{"response": "Yes.", **fields})


@pytest.mark.parametrize(
    ("evidence", "error"),
    [({"n": np.float32(0.5)}, "TypeError"), ({"claim": "\ud83d"}, "UnicodeEncodeError")],
)
def test_what_no_store_can_take_becomes_a_failure_and_the_other_metrics_keep_their_scores(
    tmp_path, caplog, evidence, error
):
    metrics = [Metric("bad", Score(0.5, "", (evidence,))), Metric("good", Score(0.25))]
    outcomes, failed, depth, scored = work(tmp_path / "s.db", [sample()], metrics)
    assert outcomes == {"s1": {"bad": Failed("unstorable", error), "good": Score(0.25)}}
    assert (failed, depth.ready + depth.leased) == (["store"], 0)
    assert len(scored[0][1]) == 2
    assert error in caplog.text


def test_a_sample_that_no_store_can_take_is_set_aside_at_once(tmp_path, caplog):
    samples = [sample("bad", question="\ud83d"), sample("fine")]
    outcomes, failed, depth, _ = work(tmp_path / "s.db", samples, [Metric("m", Score(0.5))], concurrency=1)
    assert outcomes == {"fine": {"m": Score(0.5)}}
    assert failed == ["store", "dead_letter"]
    assert (depth.ready, depth.leased, depth.dead) == (0, 0, 1)
    assert "bad cannot be evaluated, moved to dead letters: UnicodeEncodeError" in caplog.text


def test_a_sample_whose_storing_alone_keeps_failing_gives_its_place_free(tmp_path, monkeypatch):
    monkeypatch.setattr(persisting, "FIRST_BACK_OFF_S", 0.001)
    monkeypatch.setattr(persisting, "MAX_BACK_OFF_S", 0.001)

    class Picky:
        tries = 0

        def __init__(self, store):
            self._store = store

        add_each = Store.add_each

        async def add(self, sample, evaluations):
            if sample.id == "bad":
                Picky.tries += 1
                raise EngineError("statement timeout")
            await asyncio.sleep(0.002)
            return await self._store.add(sample, evaluations)

        def __getattr__(self, name):
            return getattr(self._store, name)

    others = [sample(f"s{k}") for k in range(200)]
    outcomes, _, depth, _ = work(
        tmp_path / "s.db", [sample("bad"), *others], [Metric("m", Score(0.5))], store=Picky, concurrency=2, leave=1
    )
    assert len(outcomes) == 200
    assert (depth.leased, depth.dead) == (1, 0), "its lease runs out, and it comes again"
    assert Picky.tries >= persisting.MOST_OVERTAKEN


def test_an_engine_that_fails_is_waited_for(tmp_path):
    class Stubborn:
        def __init__(self, store):
            self._store, self._failures = store, [EngineError("locked"), EngineError("full"), SchemaError("too new")]

        add_each = Store.add_each

        async def add(self, *args):
            if self._failures:
                raise self._failures.pop()
            return await self._store.add(*args)

        def __getattr__(self, name):
            return getattr(self._store, name)

    outcomes, failed, *_ = work(tmp_path / "s.db", [sample()], [Metric("m", Score(0.5))], store=Stubborn)
    assert outcomes == {"s1": {"m": Score(0.5)}}
    assert failed == ["store"] * 3


def test_numbers_of_numpy_and_a_judge_in_place_of_its_name_are_stored_as_what_they_mean(tmp_path):
    async def run(store):
        (point,) = (await store.sample("s1"))[1]
        await store.aclose()
        return point

    class Model:
        model = "judge-1"

    outcomes, failed, *_ = work(tmp_path / "s.db", [sample()], [Metric("m", Score(np.float32(0.5)), Model())])
    assert outcomes == {"s1": {"m": Score(0.5)}}
    assert failed == []
    assert asyncio.run(run(SQLiteStore(tmp_path / "s.db"))).judge == "judge-1"


ANSWERS = {
    "claims_verdicts": {
        "noncommittal": False,
        "claims": [
            {"claim": "Yes.", "verdict": "contradicted", "contexts": [0], "quote": "No.", "relevance": "relevant"},
        ],
    },
    "claims": {"noncommittal": False, "claims": ["Yes."]},
    "claim_verdicts": {"verdicts": [{"id": 0, "verdict": "contradicted", "contexts": [0], "quote": "No."}]},
    "contradicted_contexts": {"contexts": [{"index": 0, "contradicted": True, "reason": "r"}]},
}


def slowly(request):
    task = request.body["messages"][0]["content"].split("\n")[0].removeprefix("Task: ")
    return Reply(content=ANSWERS[task], delay_s=0.1)


@pytest.mark.parametrize("mode", [Fused, Separate])
def test_waiting_for_a_busy_judge_costs_no_score(mode):
    """Eight samples, two places, 0.1 s an answer: the last one waits longer than a metric without a judge may take."""

    async def run(url):
        judge = OpenAIJudge(url, None, "judge-1", concurrency=2, timeout_s=5.0, max_retries=0)
        verdicts = mode(judge)
        metrics = [
            Enabled(metric=one, rate=1.0, threshold=0.5, objective=0.9)
            for one in (Faithfulness(verdicts), Hallucination(verdicts))
        ]
        evaluator = Evaluator(metrics, MetricSampler("s"), timeout_s=0.3, judged_timeout_s=30.0)
        ids = [f"s{k}" for k in range(8)]
        samples = [sample(name, question="q?", response="Yes.", contexts=(Context(text="No."),)) for name in ids]
        evaluations = await asyncio.gather(*(evaluator.evaluate(one) for one in samples))
        await judge.aclose()
        return [one.outcome for both in evaluations for one in both]

    with LLMServer(slowly) as server:
        asyncio.run(warm(server.url))
        outcomes = asyncio.run(run(server.url))
    assert [getattr(one, "value", one) for one in outcomes] == [0.0, 1.0] * 8


class Slow:
    """A metric that asks a judge and is only done when it may be; `asked` counts how often it was begun."""

    name, version, judge = "judged", "1", "judge-1"

    def __init__(self):
        self.may, self.begun, self.asked = asyncio.Event(), asyncio.Event(), 0

    async def score(self, sample):
        self.asked += 1
        self.begun.set()
        await self.may.wait()
        return Score(1.0)


async def test_a_sample_judged_longer_than_all_its_leases_stays_and_its_other_scores_are_stored_at_once(tmp_path):
    queue, store, slow = MemoryQueue(lease_s=0.2, max_attempts=2), SQLiteStore(tmp_path / "s.db"), Slow()
    enabled = [Enabled(metric=one, rate=1.0, threshold=0.5, objective=0.9) for one in (slow, Metric("m", Score(0.5)))]
    scored = []
    observer = WorkerObserver()
    observer.scored = lambda sample, new: scored.append([evaluation.metric for evaluation in new])
    settings = WorkerSettings(concurrency=1, poll_s=0.01, renew_s=0.05)
    worker = Worker(queue, store, Evaluator(enabled, MetricSampler("s")), settings=settings, observer=observer)
    await queue.put([sample()])
    running = asyncio.ensure_future(worker.run())
    await slow.begun.wait()
    assert [one.metric for one in (await store.sample("s1"))[1]] == ["m"]
    await asyncio.sleep(1.0)  # five leases
    depth = await queue.depth()
    assert (depth.leased, depth.dead) == (1, 0)
    slow.may.set()
    worker.stop()
    await running
    assert (await queue.depth()).leased == 0
    assert {one.metric for one in (await store.sample("s1"))[1]} == {"m", "judged"}
    assert (slow.asked, scored) == (1, [["m", "judged"]])
    await store.aclose()


async def warm(url):
    """The SDK's first import and request take longer than the deadlines here."""
    judge = OpenAIJudge(url, None, "judge-1", timeout_s=20.0)
    try:
        verdicts = Separate(judge)
        await Faithfulness(verdicts).score(sample("warm", question="q?", contexts=(Context(text="No."),)))
    except JudgeError:
        pass
    await judge.aclose()


def test_a_metric_that_asks_no_judge_has_its_own_deadline_and_a_judge_that_never_answers_ends_too(tmp_path):
    class Hanging(Metric):
        async def score(self, sample):
            await asyncio.sleep(30)

    metrics = [Hanging("lexical", None), Hanging("judged", None, "judge-1")]
    outcomes, *_ = work(tmp_path / "s.db", [sample()], metrics, timeout_s=0.05, judged_timeout_s=0.2)
    assert outcomes["s1"] == {
        "lexical": Failed("timeout", "no score within 0.05 s"),
        "judged": Failed("timeout", "no score within 0.2 s"),
    }


def test_the_deadline_with_a_judge_grows_with_what_waiting_may_take():
    def config(samples, places, timeout_s):
        judge = Judge(concurrency=places, timeout_s=timeout_s)
        return Config(monitors=Monitors(concurrency=samples), judge=judge)

    assert judged_timeout_s(config(8, 4, 60.0)) == 3 * 11 * 60.0
    assert judged_timeout_s(config(16, 4, 60.0)) > judged_timeout_s(config(8, 4, 60.0))
    assert judged_timeout_s(config(1, 8, 1.0)) == 90.0
