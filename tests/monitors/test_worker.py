"""The worker between a real store and judges that take their time: nothing blocks it, and slowness loses no score."""

from __future__ import annotations

import asyncio
import sqlite3
import time

import numpy as np
import pytest

from monitors.config import Config, Judge, Monitors
from monitors.judges import JudgeError
from monitors.judges.openai import OpenAIJudge
from monitors.metrics.catalogue import Enabled
from monitors.metrics.faithfulness import Faithfulness
from monitors.metrics.hallucination import Hallucination
from monitors.metrics.verdicts import Fused, Separate
from monitors.plane import patience_s
from monitors.queues.memory import MemoryQueue
from monitors.records import Context, Failed, Sample, Score
from monitors.stores.sqlite import SQLiteStore
from monitors.worker import Worker
from tests.support.llm_server import LLMServer, Reply


class Metric:
    """A metric that gives what it was made with."""

    version = "1"

    def __init__(self, name, outcome, judge=None):
        self.name, self._outcome, self.judge = name, outcome, judge

    async def score(self, sample):
        return self._outcome


def work(path, samples, metrics, *, store=None, **options):
    """Evaluate `samples`; the outcomes by sample and metric, the operations that failed, and the queue's depth."""

    async def run():
        queue, real = MemoryQueue(), SQLiteStore(path, busy_timeout_s=0.2)
        failed, scored = [], []
        worker = Worker(
            queue=queue,
            store=store(real) if store else real,
            metrics=[Enabled(metric=one, rate=1.0, threshold=0.5, objective=0.9) for one in metrics],
            exporters=[],
            salt="s",
            on_error=failed.append,
            on_scored=lambda sample, new: scored.append((sample.id, list(new))),
            poll_s=0.01,
            **{"concurrency": 8, **options},
        )
        await queue.put(samples)
        running = asyncio.ensure_future(worker.run())
        deadline = time.monotonic() + 10.0
        while (await queue.depth()).ready + (await queue.depth()).leased and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
            if options.get("concurrency") == 1 and scored:
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


def test_a_sample_that_no_store_can_take_frees_its_place_and_keeps_its_lease(tmp_path):
    samples = [sample("bad", question="\ud83d"), sample("fine")]
    outcomes, failed, depth, _ = work(tmp_path / "s.db", samples, [Metric("m", Score(0.5))], concurrency=1)
    assert outcomes == {"fine": {"m": Score(0.5)}}
    assert "store" in failed
    assert depth.leased == 1, "after its last attempt it is set aside"


def test_an_engine_that_fails_is_waited_for(tmp_path):
    class Stubborn:
        def __init__(self, store):
            self._store, self._failures = store, [sqlite3.OperationalError("locked"), OSError("full"), TimeoutError()]

        async def add(self, *args):
            if self._failures:
                raise self._failures.pop()
            return await self._store.add(*args)

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
            {"claim": "c", "verdict": "contradicted", "contexts": [0], "quote": "q", "relevance": "relevant"},
        ],
    },
    "claims": {"noncommittal": False, "claims": ["c"]},
    "claim_verdicts": {"verdicts": [{"id": 0, "verdict": "contradicted", "contexts": [0], "quote": "q"}]},
    "contradicted_contexts": {"contexts": [{"index": 0, "contradicted": True, "reason": "r"}]},
}


def slowly(request):
    task = request.body["messages"][0]["content"].split("\n")[0].removeprefix("Task: ")
    return Reply(content=ANSWERS[task], delay_s=0.1)


@pytest.mark.parametrize("mode", [Fused, Separate])
def test_waiting_for_a_busy_judge_costs_no_score(tmp_path, mode):
    """Eight samples, two places, 0.1 s an answer: the last one waits longer than a metric without a judge may take."""

    async def run(url):
        queue, store = MemoryQueue(), SQLiteStore(tmp_path / "s.db")
        judge = OpenAIJudge(url, None, "judge-1", concurrency=2, timeout_s=5.0, max_retries=0)
        verdicts = mode(judge)
        worker = Worker(
            queue=queue,
            store=store,
            metrics=[
                Enabled(metric=one, rate=1.0, threshold=0.5, objective=0.9)
                for one in (Faithfulness(verdicts), Hallucination(verdicts))
            ],
            exporters=[],
            salt="s",
            concurrency=8,
            on_error=lambda _: None,
            on_scored=lambda *_: None,
            timeout_s=0.3,
            judged_timeout_s=30.0,
        )
        ids = [f"s{k}" for k in range(8)]
        samples = [sample(name, question="q?", contexts=(Context(text="No."),)) for name in ids]
        evaluations = await asyncio.gather(*(worker.evaluate(one) for one in samples))
        await judge.aclose()
        await store.aclose()
        return [one.outcome for both in evaluations for one in both]

    with LLMServer(slowly) as server:
        asyncio.run(warm(server.url))
        outcomes = asyncio.run(run(server.url))
    assert [getattr(one, "value", one) for one in outcomes] == [0.0, 1.0] * 8


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

    assert patience_s(config(8, 4, 60.0)) == 3 * 11 * 60.0
    assert patience_s(config(16, 4, 60.0)) > patience_s(config(8, 4, 60.0))
    assert patience_s(config(1, 8, 1.0)) == 90.0
