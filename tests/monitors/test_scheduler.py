"""The plane on a real store: what it estimates and says, and what it lets go of."""

from __future__ import annotations

import asyncio
import contextlib
import time

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from examples.storage_engine.gaugeway_memory.queue import MemoryQueue
from gaugeway.records import Evaluation, Failed, Sample, Score
from gaugeway.settings import ConfigError
from gaugeway.settings.loading import admin_problems, join_problems, load
from gaugeway.settings.shared import Alerts, Config, Rule, Shared
from gaugeway.settings.shared import Judge as JudgeTable
from gaugeway.settings.shared import Monitors as MonitorsTable
from gaugeway.settings.shared import Queue as QueueTable
from gaugeway.storage.engines.sqlite.queue import SQLiteQueue
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from monitors.alerting.engine import AlertEngine
from monitors.app import check
from monitors.evaluation.models import open_judge
from monitors.exporters.instruments import Instruments
from monitors.metrics.registry import Catalogue
from monitors.scheduler import Scheduler, WorkerCounts
from monitors.statistics.weighted_mean import hajek

DAY_S = 86_400.0


@contextlib.asynccontextmanager
async def scheduler_at(tmp_path, queue=None, rules=()):
    store = SQLiteStore(tmp_path / "store.db")
    instruments = Instruments(CollectorRegistry(), version="0")
    waiting = queue or MemoryQueue()
    config = Config(alerts=Alerts(rules=rules, watermark_s=0.0, bucket_s=1.0))
    engine = engine_of(config, store)
    plane = make_plane(config, store, instruments, queue=waiting, engine=engine)
    try:
        yield plane, store, waiting
    finally:
        await engine.aclose()
        await waiting.aclose()
        await store.aclose()


def engine_of(config, store):
    return AlertEngine(
        config.alerts.rules or (),
        config.alerts,
        store,
        store,
        queue_oldest=lambda: asyncio.sleep(0),
        notifiers={},
        lower_is_better=lambda _: False,
    )


def make_plane(config, store, instruments, *, judging=None, queue=None, engine=None):
    return Scheduler(
        config,
        queue=queue or MemoryQueue(),
        store=store,
        catalogue=Catalogue(enabled=()),
        engine=engine or engine_of(config, store),
        exporters=[],
        instruments=instruments,
        judging=judging,
        state_store=store,
    )


async def add(store, name, outcome, *, app="shop", rate=1.0, age_s=10.0):
    sample = Sample(id=name, started_at=time.time() - age_s, app=app)
    await store.add(sample, [Evaluation(sample_id=name, metric="m", version="1", outcome=outcome, rate=rate)])


async def test_the_estimate_is_that_of_the_scores_in_the_window(tmp_path):
    values, rates = [k % 7 / 7 for k in range(200)], [0.5 if k % 3 else 1.0 for k in range(200)]

    async with scheduler_at(tmp_path) as (plane, store, _):
        for k, (value, rate) in enumerate(zip(values, rates, strict=True)):
            await add(store, f"s{k}", Score(value), rate=rate)
        await add(store, "failed", Failed("timeout"))
        await add(store, "old", Score(1.0), age_s=7200.0)
        await add(store, "few", Score(1.0), app="new")
        await plane.estimate()
        few, shop = plane.quality()
        expected = hajek(values, rates)
        assert (shop.app, shop.n, shop.mean) == ("shop", 200, pytest.approx(expected.mean))
        assert shop.n_eff == pytest.approx(expected.n_eff)
        assert shop.coverage_ratio == pytest.approx(200 / 201)
        assert shop.ci_low < shop.mean < shop.ci_high
        assert (few.n, few.mean) == (1, None)


