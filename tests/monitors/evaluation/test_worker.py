"""The worker between a real store and judges that take their time: nothing blocks it, and slowness loses no score."""

from __future__ import annotations

import asyncio
import contextlib
import time
from functools import partial

import numpy as np
import pytest

from examples.storage_engine.gaugeway_memory.queue import MemoryQueue
from gaugeway.records import Context, Failed, Sample, Score, Skipped, Supplement
from gaugeway.redaction import Redactor
from gaugeway.sampling import MetricSampler
from gaugeway.settings.bounds import MAX_PASSAGES, MAX_TEXT
from gaugeway.settings.shared import Config, Judge, Monitors
from gaugeway.storage.engines.failures import EngineError, SchemaError
from gaugeway.storage.engines.sqlite.queue import SQLiteQueue
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.stores import Store, hashing_store
from monitors.evaluation import persist as persisting
from monitors.evaluation.evaluator import Evaluator
from monitors.evaluation.persist import WorkerObserver
from monitors.evaluation.worker import Worker, WorkerSettings
from monitors.judges import JudgeError
from monitors.judges.openai import OpenAIJudge
from monitors.metrics.faithfulness import Faithfulness
from monitors.metrics.hallucination import Hallucination
from monitors.metrics.judged.claims import Fused, Separate
from monitors.metrics.registry import Enabled
from monitors.scheduler import judged_timeout_s
from tests.support.llm_server import LLMServer, Reply


class Metric:
    """A metric that gives what it was made with."""

    version = "1"

    def __init__(self, name, outcome, judge=None):
        self.name, self._outcome, self.judge = name, outcome, judge

    async def score(self, sample):
        return self._outcome


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
        samples = [sample(name, question="q?", contexts=(Context(text="No."),)) for name in ids]
        evaluations = await asyncio.gather(*(evaluator.evaluate(one) for one in samples))
        await judge.aclose()
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

    assert judged_timeout_s(config(8, 4, 60.0)) == 3 * 11 * 60.0
    assert judged_timeout_s(config(16, 4, 60.0)) > judged_timeout_s(config(8, 4, 60.0))
    assert judged_timeout_s(config(1, 8, 1.0)) == 90.0


class Grounded:
    """Needs contexts, as the real ones do; keeps what it was asked about."""

    name, version = "grounded", "1"

    def __init__(self, delay_s=0.0):
        self.asked, self._delay_s = [], delay_s
        self.begun = asyncio.Event()

    async def score(self, sample):
        self.begun.set()
        await asyncio.sleep(self._delay_s)
        if not sample.contexts:
            return Skipped("no_contexts")
        self.asked.append(sample)
        return Score(0.25 * len(sample.contexts))


