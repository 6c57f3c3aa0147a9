"""A running worker, a metric that needs contexts, and what is said separately from an exchange."""

from __future__ import annotations

import asyncio
import contextlib
import time

from examples.storage_engine.gaugeway_memory.queue import MemoryQueue
from gaugeway.records import Context, Score, Skipped, Supplement
from gaugeway.sampling import MetricSampler
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from monitors.evaluation.evaluator import Evaluator
from monitors.evaluation.persist import WorkerObserver
from monitors.evaluation.worker import Worker, WorkerSettings
from monitors.metrics.registry import Enabled


class Metric:
    """A metric that gives what it was made with."""

    version = "1"

    def __init__(self, name, outcome, judge=None):
        self.name, self._outcome, self.judge = name, outcome, judge

    async def score(self, sample):
        return self._outcome


class Grounded:
    """Needs contexts, as the real ones do; keeps what it was asked about."""

    name, version = "grounded", "1"

    def __init__(self):
        self.asked = []
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()
        self.may_end.set()

    async def score(self, sample):
        self.begun.set()
        await self.may_end.wait()
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
