"""What every queue promises, sentence by sentence of the port."""

import asyncio
import contextlib
import random
from dataclasses import dataclass, field

import pytest

from examples.storage_engine.gaugeway_memory.queue import MemoryQueue
from gaugeway.records import CaptureInfo, Context, PromptPart, Sample, Supplement, Usage
from gaugeway.storage.engines.postgres.queue import PostgresQueue
from gaugeway.storage.engines.redis.connection import read_url
from gaugeway.storage.engines.redis.queue import RedisQueue
from gaugeway.storage.engines.sqlite.queue import SQLiteQueue
from gaugeway.storage.queues import Depth, QueueFull, from_url
from tests.support.clock import Clock
from tests.support.postgres import postgres
from tests.support.redis import redis_server

LEASE_S = 60.0
MAX_ATTEMPTS = 3


@dataclass
class Bench:
    """Runs a scenario against a fresh queue, whose clock it can turn."""

    build: object
    clock: Clock = field(default_factory=Clock)

    def run(self, scenario, **options):
        async def main():
            queue = self.build(lease_s=LEASE_S, max_attempts=MAX_ATTEMPTS, clock=self.clock, **options)
            try:
                await scenario(queue)
            finally:
                await queue.aclose()

        asyncio.run(main())

    def let_leases_end(self):
        self.clock.now += LEASE_S


@pytest.fixture(params=["memory", "sqlite", "postgresql", "redis"])
def bench(request, tmp_path):
    if request.param == "memory":
        return Bench(MemoryQueue)
    if request.param == "postgresql":
        url = postgres().database()
        return Bench(lambda **options: PostgresQueue(url, **options))
    if request.param == "redis":
        address = read_url(redis_server().url())
        return Bench(lambda **options: RedisQueue(address, **options))
    return Bench(lambda **options: SQLiteQueue(tmp_path / "queue.db", **options))


def sample(sample_id, started_at=1.0, **fields):
    return Sample(id=sample_id, started_at=started_at, **fields)


def ids(leases):
    return [lease.sample.id for lease in leases]


async def use_up(bench, queue):
    for _ in range(MAX_ATTEMPTS):
        assert await queue.lease(10)
        bench.let_leases_end()


def test_a_sample_comes_out_as_it_went_in(bench):
    whole = sample(
        "a",
        started_at=12.5,
        app="shop",
        model="gpt",
        question="naïve \U0001f600?",
        contexts=(Context(text="one", id="1", score=0.5, source="wiki"), Context(text="two")),
        context_source="tools",
        response="yes",
        reference="no",
        tags={"tenant": "x"},
        session="s",
        trace_id="t",
        span_id="p",
        response_id="r",
        rate=0.25,
        usage=Usage(input_tokens=1, output_tokens=2, cached_tokens=None),
        duration_s=0.5,
        skip_reason="stream_cut",
        capture=CaptureInfo(
            source="tools",
            marker="search",
            confidence=0.75,
            reason="naïve \U0001f600",
            parts=(
                PromptPart(role="system", kind="instructions", start=0, end=9, text="Be naïve."),
                PromptPart(role="user", kind="question", start=2, end=9, message=1),
                PromptPart(role="tool", kind="passage", start=0, end=3, message=3, passage=0),
            ),
            cut=True,
            shortened=True,
        ),
    )

    async def scenario(queue):
        await queue.put([whole])
        (lease,) = await queue.lease(1)
        assert lease.sample == whole

    bench.run(scenario)


def test_putting_nothing_is_harmless(bench):
    async def scenario(queue):
        await queue.put([])
        assert await queue.depth() == Depth(ready=0, leased=0, dead=0, oldest_started_at=None)

    bench.run(scenario)


def test_a_put_that_fails_adds_none_of_its_samples(bench):
    async def scenario(queue):
        with pytest.raises(AttributeError):
            await queue.put([sample("a"), None])
        assert await queue.depth() == Depth(ready=0, leased=0, dead=0, oldest_started_at=None)

    bench.run(scenario)


def test_a_sample_whose_id_waits_already_is_left_as_it_is(bench):
    async def scenario(queue):
        await queue.put([sample("a", response="first"), sample("b")])
        await queue.put([sample("a", response="second"), sample("c")])
        leases = await queue.lease(10)
        assert ids(leases) == ["a", "b", "c"]
        assert leases[0].sample.response == "first"

    bench.run(scenario)


