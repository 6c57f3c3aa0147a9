"""Every queue against a plain model of the port, through sequences of operations that a machine makes up."""

import asyncio
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from examples.storage_engine.gaugeway_memory.queue import MemoryQueue
from gaugeway.records import Sample, Supplement
from gaugeway.storage.engines.postgres.queue import PostgresQueue
from gaugeway.storage.engines.redis.connection import read_url
from gaugeway.storage.engines.redis.queue import RedisQueue
from gaugeway.storage.engines.sqlite.queue import SQLiteQueue
from tests.support.machines import run_machine, tally
from tests.support.postgres import postgres
from tests.support.redis import redis_server

LEASE_S, ATTEMPTS = 60.0, 2
NAMES = st.sampled_from(["a", "b", "c", "d", "e", "\u00e9\U0001f600 '\"\\"])
SOME_NAMES = st.lists(NAMES, max_size=4)
LIMITS = st.integers(-1, 4)
TURNS = st.integers(0, 6)
"""How far an operation gets before its caller gives up, in turns of the event loop."""
SETTLED_S = 0.005
"""An engine may still carry out what its client has given up; until then nobody can say whether it did."""


@dataclass
class Item:
    """One sample or supplement as the model keeps it."""

    content: object
    attempts: int = 0
    until: float | None = None

    def free(self, now):
        return self.until is None or self.until <= now

    def spent(self, now):
        return self.attempts >= ATTEMPTS and self.free(now)


