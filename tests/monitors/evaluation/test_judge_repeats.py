"""Answers that are judged twice: what is kept of the second score, what it costs, and that nothing else notices it."""

from __future__ import annotations

import asyncio
import contextlib
import time

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from examples.storage_engine.gaugeway_memory.queue import MemoryQueue
from gaugeway.records import Context, Sample, Score
from gaugeway.sampling import keeps
from gaugeway.settings.shared import Alerts, Config, Judge, Metric, Monitors
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.stores import Query
from monitors.alerting.engine import AlertEngine
from monitors.evaluation.evaluator import evaluate
from monitors.evaluation.judge_repeats import KEPT_S, MAX_WAITING, PREFIX, JudgeRepeats, is_repeated
from monitors.evaluation.models import open_judge
from monitors.exporters.instruments import Instruments
from monitors.judges.scripted import Scripted
from monitors.metrics.registry import build
from monitors.scheduler import Scheduler
from tests.support.llm_server import LLMServer, error
from tests.support.moody_judge import Moody, verdicts

METRICS = {name: Metric(rate=1.0) for name in ("faithfulness", "hallucination")} | {
    name: Metric(enabled=False) for name in ("answer_relevancy", "context_relevancy", "context_utilization")
}
EVER = Query(since=0.0, until=1e12)
PASSAGE = Context(text="The parcel leaves the depot in Leipzig on Monday.")


def answer(k, prefix="s"):
    return Sample(
        id=f"{prefix}{k}",
        started_at=time.time(),
        app="shop",
        question=f"Where is parcel {prefix}{k}?",
        contexts=(PASSAGE,),
        response="It leaves Leipzig on Monday. It is heavy.",
    )


@contextlib.asynccontextmanager
async def running(tmp_path, server, *, replica="one", **judge):
    """The plane on a real store, with the judge that `server` is."""
    instruments, queue = Instruments(CollectorRegistry(), version="0"), MemoryQueue()
    table = Judge(**{"base_url": server.url, "model": "judge-1", "max_retries": 0, "repeat": 1.0} | judge)
    config = Config(judge=table, alerts=Alerts(rules=()), monitors=Monitors(replica=replica), metrics=METRICS)
    judging, store = open_judge(table, instruments), SQLiteStore(tmp_path / "store.db")
    catalogue = build(METRICS, judging.judge, None)
    engine = AlertEngine(
        (),
        config.alerts,
        store,
        store,
        queue_oldest=lambda: asyncio.sleep(0),
        notifiers={},
        lower_is_better=lambda _: False,
    )
    plane = Scheduler(
        config,
        queue=queue,
        store=store,
        catalogue=catalogue,
        engine=engine,
        exporters=[],
        instruments=instruments,
        judging=judging,
        state_store=store,
    )
    plane.start_scoring()
    try:
        yield plane, queue, store, instruments.registry, catalogue.by_name
    finally:
        await plane.aclose()
        await judging.judge.aclose()
        await queue.aclose()
        await store.aclose()


def counted(registry, **labels):
    """The second judgements, by outcome and reason."""
    return {
        (one.labels["outcome"], one.labels["reason"]): one.value
        for family in registry.collect()
        for one in family.samples
        if one.name == "gaugeway_judge_repeats_total" and labels.items() <= one.labels.items()
    }


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - the counters have no event
            await asyncio.sleep(0.01)


def total(registry):
    return sum(counted(registry, metric="faithfulness").values())