def test_an_id_twice_in_one_put_is_one_sample(bench):
    async def scenario(queue):
        await queue.put([sample("a", response="first"), sample("a", response="second")])
        (lease,) = await queue.lease(10)
        assert lease.sample.response == "first"

    bench.run(scenario)


def test_putting_a_leased_sample_again_does_not_end_its_lease(bench):
    async def scenario(queue):
        await queue.put([sample("a")])
        await queue.lease(1)
        await queue.put([sample("a")])
        assert not await queue.lease(1)

    bench.run(scenario)


def test_putting_a_dead_sample_again_does_not_revive_it(bench):
    async def scenario(queue):
        await queue.put([sample("a")])
        await use_up(bench, queue)
        await queue.depth()
        await queue.put([sample("a")])
        assert not await queue.lease(1)
        assert await queue.depth() == Depth(ready=0, leased=0, dead=1, oldest_started_at=None)

    bench.run(scenario)


def test_putting_a_sample_that_has_used_up_its_attempts_does_not_revive_it_even_before_anyone_looked(bench):
    async def scenario(queue):
        await queue.put([sample("a")])
        await use_up(bench, queue)
        await queue.put([sample("a")])
        assert not await queue.lease(1)
        assert (await queue.depth()).dead == 1

    bench.run(scenario)


def test_a_sample_that_was_acknowledged_may_come_again(bench):
    async def scenario(queue):
        await queue.put([sample("a")])
        await queue.lease(1)
        await queue.ack(["a"])
        await queue.put([sample("a")])
        (lease,) = await queue.lease(1)
        assert lease.attempt == 1

    bench.run(scenario)


def test_samples_are_leased_in_the_order_they_were_put(bench):
    async def scenario(queue):
        await queue.put([sample("z", 3.0), sample("m", 1.0)])
        await queue.put([sample("a", 2.0)])
        assert ids(await queue.lease(2)) == ["z", "m"]
        assert ids(await queue.lease(2)) == ["a"]

    bench.run(scenario)


@pytest.mark.parametrize(("limit", "expected"), [(-1, 0), (0, 0), (1, 1), (3, 3), (9, 5)])
def test_a_lease_takes_at_most_as_many_as_asked_for(bench, limit, expected):
    async def scenario(queue):
        await queue.put([sample(str(number)) for number in range(5)])
        assert len(await queue.lease(limit)) == expected

    bench.run(scenario)


def test_nobody_gets_what_somebody_else_holds(bench):
    async def scenario(queue):
        await queue.put([sample(str(number)) for number in range(40)])
        taken = await asyncio.gather(*(queue.lease(7) for _ in range(8)))
        assert sorted(ids(lease for leases in taken for lease in leases)) == sorted(map(str, range(40)))

    bench.run(scenario)


def test_a_lease_holds_until_its_end_and_no_longer(bench):
    async def scenario(queue):
        await queue.put([sample("a")])
        await queue.lease(1)
        bench.clock.now += LEASE_S - 0.5
        assert not await queue.lease(1)
        bench.clock.now += 0.5
        assert ids(await queue.lease(1)) == ["a"]

    bench.run(scenario)


def test_a_renewed_lease_holds_from_then_on_and_costs_no_attempt(bench):
    async def scenario(queue):
        await queue.put([sample("a"), sample("b"), sample("c")])
        assert ids(await queue.lease(2)) == ["a", "b"]
        for _ in range(2 * MAX_ATTEMPTS):
            bench.clock.now += 0.75 * LEASE_S
            await queue.renew(["a", "c", "unknown"])
        await queue.renew([])
        leases = await queue.lease(10)
        assert sorted(ids(leases)) == ["b", "c"], "a is held, and c, which nobody held, got no lease"
        bench.let_leases_end()
        assert {lease.sample.id: lease.attempt for lease in await queue.lease(10)} == {"a": 2, "b": 3, "c": 2}

    bench.run(scenario)