async def test_what_is_found_in_answers_is_counted_shown_and_goes_on_after_a_restart(tmp_path):
    def answers(prefix, count, **about):
        fields = {"app": "shop", "question": "How long?", "response": "Two years.", "context_source": "none"} | about
        return [Sample(id=f"{prefix}{k}", started_at=time.time(), **fields) for k in range(count)]

    async def captured(store, samples, wanted):
        instruments, queue = Instruments(CollectorRegistry(), version="0"), MemoryQueue()
        plane = make_plane(Config(), store, instruments, queue=queue)
        plane.start()
        try:
            await queue.put(samples)
            async with asyncio.timeout(60):
                while sum(one.answers for one in plane.captured()) < wanted:  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(0.01)
            await plane.estimate()
        finally:
            await plane.aclose()
            await queue.aclose()
        return plane.captured(), instruments.registry.get_sample_value

    store = SQLiteStore(tmp_path / "store.db")
    found = answers("found", 30, context_source="tools")
    titles = answers("title", 100, skip_reason="auxiliary")
    first = await captured(store, [*found, *answers("bare", 10), *titles], 40)
    second = await captured(store, answers("later", 20), 60)
    await store.aclose()
    (first, value), (second, later) = first, second
    assert [(one.app, one.answers, one.captured) for one in first] == [("shop", 40, 30)]
    assert [
        value("gaugeway_answers_total", {"app": "shop", "found": one}) for one in ("both", "question", "nothing")
    ] == [
        *(30.0, 10.0),
        None,
    ]
    names = ("gaugeway_capture_ratio", "gaugeway_capture_ci_low", "gaugeway_capture_ci_high", "gaugeway_capture_n")
    assert [round(value(name, {"app": "shop"}), 3) for name in names] == [0.75, 0.598, 0.858, 40.0]
    assert [(one.answers, one.captured) for one in second] == [(60, 30)]
    assert later("gaugeway_capture_ratio", {"app": "shop"}) == 0.5
    assert later("gaugeway_answers_total", {"app": "shop", "found": "question"}) == 20.0


async def test_the_state_of_a_stream_is_the_worst_of_its_rules(tmp_path):
    rules = (Rule(metric="m", slo=0.9, name="strict"), Rule(metric="m", slo=0.1, name="lenient"))

    async with scheduler_at(tmp_path, rules=rules) as (plane, store, _):
        for k in range(60):
            await add(store, f"s{k}", Score(0.3), age_s=100.0 - k)
        plane.start()
        try:
            async with asyncio.timeout(60):
                while not plane.states():  # noqa: ASYNC110 - nothing tells that the engine has looked
                    await asyncio.sleep(0.01)
        finally:
            await plane.aclose()
        assert plane.states() == {("shop", "m"): "firing"}


async def test_dead_letters_and_stale_samples_go_with_the_retention(tmp_path):
    now = [time.time()]
    queue = SQLiteQueue(tmp_path / "queue.db", lease_s=60.0, max_attempts=1, clock=lambda: now[0])

    def batch(prefix, days, count=3):
        return [Sample(id=f"{prefix}{k}", started_at=time.time() - days * DAY_S) for k in range(count)]

    async with scheduler_at(tmp_path, queue=queue) as (plane, _, queue):
        await queue.put(batch("dead", 40, 600) + batch("young-dead", 1))
        await queue.lease(1000)
        now[0] += 60.0
        assert (await queue.depth()).dead == 603
        await queue.put(batch("leased", 40))
        await queue.lease(10)
        await queue.put(batch("stale", 40, 600) + batch("waiting", 1))
        await plane.prune()
        depth = await queue.depth()
        assert (depth.ready, depth.leased, depth.dead) == (3, 3, 3)
        assert await queue.prune(time.time() - 30 * DAY_S) == 0


def test_what_became_of_supplements_is_counted_by_channels_that_are_known():
    registry = CollectorRegistry()
    counts = WorkerCounts(Instruments(registry, version="1"), engine=None, capture=None)
    for source, result in [
        ("contexts", "joined"),
        ("contexts", "joined"),
        ("spans", "expired"),
        ("tenant-7", "waiting"),
    ]:
        counts.supplement(source, result)
    found = {
        (one.labels["source"], one.labels["result"]): one.value
        for family in registry.collect()
        for one in family.samples
        if one.name == "gaugeway_supplements_total"
    }
    assert found == {("contexts", "joined"): 2.0, ("spans", "expired"): 1.0, ("_other", "waiting"): 1.0}


