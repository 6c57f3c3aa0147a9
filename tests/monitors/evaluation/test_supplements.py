"""Supplements of a running worker: joined, waited for, late, bounded; nothing is lost."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest

from gaugeway.records import Context, Sample, Score, Skipped, Supplement
from gaugeway.redaction import Redactor
from gaugeway.settings.bounds import MAX_PASSAGES, MAX_TEXT
from gaugeway.storage.engines.failures import EngineError
from gaugeway.storage.engines.sqlite.queue import SQLiteQueue
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.stores import Store, hashing_store
from monitors.metrics.registry import Enabled
from tests.support.bench import Grounded, said, working


def sample(sample_id="s1", **fields):
    return Sample(id=sample_id, started_at=1.0, **{"response": "Yes.", **fields})


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
    async with working(tmp_path / "s.db") as here:
        here.metric.may_end.clear()
        await here.queue.put([sample(trace_id="t")])
        await here.metric.begun.wait()
        await here.queue.supply([said("a", trace_id="t")])
        await here.until(lambda: _none_waits(here))
        assert await here.store.sample("s1") is None
        here.metric.may_end.set()
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