async def test_the_second_score_is_compared_with_the_first_and_enters_nothing_else(tmp_path):
    moody = Moody()
    with LLMServer(moody) as server:
        async with running(tmp_path, server) as (plane, queue, store, registry, metrics):
            await queue.put([answer(k) for k in range(40)])
            await until(lambda: total(registry) == 40)
            scores = {
                metric: {point.value for point in await store.series(EVER) if point.metric == metric}
                for metric in ("faithfulness", "hallucination", "lexical_groundedness")
            }
            assert (scores["faithfulness"], scores["hallucination"]) == ({1.0}, {0.0})
            assert {point.sample_id for point in await store.series(EVER)} == {f"s{k}" for k in range(40)}
            found = {one.metric: one for one in plane.judge_repeats()}
            assert set(found) == {"faithfulness", "hallucination"}, "what asks no judge is not repeated"
            assert found["faithfulness"].judge == "judge-1"
            assert found["faithfulness"].sd.n == 40
            assert found["faithfulness"].sd.value == pytest.approx(0.5 / 2**0.5)
            assert found["faithfulness"].flipped.value == 1.0
            assert found["faithfulness"].half_width == pytest.approx(1.96 * 0.5 / 2**0.5, rel=1e-4)
            # Both metrics share one call, the second time too.
            assert set(moody.asked.values()) == {2}
            # The cache still has the first answer.
            again = await evaluate(metrics["faithfulness"], answer(3), rate=1.0, clock=time.perf_counter)
            assert isinstance(again.outcome, Score)
            assert again.outcome.value == 1.0
            assert set(moody.asked.values()) == {2}


async def test_pairs_survive_a_restart_and_those_of_other_processes_are_added(tmp_path):
    with LLMServer(Moody()) as server:
        for prefix, replica in (("a", "one"), ("b", "two"), ("c", "one")):
            async with running(tmp_path, server, replica=replica) as (_, queue, _, registry, _):
                await queue.put([answer(k, prefix) for k in range(10)])
                await until(lambda registry=registry: total(registry) == 10)
        async with running(tmp_path, server, replica="three") as (plane, _, _, registry, _):
            await until(lambda: len(plane.judge_repeats()) == 2)
            assert [one.sd.n for one in plane.judge_repeats()] == [30, 30]
            labels = {"judge_model": "judge-1", "metric": "faithfulness"}
            value = registry.get_sample_value
            assert value("gaugeway_judge_repeat_pairs", labels) == 30.0
            assert value("gaugeway_judge_repeat_sd", labels) == pytest.approx(0.354, abs=1e-3)
            assert (
                value("gaugeway_judge_repeat_sd_ci_low", labels)
                < 0.354
                < value("gaugeway_judge_repeat_sd_ci_high", labels)
            )
            assert value("gaugeway_judge_repeat_flip_ratio", labels) == 1.0


async def test_a_second_judgement_that_fails_is_counted_and_leaves_the_first(tmp_path):
    with LLMServer(Moody(error(500, "out of order"))) as server:
        async with running(tmp_path, server) as (plane, queue, store, registry, _):
            await queue.put([answer(k) for k in range(5)])
            await until(lambda: total(registry) == 5)
            assert counted(registry, metric="faithfulness") == {("failed", "server_error"): 5.0}
            points = [point for point in await store.series(EVER) if point.metric == "faithfulness"]
            assert [(point.outcome, point.value) for point in points] == [("score", 1.0)] * 5
            assert list(plane.judge_repeats()) == []


async def test_without_budget_nothing_is_judged_twice_and_a_second_judgement_is_paid_from_it(tmp_path):
    dear = {"price_in": 1e6, "price_out": 1e6, "budget_usd_per_day": 1e9}
    with LLMServer(Moody()) as server:
        async with running(tmp_path, server, **dear) as (_, queue, _, registry, _):
            await queue.put([answer(0)])
            await until(lambda: total(registry) == 1)
            names = ("faithfulness", "hallucination")
            costs = [
                registry.get_sample_value("gaugeway_evaluation_cost_usd_total", {"app": "shop", "metric": name}) or 0.0
                for name in names
            ]
            assert sum(costs) == pytest.approx(2 * 15.0), "two calls of 15 tokens"
        moody = Moody()
    with LLMServer(moody) as server:
        async with running(tmp_path / "poor", server, **dear | {"budget_usd_per_day": 1e-6}) as (
            plane,
            _,
            _,
            registry,
            _,
        ):
            plane._pacer.observe(1.0, time.time())  # noqa: SLF001 - what others have spent
            one = answer(1, "poor")
            metrics = build(METRICS, Scripted({"claims_verdicts": verdicts(4)}), None).by_name
            first = await evaluate(metrics["faithfulness"], one, rate=1.0, clock=time.perf_counter)
            plane._repeats.export(one, [first])  # noqa: SLF001 - as the worker does
            await until(lambda: total(registry) == 1)
            assert counted(registry, metric="faithfulness") == {("dropped", "budget"): 1.0}
            assert not moody.asked