@pytest.mark.parametrize(
    ("window_s", "lease_s", "fine"), [(15, 120, True), (0, 1, True), (60, 60, False), (90, 60, False)]
)
def test_waiting_for_contexts_must_fit_into_a_lease(tmp_path, window_s, lease_s, fine):
    config = Shared(monitors=MonitorsTable(join_window_s=window_s), queue=QueueTable(lease_s=lease_s))
    assert (join_problems(config) == []) is fine
    path = tmp_path / "gaugeway.toml"
    path.write_text(f"[monitors]\njoin_window_s = {window_s}\n[queue]\nlease_s = {lease_s}\n")
    if fine:
        assert load(path).monitors.join_window_s == window_s
        return
    for reading in (lambda: load(path), lambda: check(config)):
        with pytest.raises(ConfigError, match=r"monitors\.join_window_s: .* shorter than queue\.lease_s"):
            reading()


def test_a_queue_in_memory_is_refused_because_two_processes_cannot_share_it():
    with pytest.raises(ConfigError, match=r"queue\.url: .*use .*sqlite://"):
        check(Shared(queue=QueueTable(url="memory://")))


@pytest.mark.parametrize(
    ("monitors", "problems"),
    [
        ({}, 0),
        ({"host": "localhost"}, 0),
        ({"host": "::1"}, 0),
        ({"host": "0.0.0.0", "token": "t"}, 0),
        ({"host": "0.0.0.0"}, 1),
        ({"host": "0.0.0.0", "token": ""}, 1),
        ({"host": "example.org"}, 1),
    ],
)
def test_an_address_that_others_can_reach_needs_a_token_also_when_the_monitors_run_alone(tmp_path, monitors, problems):
    assert len(admin_problems(Shared(monitors=MonitorsTable(**monitors)))) == problems
    path = tmp_path / "gaugeway.toml"
    path.write_text("[monitors]\n" + "".join(f'{key} = "{value}"\n' for key, value in monitors.items()))
    if not problems:
        assert load(path).monitors.host == monitors.get("host", "127.0.0.1")
        return
    with pytest.raises(ConfigError, match=r"monitors\.host: .* needs a token"):
        load(path)


async def test_spending_is_saved_while_the_plane_runs_and_when_it_ends(tmp_path):
    store, instruments = SQLiteStore(tmp_path / "store.db"), Instruments(CollectorRegistry(), version="0")
    table = JudgeTable(base_url="http://127.0.0.1:9/v1", model="m", price_in=1.0, budget_usd_per_day=5.0)
    config = Config(monitors=MonitorsTable(replica="one"), judge=table)

    async def account():
        return msgspec.json.decode((await store.load()).get("judge/spent/one", b"{}"))

    async def plane_and_pacer():
        judging = open_judge(config.judge, instruments)
        plane = make_plane(config, store, instruments, judging=judging)
        plane.start()
        async with asyncio.timeout(60):
            while (await account()).get("at", 0.0) < began:  # noqa: ASYNC110 - a file has no event
                await asyncio.sleep(0.01)
        return plane, judging.pacer

    try:
        began = time.time()
        plane, pacer = await plane_and_pacer()
        pacer.observe(0.25, time.time())
        await plane.aclose()
        assert (await account())["usd"] == 0.25
        began = time.time()
        plane, pacer = await plane_and_pacer()
        assert pacer.spent(time.time()).usd == 0.25
        assert instruments.registry.get_sample_value("gaugeway_judge_budget_spent_usd") == 0.25
        await store.aclose()
        store.load = broken
        await plane.aclose()  # a store that is gone does not keep it from stopping
    finally:
        await store.aclose()


async def broken():
    raise OSError("gone")