def test_attempts_are_counted_from_one(bench):
    async def scenario(queue):
        await queue.put([sample("a")])
        for attempt in (1, 2, 3):
            (lease,) = await queue.lease(1)
            assert lease.attempt == attempt
            bench.let_leases_end()

    bench.run(scenario)


def test_a_sample_handed_out_again_comes_before_younger_ones(bench):
    async def scenario(queue):
        await queue.put([sample("a")])
        await queue.lease(1)
        await queue.put([sample("b")])
        bench.let_leases_end()
        leases = await queue.lease(2)
        assert [(lease.sample.id, lease.attempt) for lease in leases] == [("a", 2), ("b", 1)]

    bench.run(scenario)


def test_the_last_attempt_may_take_its_whole_lease(bench):
    async def scenario(queue):
        await queue.put([sample("a")])
        for _ in range(MAX_ATTEMPTS - 1):
            await queue.lease(1)
            bench.let_leases_end()
        await queue.lease(1)
        assert await queue.depth() == Depth(ready=0, leased=1, dead=0, oldest_started_at=1.0)

    bench.run(scenario)


def test_the_next_lease_sets_a_sample_aside_whose_attempts_are_used_up(bench):
    async def scenario(queue):
        await queue.put([sample("a")])
        await use_up(bench, queue)
        await queue.put([sample("b")])
        assert ids(await queue.lease(10)) == ["b"]
        assert (await queue.depth()).dead == 1

    bench.run(scenario)


def test_asking_for_the_depth_sets_a_sample_aside_whose_attempts_are_used_up(bench):
    async def scenario(queue):
        await queue.put([sample("a")])
        await use_up(bench, queue)
        assert await queue.depth() == Depth(ready=0, leased=0, dead=1, oldest_started_at=None)
        bench.clock.now += 1_000_000.0
        assert not await queue.lease(10)

    bench.run(scenario)


def test_an_acknowledged_sample_never_comes_back(bench):
    async def scenario(queue):
        await queue.put([sample("a"), sample("b")])
        await queue.lease(2)
        await queue.ack(["a"])
        bench.let_leases_end()
        assert ids(await queue.lease(2)) == ["b"]

    bench.run(scenario)


def test_an_acknowledgement_counts_whoever_holds_the_sample_now(bench):
    async def scenario(queue):
        await queue.put([sample("a"), sample("b")])
        await queue.lease(1)
        bench.let_leases_end()
        assert ids(await queue.lease(1)) == ["a"]
        await queue.ack(["a", "b"])
        bench.let_leases_end()
        assert await queue.depth() == Depth(ready=0, leased=0, dead=0, oldest_started_at=None)

    bench.run(scenario)


def test_an_acknowledgement_removes_dead_samples_too(bench):
    async def scenario(queue):
        await queue.put([sample("a")])
        await use_up(bench, queue)
        assert (await queue.depth()).dead == 1
        await queue.ack(["a"])
        assert (await queue.depth()).dead == 0

    bench.run(scenario)


def test_acknowledging_what_is_not_there_is_harmless(bench):
    async def scenario(queue):
        await queue.put([sample("a")])
        await queue.ack([])
        await queue.ack(["never seen", "never seen"])
        assert (await queue.depth()).ready == 1

    bench.run(scenario)


def test_the_depth_tells_ready_from_leased_and_dead(bench):
    async def scenario(queue):
        await queue.put([sample("dead", 1.0)])
        await use_up(bench, queue)
        await queue.put([sample("held", 30.0), sample("old", 20.0), sample("young", 40.0)])
        await queue.lease(1)
        assert await queue.depth() == Depth(ready=2, leased=1, dead=1, oldest_started_at=20.0)
        bench.let_leases_end()
        assert await queue.depth() == Depth(ready=3, leased=0, dead=1, oldest_started_at=20.0)

    bench.run(scenario)


def test_the_oldest_may_be_one_that_is_leased(bench):
    async def scenario(queue):
        await queue.put([sample("held", 10.0), sample("ready", 20.0)])
        await queue.lease(1)
        assert (await queue.depth()).oldest_started_at == 10.0

    bench.run(scenario)