def repeats_of(store=None, metrics=METRICS, rate=1.0, *, replica="one", **options):
    judge = Scripted({"claims_verdicts": verdicts(2)})
    instruments = Instruments(CollectorRegistry(), version="0")
    enabled = build(metrics, judge, None).enabled
    made = JudgeRepeats(enabled, rate, state_store=store, replica=replica, instruments=instruments, **options)
    return made, instruments.registry, judge, {one.metric.name: one.metric for one in enabled}


async def first_score(metrics, one):
    return await evaluate(metrics["faithfulness"], one, rate=1.0, clock=time.perf_counter)


async def test_more_than_can_wait_are_dropped_and_counted():
    repeats, registry, _, metrics = repeats_of()
    for k in range(MAX_WAITING + 3):
        repeats.export(answer(k), [await first_score(metrics, answer(k))])
    assert counted(registry) == {("dropped", "queue_full"): 3.0}


async def test_with_the_share_0_nothing_is_repeated_loaded_or_shown(tmp_path):
    async with contextlib.aclosing(SQLiteStore(tmp_path / "store.db")) as store:
        repeats, registry, judge, metrics = repeats_of(store, rate=0.0)
        repeats.export(answer(1), [await first_score(metrics, answer(1))])
        task, asked = asyncio.ensure_future(repeats.run()), len(judge.asked)
        await repeats.tick()
        task.cancel()
        assert (len(judge.asked), counted(registry), list(repeats.found())) == (asked, {}, [])
        assert await store.load() == {}


async def test_old_pairs_are_forgotten_and_unreadable_ones_are_left_alone(tmp_path, caplog):
    _, _, _, metrics = repeats_of()
    version, now = str(metrics["faithfulness"].version), time.time()
    known = ["faithfulness", version, "scripted"]
    old, new = [now - KEPT_S - 1.0, 0.0, 1.0], [now - 60.0, 0.5, 0.75]
    async with contextlib.aclosing(SQLiteStore(tmp_path / "store.db")) as store:
        await store.save(
            {
                f"{PREFIX}gone": msgspec.json.encode([[known, [old]]]),
                f"{PREFIX}two": msgspec.json.encode([[known, [old, new]]]),
                f"{PREFIX}later": b'{"format": 2}',
            }
        )
        repeats, *_ = repeats_of(store)
        await repeats.tick()
        (found,) = repeats.found()
        assert (found.sd.n, found.sd.value) == (1, pytest.approx(0.25 / 2**0.5))
        states = {key: state for key, state in (await store.load()).items() if state}
        assert set(states) == {f"{PREFIX}two", f"{PREFIX}later"}
        assert "unreadable judge/repeats/later" in caplog.text


def test_which_answers_are_repeated_is_the_same_everywhere_and_says_nothing_about_which_are_judged():
    ids = [f"exchange-{k}" for k in range(20_000)]
    chosen = {name for name in ids if is_repeated(Sample(id=name, started_at=0.0), 0.2)}
    assert {name for name in ids if is_repeated(Sample(id=name, started_at=9.0, app="x"), 0.1)} < chosen
    assert len(chosen) / len(ids) == pytest.approx(0.2, abs=0.01)
    for salt in ("gaugeway", ""):
        judged = [name for name in ids if keeps(None, name, 0.1, salt=salt, nested_with_otel=False)]
        assert sum(name in chosen for name in judged) / len(judged) == pytest.approx(0.2, abs=0.04)
