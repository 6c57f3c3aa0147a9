"""From the queue to the store: leases samples, runs the metrics chosen for each, stores and shows the outcomes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from monitors import sampling
from monitors.evaluation import evaluate
from monitors.exporters import Exporter
from monitors.metrics import Metric
from monitors.queues import Queue
from monitors.records import Evaluation, Sample
from monitors.stores import Store
from monitors.tasks import spawn

_log = logging.getLogger("gaugeway.worker")
T = TypeVar("T")


class Chosen(Protocol):
    """A metric that is switched on, and the share of exchanges it is computed for."""

    @property
    def metric(self) -> Metric:
        """The metric."""

    @property
    def rate(self) -> float:
        """The probability with which an exchange gets this metric."""


class Worker:
    """Evaluates up to `concurrency` samples at a time.

    A sample is acknowledged only after its evaluations are stored; the store ignores what it has already. So a crash
    anywhere loses nothing and doubles nothing. While queue or store fail, the worker waits and tries again (0.1 s up
    to 5 s) and takes no new work.
    """

    def __init__(
        self,
        *,
        queue: Queue,
        store: Store,
        metrics: Sequence[Chosen],
        exporters: Sequence[Exporter],
        salt: str,
        concurrency: int,
        on_error: Callable[[str], None],
        on_scored: Callable[[Sample, Sequence[Evaluation]], None],
        poll_s: float = 0.2,
    ) -> None:
        self._queue = queue
        self._store = store
        self._metrics = metrics
        self._exporters = exporters
        self._salt = salt
        self._concurrency = concurrency
        self._on_error = on_error
        self._on_scored = on_scored
        self._poll_s = poll_s
        self._running: dict[str, asyncio.Task[None]] = {}
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Work until `stop`; then finish what has begun."""
        while not self._stopping.is_set():
            free = self._concurrency - len(self._running)
            leases = await self._persist("lease", partial(self._queue.lease, free)) if free else []
            started = 0
            for lease in leases or []:
                # A lease that ran out here while the store was down comes back to us: it is still being worked on.
                if lease.sample.id not in self._running:
                    self._start(lease.sample)
                    started += 1
            if self._running and len(self._running) >= self._concurrency:
                await asyncio.wait(self._running.values(), return_when=asyncio.FIRST_COMPLETED)
            elif not started:
                await _sleep(self._stopping, self._poll_s)
        if self._running:
            await asyncio.wait(self._running.values())

    def stop(self) -> None:
        """Take no new samples."""
        self._stopping.set()

    async def evaluate(self, sample: Sample) -> Sequence[Evaluation]:
        """Run the metrics chosen for this sample, side by side."""
        key = sample.trace_id or sample.id
        chosen = [one for one in self._metrics if sampling.keep(key, one.rate, self._salt)]
        return await asyncio.gather(
            *(evaluate(one.metric, sample, rate=min(one.rate, sample.rate), clock=time.perf_counter) for one in chosen)
        )

    def _start(self, sample: Sample) -> None:
        task = spawn(self._process(sample), name=f"evaluation of {sample.id}")
        self._running[sample.id] = task
        task.add_done_callback(lambda _: self._running.pop(sample.id, None))

    async def _process(self, sample: Sample) -> None:
        evaluations = await self.evaluate(sample)
        new = await self._persist("store", lambda: self._store.add(sample, evaluations))
        if new is None:
            return
        self._show(sample, new)
        await self._persist("ack", lambda: self._queue.ack([sample.id]))

    def _show(self, sample: Sample, new: Sequence[Evaluation]) -> None:
        for exporter in self._exporters:
            try:
                exporter.export(sample, new)
            except Exception as error:  # noqa: BLE001 - what is stored counts; showing it must not undo that
                self._on_error("export")
                _log.warning("%s failed: %s: %s", type(exporter).__name__, type(error).__name__, error)
        self._on_scored(sample, new)

    async def _persist(self, operation: str, attempt: Callable[[], Awaitable[T]]) -> T | None:
        """Try until it works; None when the worker is stopped first (the sample's lease then runs out)."""
        back_off = 0.1
        while True:
            try:
                return await attempt()
            except Exception as error:  # noqa: BLE001 - any failure of any engine is met by waiting and trying again
                self._on_error(operation)
                _log.warning("%s failed, trying again: %s: %s", operation, type(error).__name__, error)
            if self._stopping.is_set():
                return None
            await _sleep(self._stopping, back_off)
            back_off = min(back_off * 2, 5.0)


async def _sleep(stopping: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stopping.wait()
    except TimeoutError:
        pass