def test_the_depth_says_about_how_many_bytes_wait(bench):
    async def scenario(queue):
        empty = await queue.depth()
        assert empty.bytes < 100_000
        await queue.put([sample(f"s{number}", response=random.randbytes(2_000).hex()) for number in range(100)])
        full = await queue.depth()
        assert 150_000 < full.bytes < 1_200_000  # an engine may pack what it stores
        assert full.fill == 0.0 or isinstance(queue, RedisQueue)
        await queue.ack([f"s{number}" for number in range(100)])
        assert (await queue.depth()).bytes < 100_000

    bench.run(scenario)


def test_a_queue_with_a_bound_refuses_what_goes_beyond_says_how_full_it_is_and_takes_more_when_there_is_room(bench):
    async def scenario(queue):
        taken = 0
        with contextlib.suppress(QueueFull):
            while taken < 1000:
                await queue.put([sample(f"s{taken}", response=random.randbytes(2_000).hex())])
                taken += 1
        assert taken < 1000
        depth = await queue.depth()
        assert depth.ready == taken
        assert 0.8 < depth.fill < 1.5
        with pytest.raises(QueueFull):
            await queue.put([sample("more")])
        await queue.ack([f"s{number}" for number in range(taken)])
        await queue.put([sample("more")])
        depth = await queue.depth()
        assert depth.ready == 1
        assert depth.fill < 0.5

    bench.run(scenario, max_bytes=300_000)


def supplement(supplement_id, received_at=1.0, **fields):
    return Supplement(id=supplement_id, received_at=received_at, **{"source": "contexts", "key": "k", **fields})


def names(supplements):
    return [one.id for one in supplements]


def test_a_supplement_comes_out_as_it_went_in(bench):
    whole = supplement(
        "a",
        received_at=12.5,
        source="feedback",
        exchange_id="e",
        key="k",
        trace_id="t",
        question="naïve \U0001f600?",
        contexts=(Context(text="one", id="1", score=0.5, source="wiki"), Context(text="two")),
        reference="r",
        rating=0.25,
        label="good",
        comment="c",
    )
    nothing_found = supplement("b", contexts=())

    async def scenario(queue):
        await queue.supply([whole, nothing_found])
        assert list(await queue.take(10)) == [whole, nothing_found]

    bench.run(scenario)


def test_of_too_many_passages_one_more_than_is_kept_is_taken(bench):
    """Enough to see that there were more; a queue in memory holds all of them anyway."""
    much = supplement("a", contexts=tuple(Context(text=str(number)) for number in range(5000)))

    async def scenario(queue):
        await queue.supply([much])
        (taken,) = await queue.take(1)
        assert taken.contexts == much.contexts[: 5000 if isinstance(queue, MemoryQueue) else 201]

    bench.run(scenario)


def test_supplying_nothing_taking_nothing_and_acknowledging_nothing_is_harmless(bench):
    async def scenario(queue):
        assert list(await queue.take(10)) == []
        await queue.supply([])
        await queue.supply([supplement("a")])
        assert list(await queue.take(0)) == []
        assert list(await queue.take(-1)) == []
        await queue.ack_supplies([])
        await queue.ack_supplies(["never seen", "never seen"])
        assert names(await queue.take(10)) == ["a"]

    bench.run(scenario)


def test_a_supply_that_fails_adds_none_of_its_supplements(bench):
    async def scenario(queue):
        with pytest.raises(AttributeError):
            await queue.supply([supplement("a"), None])
        assert list(await queue.take(10)) == []

    bench.run(scenario)


def test_a_supplement_whose_id_waits_already_is_left_as_it_is(bench):
    async def scenario(queue):
        await queue.supply([supplement("a", label="first"), supplement("a", label="second")])
        await queue.supply([supplement("a", label="third"), supplement("b")])
        taken = await queue.take(10)
        assert [(one.id, one.label) for one in taken] == [("a", "first"), ("b", None)]

    bench.run(scenario)


def test_supplements_are_taken_in_the_order_they_were_supplied_and_nobody_gets_what_somebody_else_holds(bench):
    async def scenario(queue):
        await queue.supply([supplement("z", 3.0), supplement("m", 1.0), supplement("a", 2.0)])
        assert names(await queue.take(2)) == ["z", "m"]
        assert names(await queue.take(2)) == ["a"]
        assert names(await queue.take(2)) == []

    bench.run(scenario)


