"""From the queue to the store: leases samples, runs the metrics chosen for each, stores and shows the outcomes."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

from monitors import sampling
from monitors.evaluation import TIMEOUT_S, evaluate, judge_of
from monitors.exporters import Exporter
from monitors.metrics import Metric
from monitors.queues import Queue
from monitors.records import Evaluation, Failed, Sample
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
    to 5 s) and takes no new work. An evaluation that no store can take is stored as Failed("unstorable").

    A metric that asks no judge has `timeout_s`. One that does has `judged_timeout_s`, to be longer than waiting for a
    free judge can take: the judge bounds each answer once its turn has come, and giving up because others came first
    would lose scores, and not by chance.
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
        timeout_s: float = TIMEOUT_S,
        judged_timeout_s: float = 3600.0,
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
        self._timeouts_s = timeout_s, judged_timeout_s
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
        return await asyncio.gather(*(self._evaluate(one, sample) for one in chosen))

    async def _evaluate(self, one: Chosen, sample: Sample) -> Evaluation:
        timeout_s = self._timeouts_s[judge_of(one.metric) is not None]
        rate = min(one.rate, sample.rate)
        return await evaluate(one.metric, sample, rate=rate, clock=time.perf_counter, timeout_s=timeout_s)

    def _start(self, sample: Sample) -> None:
        task = spawn(self._process(sample), name=f"evaluation of {sample.id}")
        self._running[sample.id] = task
        task.add_done_callback(lambda _: self._running.pop(sample.id, None))

    async def _process(self, sample: Sample) -> None:
        evaluations = await self.evaluate(sample)
        new = await self._keep(sample, evaluations)
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

    async def _keep(self, sample: Sample, evaluations: Sequence[Evaluation]) -> Sequence[Evaluation] | None:
        """Store all evaluations that can be stored, and of the others that they cannot; return those that are new.

        Raises when the sample itself is at fault: its lease then runs out, and after its last attempt it is set aside.
        """

        async def add(*some: Evaluation) -> Sequence[Evaluation] | None:
            return await self._persist("store", lambda: self._store.add(sample, some), _engine_failed)

        try:
            return await add(*evaluations)
        except Exception as error:  # whatever it is, to try the same again would not help
            self._on_error("store")
            if not evaluations:
                raise
            _log.warning("an evaluation of %s cannot be stored: %s: %s", sample.id, type(error).__name__, error)
        new: list[Evaluation] = []
        for evaluation in evaluations:
            try:
                added = await add(evaluation)
            except Exception as error:  # noqa: BLE001 - the same
                added = await add(replace(evaluation, outcome=Failed("unstorable", type(error).__name__)))
            if added is None:
                return None
            new += added
        return new

    async def _persist(
        self,
        operation: str,
        attempt: Callable[[], Awaitable[T]],
        worth_waiting: Callable[[Exception], bool] = lambda _: True,
    ) -> T | None:
        """Try until it works; None when the worker is stopped first (the sample's lease then runs out).

        Raises a failure that is not `worth_waiting` for.
        """
        back_off = 0.1
        while True:
            try:
                return await attempt()
            except Exception as error:
                if not worth_waiting(error):
                    raise
                self._on_error(operation)
                _log.warning("%s failed, trying again: %s: %s", operation, type(error).__name__, error)
            if self._stopping.is_set():
                return None
            await _sleep(self._stopping, back_off)
            back_off = min(back_off * 2, 5.0)


def _engine_failed(error: Exception) -> bool:
    """Whether a store complains about itself, as opposed to what it was given to store."""
    refusals = sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError
    return isinstance(error, (sqlite3.Error, OSError)) and not isinstance(error, refusals)


async def _sleep(stopping: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stopping.wait()
    except TimeoutError:
        pass