class WatchedQueue(MemoryQueue):
    """Knows which supplements are not acknowledged."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.supplied = set()

    async def supply(self, supplements):
        self.supplied |= {one.id for one in supplements}
        await super().supply(supplements)

    async def ack_supplies(self, supplement_ids):
        await super().ack_supplies(supplement_ids)
        self.supplied -= set(supplement_ids)


class Bench:
    """A running worker on a real store and a queue in memory."""

    def __init__(self, path, metric, queue=None, **options):
        self.queue, self.store, self.metric = queue or WatchedQueue(), SQLiteStore(path), metric
        self.failed, self.scored, self.counts, self.kept = [], [], [], []
        self.began = time.monotonic()
        self.metrics = [
            Enabled(metric=metric, rate=1.0, threshold=0.5, objective=0.9),
            Enabled(metric=Metric("other", Score(0.5)), rate=1.0, threshold=0.5, objective=0.9),
        ]
        observer = WorkerObserver()
        observer.failed = self.failed.append
        observer.scored = lambda sample, new: self.scored.append((sample.id, [one.metric for one in new]))
        observer.supplement = lambda source, result: self.counts.append((source, result))
        observer.stored = lambda sample, before: self.kept.append((sample, before))
        evaluator = Evaluator(self.metrics, MetricSampler("s"))
        settings = WorkerSettings(**{"concurrency": 4, "join_window_s": 5.0, "poll_s": 0.01, **options})
        self.worker = Worker(self.queue, self.store, evaluator, settings=settings, observer=observer)

    async def outcome(self, name="s1"):
        """The outcome that is stored for the metric that needs contexts, or None."""
        found = await self.store.sample(name)
        by_metric = {one.metric: one.outcome for one in found[1]} if found else {}
        return by_metric.get("grounded")

    async def until(self, condition, within_s=60.0):
        async with asyncio.timeout(within_s):
            while not await condition():  # noqa: ASYNC110 - a store has no event to wait for
                await asyncio.sleep(0.01)

    async def settled(self):
        depth = await self.queue.depth()
        return not (depth.ready or depth.leased or self.queue.supplied)


@contextlib.asynccontextmanager
async def working(path, metric=None, **options):
    here = Bench(path, metric or Grounded(), **options)
    running = asyncio.ensure_future(here.worker.run())
    try:
        yield here
    finally:
        here.worker.stop()
        await asyncio.wait([running], timeout=5)
        await here.store.aclose()
        await here.queue.aclose()


def said(*texts, source="contexts", name="u1", at=1.0, **fields):
    contexts = tuple(Context(text=text) for text in texts)
    address = fields or {"key": "k"}
    return Supplement(id=name, received_at=at, source=source, contexts=contexts, **address)


async def is_settled(here):
    await here.until(here.settled)


async def test_what_was_said_before_the_exchange_is_joined_without_waiting(tmp_path):
    async with working(tmp_path / "s.db", join_window_s=60.0) as here:
        await here.queue.supply([said("a", "b")])
        await is_settled(here)
        await here.queue.put([sample(context_key="k")])
        await is_settled(here)
        assert await here.outcome() == Score(0.5)
        assert (await here.store.sample("s1"))[0].context_source == "contexts_api"
        assert here.counts == [("contexts", "waiting"), ("contexts", "joined")]


async def test_a_sample_that_expects_contexts_waits_and_is_evaluated_as_soon_as_they_come(tmp_path):
    async with working(tmp_path / "s.db", join_window_s=60.0) as here:
        await here.queue.put([sample(context_key="k"), sample("plain")])
        await here.until(lambda: _stored(here, "plain"))
        await asyncio.sleep(0.1)
        assert await here.store.sample("s1") is None
        await here.queue.supply([said("a")])
        await is_settled(here)
        assert await here.outcome() == Score(0.25)
        assert await here.outcome("plain") == Skipped("no_contexts")
        assert here.counts == [("contexts", "joined")]


async def _stored(here, name):
    return await here.store.sample(name) is not None


async def test_those_who_wait_take_no_place_and_beyond_the_limit_nobody_waits(tmp_path):
    async with working(tmp_path / "s.db", concurrency=2, join_window_s=60.0, waiting_limit=8) as here:
        waiting = [sample(f"w{k}", context_key=f"k{k}") for k in range(20)]
        await here.queue.put([*waiting, sample("plain")])
        await here.until(lambda: _stored(here, "plain"))
        await here.until(lambda: _stored(here, "w19"))
        stored = [one.id for one in waiting if await here.store.sample(one.id) is not None]
        assert stored == [f"w{k}" for k in range(8, 20)]
        assert await here.outcome("w19") == Skipped("no_contexts")


async def test_who_waits_in_vain_is_evaluated_when_the_time_is_up_and_completed_when_they_come_after_all(tmp_path):
    async with working(tmp_path / "s.db", join_window_s=0.3) as here:
        await here.queue.put([sample(context_key="k")])
        await here.until(lambda: _stored(here, "s1"))
        assert time.monotonic() - here.began >= 0.3
        assert await here.outcome() == Skipped("no_contexts")
        await is_settled(here)
        assert here.counts == [("contexts", "expired")]
        await here.queue.supply([said("a", "b")])
        await is_settled(here)
        found, evaluations = await here.store.sample("s1")
        assert [one.text for one in found.contexts] == ["a", "b"]
        assert {one.metric: one.outcome for one in evaluations} == {"grounded": Score(0.5), "other": Score(0.5)}
        assert here.scored == [("s1", ["grounded", "other"]), ("s1", ["grounded"])]
        assert here.counts[1:] == [("contexts", "joined")]


async def test_a_sample_is_told_once_when_it_is_stored_and_again_with_what_it_was_when_it_is_completed(tmp_path):
    async with working(tmp_path / "s.db", join_window_s=0.05) as here:
        bare = sample(context_key="k")
        await here.queue.put([bare])
        await is_settled(here)
        await here.queue.supply([said("a", source="feedback")])
        await is_settled(here)
        await here.queue.supply([said("b", source="feedback", name="u2")])
        await is_settled(here)
        await here.queue.put([bare])  # a lease that ran out at the wrong moment
        await is_settled(here)
        found = [(one.context_source, before and before.context_source) for one, before in here.kept]
        assert found == [("none", None), ("feedback", "none")]


async def test_what_comes_late_changes_no_score_and_asks_no_metric_that_gave_one(tmp_path):
    async with working(tmp_path / "s.db") as here:
        found = {"contexts": (Context(text="in the text"),), "context_source": "templates"}
        await here.queue.put([sample(trace_id="t", **found)])
        await is_settled(here)
        await here.queue.supply([said("a", "b", trace_id="t", source="feedback")])
        await is_settled(here)
        stored, evaluations = await here.store.sample("s1")
        assert (stored.context_source, len(here.metric.asked)) == ("templates", 1)
        assert [one.outcome for one in evaluations] == [Score(0.25), Score(0.5)]
        assert [one.source for one in await here.store.supplements_of(stored)] == ["feedback"]


async def test_what_comes_while_a_sample_is_being_evaluated_is_not_lost(tmp_path):
    async with working(tmp_path / "s.db", metric=Grounded(delay_s=0.3)) as here:
        await here.queue.put([sample(trace_id="t")])
        await here.metric.begun.wait()
        await here.queue.supply([said("a", trace_id="t")])
        await here.until(lambda: _none_waits(here))
        assert await here.store.sample("s1") is None
        await is_settled(here)
        assert await here.outcome() == Score(0.25)
        assert here.scored == [("s1", ["grounded", "other"]), ("s1", ["grounded"])]
        assert here.counts == [("contexts", "waiting"), ("contexts", "joined")]


async def _none_waits(here):
    return not here.queue.supplied


@pytest.mark.parametrize("spans", [True, False])
async def test_an_exchange_in_a_trace_waits_for_spans_only_when_something_receives_them(tmp_path, spans):
    async with working(tmp_path / "s.db", spans=spans, join_window_s=60.0, settle_s=0.1) as here:
        await here.queue.put([sample(trace_id="t"), sample("s2", trace_id="u", skip_reason="tool_call")])
        await here.until(lambda: _stored(here, "s2"))
        if spans:
            await asyncio.sleep(0.1)
            assert await here.store.sample("s1") is None
        else:
            await here.until(lambda: _stored(here, "s1"))
        hops = [said("b", source="spans", name="2", at=2.0, trace_id="t")]
        await here.queue.supply([*hops, said("a", source="spans", name="1", at=1.0, trace_id="t")])
        await is_settled(here)
        assert await here.outcome() == Score(0.5)
        assert [one.text for one in (await here.store.sample("s1"))[0].contexts] == ["a", "b"]
        assert ("spans", "expired") not in here.counts


@pytest.mark.parametrize("before", [True, False])
async def test_hops_of_a_trace_that_are_exported_one_after_the_other_are_all_joined(tmp_path, before):
    async with working(tmp_path / "s.db", spans=True, join_window_s=60.0, settle_s=1.5) as here:
        hops = [said(text, source="spans", name=text, at=at, trace_id="t") for text, at in (("b", 2.0), ("a", 1.0))]
        if before:
            await here.queue.supply(hops[:1])
            await here.until(lambda: _none_waits(here))
        await here.queue.put([sample(trace_id="t")])
        await here.until(lambda: _waits(here))
        for hop in hops[before:]:
            await here.queue.supply([hop])
            await asyncio.sleep(0.1)
        assert await here.store.sample("s1") is None
        await is_settled(here)
        assert [one.text for one in (await here.store.sample("s1"))[0].contexts] == ["a", "b"]
        assert time.monotonic() - here.began < 50.0
        assert here.scored == [("s1", ["grounded", "other"])]


async def _waits(here):
    running = any(task.get_name().startswith("evaluation of ") for task in asyncio.all_tasks())
    return here.worker.held == 1 and not running


async def test_what_comes_between_looking_and_waiting_is_not_overlooked(tmp_path):
    async with working(tmp_path / "s.db", join_window_s=60.0) as here:
        look, looked, stored = here.store.supplements_of, asyncio.Event(), asyncio.Event()

        async def slow_look(sample):
            seen = await look(sample)
            looked.set()
            await stored.wait()
            return seen

        here.store.supplements_of = slow_look
        here.store.supplements_of_each = partial(Store.supplements_of_each, here.store)
        await here.queue.put([sample(context_key="k")])
        await looked.wait()
        await here.queue.supply([said("a")])
        await here.until(lambda: _none_waits(here))
        stored.set()
        await is_settled(here)
        assert await here.outcome() == Score(0.25)


async def test_those_whose_wait_is_over_share_the_places(tmp_path):
    class Counting(Grounded):
        judge = "judge"
        now = most = 0

        async def score(self, sample):
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.02)
            self.now -= 1
            return Score(0.5)

    async with working(tmp_path / "s.db", metric=Counting(), concurrency=3, join_window_s=0.3) as here:
        await here.queue.put([sample(f"s{k}", context_key=f"k{k}") for k in range(20)])
        await here.until(lambda: _stored(here, "s19"))
        await is_settled(here)
        assert 1 < here.metric.most <= 3


async def test_ratings_are_kept_and_nothing_is_evaluated_again(tmp_path):
    async with working(tmp_path / "s.db") as here:
        await here.queue.put([sample()])
        await is_settled(here)
        rated = Supplement(id="r", received_at=1.0, source="feedback", exchange_id="s1", rating=0.5, comment="so so")
        await here.queue.supply([rated])
        await is_settled(here)
        assert list(await here.store.supplements_of(sample())) == [rated]
        assert here.scored == [("s1", ["grounded", "other"])]
        assert here.counts == [("feedback", "joined")]


async def test_a_supplement_is_acknowledged_only_when_what_it_changed_is_stored(tmp_path):
    async with working(tmp_path / "s.db", join_window_s=0.0) as here:
        await here.queue.put([sample(context_key="k")])
        await is_settled(here)
        real = here.store.add

        async def broken(*_):
            raise EngineError("disk full")

        here.store.add = broken
        await here.queue.supply([said("a")])
        await here.until(lambda: _complains(here))
        assert here.queue.supplied
        assert await here.outcome() == Skipped("no_contexts")
        here.store.add = real
        await is_settled(here)
        assert await here.outcome() == Score(0.25)


async def _complains(here):
    return "store" in here.failed


async def test_a_supplement_that_no_store_can_take_does_not_stop_the_others(tmp_path, caplog):
    async with working(tmp_path / "s.db", join_window_s=0.0) as here:
        await here.queue.put([sample(context_key="k")])
        await is_settled(here)
        bad = Supplement(id="bad", received_at=1.0, source="contexts", key="k", comment="\ud83d")
        await here.queue.supply([bad, said("a")])
        await is_settled(here)
        assert await here.outcome() == Score(0.25)
        assert here.failed == ["supplement"]
    assert "cannot store a supplement" in caplog.text


async def test_a_late_score_keeps_the_rate_with_which_its_metric_was_chosen(tmp_path):
    async with working(tmp_path / "s.db", join_window_s=0.0) as here:
        await here.queue.put([sample(context_key="k", rate=0.5)])
        await is_settled(here)
        here.metrics[0] = Enabled(metric=here.metric, rate=0.1, threshold=0.5, objective=0.9)
        await here.queue.supply([said("a")])
        await is_settled(here)
        late = (await here.store.sample("s1"))[1][0]
        assert (late.metric, late.outcome, late.rate) == ("grounded", Score(0.25), 0.5)


async def test_one_supplement_may_complete_many_samples_and_they_share_the_places(tmp_path):
    class Counting(Grounded):
        judge = "judge"
        now = most = 0

        async def score(self, sample):
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.001)
            self.now -= 1
            return await super().score(sample)

    async with working(tmp_path / "s.db", metric=Counting(), concurrency=3) as here:
        await here.queue.put([sample(f"s{k}", trace_id="t") for k in range(30)])
        await is_settled(here)
        await here.queue.supply([said("a", trace_id="t"), said("b", trace_id="t", name="u2", at=2.0)])
        await is_settled(here)
        outcomes = {str(await here.outcome(f"s{k}")) for k in range(30)}
        assert outcomes == {str(Score(0.5))}
        assert here.metric.most <= 3


async def test_samples_that_wait_are_left_to_their_leases_when_the_worker_stops(tmp_path):
    began = time.monotonic()
    async with working(tmp_path / "s.db", join_window_s=60.0) as here:
        await here.queue.put([sample(context_key="k")])
        await here.until(lambda: _waits(here))
        assert (await here.queue.depth()).leased == 1
        here.worker.stop()
    assert time.monotonic() - began < 50.0


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
async def test_what_a_gateway_without_bounds_sends_is_cut_on_arrival_and_counted(tmp_path, engine):
    queue = SQLiteQueue(tmp_path / "q.db") if engine == "sqlite" else None
    async with working(tmp_path / "s.db", queue=queue, join_window_s=60.0) as here:
        much = said(*(f"{at}" for at in range(MAX_PASSAGES + 500)), key="k", reference="r" * (2 * MAX_TEXT))
        await here.queue.supply([much])

        async def heard():
            return here.counts[-1:] == [("contexts", "waiting")]

        await here.until(heard)
        assert here.counts == [("contexts", "cut"), ("contexts", "waiting")]
        (kept,) = await here.store.supplements_of(sample(context_key="k"))
        assert (kept.contexts, kept.reference) == (much.contexts[:MAX_PASSAGES], "r" * MAX_TEXT)


async def test_of_a_store_without_texts_no_more_than_some_megabytes_of_supplements_are_remembered(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(hashing_store, "_REMEMBERED_BYTES", 50_000)

    store = hashing_store.HashingStore(SQLiteStore(tmp_path / "s.db"), Redactor((), (), "k"), window_s=60.0)
    for at in range(20):
        await store.supplement([said("x" * 10_000, name=f"{at:02}", at=float(at))])
        await store.supplement([said("x" * 10_000, name=f"{at:02}", at=float(at))])
    found = await store.supplements_of(sample(context_key="k"))
    await store.aclose()
    assert [one.id for one in found] == ["15", "16", "17", "18", "19"]