class Machine(RuleBasedStateMachine):
    """Two workers at one queue, whose clock stands still unless it is turned."""

    def __init__(self, storage):
        super().__init__()
        self.now = 1_000_000.0
        self.versions = count()
        self.samples: dict[str, Item] = {}
        self.dead: dict[str, Item] = {}
        self.supplies: dict[str, Item] = {}
        self.runner = asyncio.Runner()
        self.directory = TemporaryDirectory()
        self.build = storage(Path(self.directory.name))
        self.workers = [self.open()]
        if not isinstance(self.workers[0], MemoryQueue):
            self.workers.append(self.open())
        tally.sequences += 1

    def open(self):
        return self.build(lease_s=LEASE_S, max_attempts=ATTEMPTS, clock=lambda: self.now)

    def teardown(self):
        self.the_depth_is_that_of_the_model(0)
        for worker in self.workers:
            self.runner.run(worker.aclose())
        self.runner.close()
        self.directory.cleanup()

    def queue(self, who):
        tally.operations += 1
        return self.workers[who % len(self.workers)]

    def bury(self):
        """Who looks sets aside what has used up its attempts."""
        for name in [name for name, one in self.samples.items() if one.spent(self.now)]:
            self.dead[name] = self.samples.pop(name)

    def new_samples(self, names):
        """Samples that can be told apart, whatever their ids."""
        return [
            Sample(id=name, started_at=float(ord(name[0]) % 7), response=f"{next(self.versions)}") for name in names
        ]

    def new_supplements(self, names):
        made = [(name, f"{next(self.versions)}") for name in names]
        return [Supplement(id=name, received_at=float(ord(name[0]) % 7), source="x", label=one) for name, one in made]

    def after_put(self, samples):
        fresh = {one.id: Item(one) for one in reversed(samples)}
        known = self.samples.keys() | self.dead.keys()
        return {one.id: fresh[one.id] for one in samples if one.id not in known}

    def free(self, items, limit):
        return [one for one in items.values() if one.free(self.now)][: max(limit, 0)]

    @rule(names=SOME_NAMES, who=st.integers(0, 1))
    def put(self, names, who):
        samples = self.new_samples(names)
        self.runner.run(self.queue(who).put(samples))
        self.samples |= self.after_put(samples)

    @rule(limit=LIMITS, who=st.integers(0, 1))
    def lease(self, limit, who):
        leases = self.runner.run(self.queue(who).lease(limit))
        self.bury()
        chosen = self.free(self.samples, limit)
        self.hold(chosen)
        assert [(one.sample, one.attempt) for one in leases] == [(one.content, one.attempts) for one in chosen]

    def hold(self, items):
        for one in items:
            one.attempts += 1
            one.until = self.now + LEASE_S

    @rule(names=SOME_NAMES, who=st.integers(0, 1))
    def ack(self, names, who):
        self.runner.run(self.queue(who).ack(names))
        for name in names:
            self.samples.pop(name, None)
            self.dead.pop(name, None)

    @rule(names=SOME_NAMES, who=st.integers(0, 1))
    def supply(self, names, who):
        supplements = self.new_supplements(names)
        self.runner.run(self.queue(who).supply(supplements))
        for one in supplements:
            self.supplies.setdefault(one.id, Item(one))

    @rule(limit=LIMITS, who=st.integers(0, 1))
    def take(self, limit, who):
        taken = self.runner.run(self.queue(who).take(limit))
        chosen = self.free(self.supplies, limit)
        self.hold(chosen)
        assert list(taken) == [one.content for one in chosen]

    @rule(names=SOME_NAMES, who=st.integers(0, 1))
    def ack_supplies(self, names, who):
        self.runner.run(self.queue(who).ack_supplies(names))
        for name in names:
            self.supplies.pop(name, None)

    @rule(seconds=st.sampled_from([0.5, LEASE_S - 0.5, LEASE_S]))
    def wait(self, seconds):
        self.now += seconds

    @rule(who=st.integers(0, 1))
    def use_up_attempts(self, who):
        """Hardly ever would chance alone do this."""
        for _ in range(ATTEMPTS):
            self.lease(4, who)
            self.wait(LEASE_S)

    @rule(before=st.floats(0.0, 8.0), who=st.integers(0, 1))
    def prune(self, before, who):
        removed = self.runner.run(self.queue(who).prune(before))
        gone = [name for name, one in self.dead.items() if one.content.started_at < before]
        free = [name for name, one in self.samples.items() if one.free(self.now) and one.content.started_at < before]
        for name in gone:
            del self.dead[name]
        for name in free:
            del self.samples[name]
        for name in [name for name, one in self.supplies.items() if one.free(self.now)]:
            if self.supplies[name].content.received_at < before:
                del self.supplies[name]
        assert removed == len(gone) + len(free)

    @precondition(lambda self: len(self.workers) > 1)
    @rule(who=st.integers(0, 1))
    def end_and_begin_again(self, who):
        """What one process had leased when it ended is held until the lease is over, and then comes again."""
        self.runner.run(self.workers[who].aclose())
        self.workers[who] = self.open()

    @rule(names=st.lists(NAMES, min_size=1, max_size=4, unique=True), turns=TURNS, who=st.integers(0, 1))
    def give_up_a_put(self, names, turns, who):
        """All of them are there or none, and the queue goes on."""
        samples = self.new_samples(names)
        fresh = self.after_put(samples)
        self.give_up(self.queue(who).put(samples), turns)
        before = len(self.samples) + len(self.dead)
        depth = self.depth(who)
        added = depth.ready + depth.leased + depth.dead - before
        assert added in (0, len(fresh))
        if added:
            self.samples |= fresh

    @rule(limit=st.integers(1, 4), turns=TURNS, who=st.integers(0, 1))
    def give_up_a_lease(self, limit, turns, who):
        """What was leased for nobody is held like any other, and comes again."""
        self.bury()
        chosen = self.free(self.samples, limit)
        held = sum(not one.free(self.now) for one in self.samples.values())
        self.give_up(self.queue(who).lease(limit), turns)
        leased = self.depth(who).leased - held
        assert leased in (0, len(chosen))
        if leased:
            self.hold(chosen)

    def give_up(self, operation, turns):
        async def begun():
            task = asyncio.ensure_future(operation)
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            if len(self.workers) > 1:
                await asyncio.sleep(SETTLED_S)
            if not task.cancelled():
                task.result()

        self.runner.run(begun())

    def depth(self, who):
        return self.runner.run(self.workers[who % len(self.workers)].depth())

    @rule(who=st.integers(0, 1))
    def the_depth_is_that_of_the_model(self, who):
        """A rule and no invariant: to look sets aside what is spent, and nobody may have looked."""
        found = self.depth(who)
        self.bury()
        leased = sum(not one.free(self.now) for one in self.samples.values())
        assert (found.ready, found.leased, found.dead) == (len(self.samples) - leased, leased, len(self.dead))
        oldest = min((one.content.started_at for one in self.samples.values()), default=None)
        assert found.oldest_started_at == oldest


def memory():
    return lambda _: MemoryQueue


def sqlite():
    return lambda directory: lambda **options: SQLiteQueue(directory / "queue.db", **options)


def postgresql():
    url = postgres().database()

    def empty(_):
        postgres().ask(url, "TRUNCATE waiting, dead, supplies")
        return lambda **options: PostgresQueue(url, **options)

    return empty


def redis():
    server = redis_server()

    def fresh(_):
        address = read_url(server.url())
        return lambda **options: RedisQueue(address, **options)

    return fresh


@pytest.mark.full
@pytest.mark.parametrize(("engine", "examples"), [(memory, 15), (sqlite, 10), (postgresql, 3), (redis, 8)])
def test_a_queue_does_what_the_model_does(engine, examples):
    storage = engine()
    run_machine(lambda: Machine(storage), examples=examples)
