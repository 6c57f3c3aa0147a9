"""A worker in a process of its own: evaluates what is in a PostgreSQL queue, and writes down when it did what.

Arguments: the database's URL, the file to write to, and for how many seconds there must be nothing before it ends.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from gaugeway.records import Sample, Score
from gaugeway.sampling import MetricSampler
from gaugeway.storage.engines.postgres.queue import PostgresQueue
from gaugeway.storage.engines.postgres.store import PostgresStore
from monitors.evaluation.evaluator import Evaluator
from monitors.evaluation.worker import Worker, WorkerSettings
from monitors.metrics.registry import Enabled


class Noting:
    """A metric that takes a moment, and notes it."""

    name, version = "noted", "1"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.latest = time.monotonic()

    async def score(self, sample: Sample) -> Score:
        """Note the sample, the process, and from when to when it was evaluated."""
        begin = time.monotonic()
        await asyncio.sleep(0.01)
        self.latest = time.monotonic()
        with self.path.open("a") as file:
            file.write(f"{sample.id} {os.getpid()} {begin} {self.latest}\n")
        return Score(0.5)


async def main(url: str, path: str, idle_s: str) -> None:
    """Work until nothing came for `idle_s`."""
    queue, store, metric = PostgresQueue(url, 30.0, 5), PostgresStore(url), Noting(Path(path))
    evaluator = Evaluator([Enabled(metric=metric, rate=1.0, threshold=0.5, objective=0.9)], MetricSampler("s"))
    worker = Worker(queue, store, evaluator, settings=WorkerSettings(concurrency=4, poll_s=0.01))
    running = asyncio.ensure_future(worker.run())
    while time.monotonic() - metric.latest < float(idle_s):  # noqa: ASYNC110 - files have no event to wait for
        await asyncio.sleep(0.05)
    worker.stop()
    await running
    await queue.aclose()
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