def test_a_supplement_is_taken_once_however_many_ask_at_once(bench):
    async def scenario(queue):
        await queue.supply([supplement(str(number)) for number in range(40)])
        taken = await asyncio.gather(*(queue.take(7) for _ in range(8)))
        assert sorted(names(one for some in taken for one in some)) == sorted(map(str, range(40)))

    bench.run(scenario)


def test_a_supplement_not_acknowledged_comes_again_however_often(bench):
    async def scenario(queue):
        await queue.supply([supplement("a")])
        for _ in range(MAX_ATTEMPTS + 2):
            assert names(await queue.take(1)) == ["a"]
            bench.clock.now += LEASE_S - 0.5
            assert names(await queue.take(1)) == []
            bench.clock.now += 0.5

    bench.run(scenario)


def test_an_acknowledged_supplement_never_comes_back_and_its_id_may_come_again(bench):
    async def scenario(queue):
        await queue.supply([supplement("a"), supplement("b")])
        await queue.take(1)
        await queue.ack_supplies(["a"])
        bench.let_leases_end()
        assert names(await queue.take(10)) == ["b"]
        await queue.supply([supplement("a")])
        assert names(await queue.take(10)) == ["a"]

    bench.run(scenario)


def test_supplements_are_no_samples_and_do_not_count_as_waiting(bench):
    async def scenario(queue):
        await queue.supply([supplement("a")])
        assert await queue.depth() == Depth(ready=0, leased=0, dead=0, oldest_started_at=None)
        assert list(await queue.lease(10)) == []
        await queue.put([sample("a")])
        await queue.ack(["a"])
        assert names(await queue.take(10)) == ["a"]

    bench.run(scenario)


def test_closing_twice_is_harmless(bench):
    async def scenario(queue):
        await queue.put([sample("a")])
        await queue.aclose()
        await queue.aclose()

    bench.run(scenario)


def test_closing_a_queue_that_was_never_used_is_harmless(bench):
    async def scenario(queue):
        await queue.aclose()

    bench.run(scenario)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///{here}/deep/queue.db", "deep/queue.db"),
        ("sqlite:///queue.db", "queue.db"),
        ("sqlite:///a%20b", "a%20b"),
    ],
)
def test_a_sqlite_url_names_an_absolute_or_a_relative_path(url, path, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    async def scenario():
        async with contextlib.aclosing(from_url(url.format(here=tmp_path), 0.0, 2)) as queue:
            assert isinstance(queue, SQLiteQueue)
            await queue.put([sample("a")])
            leased = [len(await queue.lease(9)) for _ in range(3)]
            return leased, (await queue.depth()).dead

    assert asyncio.run(scenario()) == ([1, 1, 0], 1)
    assert (tmp_path / path).exists()


@pytest.mark.parametrize("url", ["mysql://user:secret@host/db", "sqlite", "", "my_package:Queue", "memory://"])
def test_an_unknown_scheme_is_refused_with_those_that_are_known(url):
    with pytest.raises(
        ValueError,
        match=r"(unsupported URL|no) scheme.*; use postgres://, postgresql://, redis://, rediss://, sqlite://",
    ) as refusal:
        from_url(url, 60.0, 3)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite://queue.db"])
def test_a_url_without_a_usable_path_is_refused_with_the_right_form(url):
    with pytest.raises(ValueError, match="expected sqlite:////absolute"):
        from_url(url, 60.0, 3)


def test_a_sample_that_is_set_aside_is_a_dead_letter_at_once_and_comes_back_no_more(bench):
    async def scenario(queue):
        await queue.put([sample("leased"), sample("waiting"), sample("other")])
        await queue.lease(1)
        await queue.set_aside("leased", "refused: 54000 \0")
        await queue.set_aside("waiting", "refused")
        await queue.set_aside("unknown", "refused")
        depth = await queue.depth()
        assert (depth.ready, depth.leased, depth.dead) == (1, 0, 2)
        await queue.put([sample("leased"), sample("waiting")])
        bench.let_leases_end()
        assert [lease.sample.id for lease in await queue.lease(5)] == ["other"]
        await queue.ack(["leased", "waiting", "other"])
        assert (await queue.depth()).dead == 0

    bench.run(scenario)
