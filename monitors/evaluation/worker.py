"""From the queue to the store: leases samples, joins what was said about them, runs their metrics, stores outcomes."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from monitors.choosing import Choice
from monitors.evaluation.backpressure import JudgePace
from monitors.evaluation.evaluate import TIMEOUT_S, evaluate, judge_of
from monitors.evaluation.persist import Persistence
from monitors.exporters import Exporter
from monitors.judges.middleware.deadline import PATIENCE, Deadline
from monitors.metrics import Metric
from monitors.records import Evaluation, Sample, Skipped, Supplement
from monitors.runtime.bounds import bounded, bounded_sample, bounded_supplement
from monitors.runtime.tasks import happens_within, spawn
from monitors.storage.engines.failures import engine_failed, refused
from monitors.storage.joining import (
    SETTLE_S,
    Address,
    WaitingRoom,
    address_of,
    addresses_of,
    complete,
    expected,
    join,
    targets_of,
)
from monitors.storage.queues import Queue
from monitors.storage.stores import Store

_log = logging.getLogger("gaugeway.worker")
_SUPPLEMENTS_AT_ONCE = 50
_BATCHES_OPEN = 50


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

    A sample is acknowledged only after its evaluations are stored (in the same transaction where the store `settles`);
    the store ignores what it has already. So a crash loses nothing and stores nothing twice. While queue or store fail,
    the worker waits and tries again (0.1 s up to 5 s) and takes no new work. An evaluation that no store can take is
    stored as Failed("unstorable").

    A metric that asks no judge has `timeout_s`. One that does has `judged_timeout_s`, to be longer than waiting for a
    free judge can take: the judge bounds each answer once its turn has come, and giving up because others came first
    would lose scores, and not by chance. All judging of one sample has `deadline_s`, waiting for its turn not counted.
    `pace` gives the factor by which a budget lowers the rates of judged metrics for a sample, `judge_pace` the one by
    which a slow judge does. What began more than `max_age_s` ago asks no judge any more: its judged metrics are skipped
    as "expired", and `on_expired` is called. `on_stored` gets each sample that is stored, and when it was completed
    later, with what it was before.

    What was said about a sample beside it is joined before it is evaluated. One that expects more (`joining.expected`)
    waits up to `join_window_s` for it (for more spans of a trace `settle_s`), without taking a place and never more
    than `waiting_limit` at a time; the others are evaluated at once. What comes later still fills the gaps of a stored
    sample, and the metrics that were skipped are computed then. `on_supplement` is told the channel and what became of
    it: joined, waiting (for an exchange that is not here yet), expired (an exchange waited in vain), or cut (to
    `runtime.bounds`, beside what else became of it). Without `completes` what is stored stays as it is: the store has
    no texts to go on with.
    """

    def __init__(
        self,
        *,
        queue: Queue,
        store: Store,
        metrics: Sequence[Chosen],
        exporters: Sequence[Exporter],
        choice: Choice,
        concurrency: int,
        on_error: Callable[[str], None],
        on_scored: Callable[[Sample, Sequence[Evaluation]], None],
        poll_s: float = 0.2,
        timeout_s: float = TIMEOUT_S,
        judged_timeout_s: float = 3600.0,
        join_window_s: float = 0.0,
        spans: bool = False,
        settle_s: float = SETTLE_S,
        waiting_limit: int = 1000,
        on_supplement: Callable[[str, str], None] = lambda *_: None,
        completes: bool = True,
        deadline_s: float = 3600.0,
        pace: Callable[[Sample, Sequence[Evaluation]], float] = lambda *_: 1.0,
        judge_pace: JudgePace | None = None,
        max_age_s: float = math.inf,
        on_expired: Callable[[], None] = lambda: None,
        on_stored: Callable[[Sample, Sample | None], None] = lambda *_: None,
    ) -> None:
        self._queue = queue
        self._store = store
        self._metrics = metrics
        self._exporters = exporters
        self._choice = choice
        self._concurrency = concurrency
        self._on_error = on_error
        self._on_scored = on_scored
        self._poll_s = poll_s
        self._timeouts_s = timeout_s, judged_timeout_s
        self._spans = spans
        self._on_supplement = on_supplement
        self._completes = completes
        self._deadline_s = deadline_s
        self._pace = pace
        self._judge_pace = judge_pace or JudgePace(concurrency)
        self._max_age_s = max_age_s
        self._on_expired = on_expired
        self._on_stored = on_stored
        self._room = WaitingRoom(join_window_s, waiting_limit, settle_s)
        self._ready: dict[str, Sample] = {}
        self._late: deque[tuple[str, asyncio.Future[bool]]] = deque()
        self._arrivals = 0
        self._settling: set[asyncio.Task[None]] = set()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._stopping = asyncio.Event()
        self._persist = Persistence(queue, store, on_error=on_error, stopping=self._stopping)

    async def run(self) -> None:
        """Work until `stop`; then finish what has begun. Samples that wait are left to their leases."""
        # No lease before the store answers: what a worker cannot store would go through its attempts in vain.
        await self._persist.attempt("store", partial(self._store.questions, [""]))
        draining = spawn(self._drain(), name="supplements")
        try:
            await self._work()
        finally:
            # What is not settled comes again: its lease runs out.
            for task in (draining, *self._settling):
                task.cancel()
            await asyncio.wait([draining, *self._settling])

    async def _work(self) -> None:
        while not self._stopping.is_set():
            started = self._start_waiting()
            free = self._concurrency - len(self._running)
            leases = await self._persist.attempt("lease", partial(self._queue.lease, free)) if free > 0 else []
            for lease in leases or []:
                # A lease that ran out here comes back to us, while the store was down or all places were taken: the
                # sample is still being worked on.
                if not any(lease.sample.id in those for those in (self._running, self._room, self._ready)):
                    self._start(lease.sample.id, self._process(bounded_sample(lease.sample), patient=True))
                    started += 1
                    self._judge_pace.leased(1)
            if self._running and len(self._running) >= self._concurrency:
                await asyncio.wait(self._running.values(), return_when=asyncio.FIRST_COMPLETED)
            elif not started:
                await happens_within(self._stopping, self._poll_s)
        if self._running:
            await asyncio.wait(self._running.values())

    def stop(self) -> None:
        """Take no new samples."""
        self._stopping.set()

    @property
    def held(self) -> int:
        """How many leases this worker holds."""
        return len(self._running) + len(self._ready) + len(self._room)

    async def evaluate(self, sample: Sample) -> Sequence[Evaluation]:
        """Run the metrics chosen for this sample, side by side; those that cost nothing first."""
        judged = [one for one in self._metrics if judge_of(one.metric) is not None]
        free = [one for one in self._metrics if judge_of(one.metric) is None and self._choice.keeps(sample, one.rate)]
        began, pace = time.monotonic(), self._judge_pace.factor
        done = await asyncio.gather(*(self._evaluate(one, sample, one.rate) for one in free))
        if expired := sample.skip_reason is None and time.time() - sample.started_at > self._max_age_s:
            self._on_expired()
        asks = bool(judged) and sample.skip_reason is None and not expired
        factor = self._pace(sample, done) * pace if asks else 1.0
        rates = [(one, self._choice.rate(sample, one.rate, done) * factor) for one in judged]
        paid = [(one, rate) for one, rate in rates if self._choice.keeps(sample, rate)]
        asked = replace(sample, skip_reason="expired") if expired else sample
        PATIENCE.set(Deadline(self._deadline_s))
        found = [*done, *await asyncio.gather(*(self._evaluate(one, asked, rate) for one, rate in paid))]
        now = time.monotonic()
        self._judge_pace.finished(now - began, pace, judged=asks and bool(paid), now=now)
        return found

    async def _evaluate(self, one: Chosen, sample: Sample, rate: float) -> Evaluation:
        timeout_s = self._timeouts_s[judge_of(one.metric) is not None]
        rate = min(rate, sample.rate)
        return await evaluate(one.metric, sample, rate=rate, clock=time.perf_counter, timeout_s=timeout_s)

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = spawn(work, name=f"evaluation of {name}")
        self._running[name] = task
        task.add_done_callback(lambda _: self._running.pop(name, None))

    def _start_waiting(self) -> int:
        """Start those whose wait is over, and late ones, as far as there are places; return how many."""
        self._ready |= {sample.id: sample for sample in self._room.due(time.monotonic())}
        before = len(self._running)
        while self._ready and len(self._running) < self._concurrency:
            sample = self._ready.pop(next(iter(self._ready)))
            self._start(sample.id, self._process(sample, patient=False))
        for _ in range(len(self._late)):
            if len(self._running) >= self._concurrency:
                break
            sample_id, done = self._late.popleft()
            if sample_id in self._running:
                self._late.append((sample_id, done))  # one after the other: the second finds what the first did
            elif not done.done():
                self._start(sample_id, self._process_late(sample_id, done))
        return len(self._running) - before

    async def _process(self, sample: Sample, *, patient: bool) -> None:
        try:
            await self._evaluate_and_store(sample, patient=patient)
        except Exception as error:
            if not refused(error):
                raise
            await self._persist.set_aside(sample, error)

    async def _evaluate_and_store(self, sample: Sample, *, patient: bool) -> None:
        heard, supplements = self._arrivals, await self._supplements_of(sample)
        while supplements is not None and heard != self._arrivals:  # nothing may come between looking and waiting
            heard, supplements = self._arrivals, await self._supplements_of(sample)
        if supplements is None:
            return
        joined = join(sample, supplements)
        channel = expected(joined, spans=self._spans)
        came = joined.context_source == channel
        if patient and channel and self._room.admit(sample, channel, time.monotonic(), settling=came):
            return
        evaluations = await self.evaluate(joined)
        unfinished = self._completes and _has_gaps(joined, evaluations)
        new = await self._persist.keep(joined, evaluations, settled=not unfinished)
        if new is None:
            return
        if new or not evaluations:  # it may have been stored before a crash
            self._on_stored(joined, None)
        self._show(joined, new)
        for supplement in supplements:
            self._on_supplement(supplement.source, "joined")
        if channel and not came and not patient:
            self._on_supplement(channel, "expired")
        if unfinished and not await self._catch_up(joined, {one.id for one in supplements}):
            return
        if unfinished or not self._persist.settles:
            await self._persist.attempt("ack", lambda: self._queue.ack([sample.id]))

    async def _catch_up(self, sample: Sample, known: Collection[str]) -> bool:
        """Complete a sample for which something came while it was being evaluated; False when stopped first.

        Only now that it is stored does everything later find it.
        """
        supplements = await self._supplements_of(sample)
        if supplements is None:
            return False
        new = [one for one in supplements if one.id not in known]
        for one in new:
            self._on_supplement(one.source, "joined")
        return not new or await self._complete(sample.id)

    async def _process_late(self, sample_id: str, done: asyncio.Future[bool]) -> None:
        handled = False
        try:
            handled = await self._complete(sample_id)
        except Exception as error:  # noqa: BLE001 - whatever it is, to try the same again would not help
            handled = True
            self._on_error("join")
            _log.warning("%s could not be completed: %s: %s", sample_id, type(error).__name__, error)
        finally:
            if not done.done():
                done.set_result(handled)

    async def _complete(self, sample_id: str) -> bool:
        """Fill the gaps of a stored sample, and compute what was skipped; False when stopped first."""

        async def look() -> tuple[tuple[Sample, Sequence[Evaluation]] | None]:
            return (await self._store.sample(sample_id),)

        stored = await self._persist.attempt("join", look, engine_failed)
        if stored is None:
            return False
        if stored[0] is None:
            return True
        sample, evaluations = stored[0]
        supplements = await self._supplements_of(sample)
        if supplements is None:
            return False
        completed = complete(sample, supplements)
        if completed == sample:
            return True
        rates = {(one.metric, one.version): one.rate for one in evaluations if isinstance(one.outcome, Skipped)}
        again = [one for one in self._metrics if (one.metric.name, str(one.metric.version)) in rates]
        outcomes = await asyncio.gather(*(self._evaluate(one, completed, one.rate) for one in again))
        # Which share of the exchanges got a metric was decided when this one was chosen.
        outcomes = [replace(one, rate=rates[one.metric, one.version]) for one in outcomes]
        new = await self._persist.keep(completed, [one for one in outcomes if not isinstance(one.outcome, Skipped)])
        if new is None:
            return False
        self._on_stored(completed, sample)
        if new:
            self._show(completed, new)
        return True

    async def _drain(self) -> None:
        """Bring supplements from the queue to the store, and to the samples that they concern."""
        while not self._stopping.is_set():
            taken = await self._persist.attempt("take", partial(self._queue.take, _SUPPLEMENTS_AT_ONCE))
            if not taken:
                await happens_within(self._stopping, self._poll_s)
                continue
            batch = [self._bounded(bounded_supplement(one)) for one in taken]
            stored = await self._keep_supplements(batch)
            if stored is None:
                return
            self._arrivals += 1
            self._ready |= {sample.id: sample for sample in self._room.release(batch, time.monotonic())}
            self._count(batch, stored)
            said = _by_address(batch)
            late = [one.id for one in stored if complete(one, _concerning(one, said)) != one]
            task = spawn(self._settle([one.id for one in batch], late), name="late supplements")
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)
            while len(self._settling) >= _BATCHES_OPEN:
                await asyncio.wait(self._settling, return_when=asyncio.FIRST_COMPLETED)

    def _bounded(self, supplement: Supplement) -> Supplement:
        """A gateway of an earlier release may send more than ours does."""
        within, cut = bounded(supplement)
        if cut:
            self._on_supplement(supplement.source, "cut")
        return within

    async def _keep_supplements(self, batch: Sequence[Supplement]) -> Sequence[Sample] | None:
        """Store what can be stored; return the stored samples that it concerns, None when stopped first."""

        async def keep(some: Sequence[Supplement]) -> Sequence[Sample] | None:
            return await self._persist.attempt("supplement", lambda: self._store.supplement(some), engine_failed)

        try:
            return await keep(batch)
        except Exception as error:  # noqa: BLE001 - one of them is at fault, and it must not stop the others
            self._on_error("supplement")
            _log.warning("a supplement cannot be stored: %s: %s", type(error).__name__, error)
        concerned: dict[str, Sample] = {}
        for one in batch:
            with suppress(Exception):
                some = await keep([one])
                if some is None:
                    return None
                concerned |= {sample.id: sample for sample in some}
        return list(concerned.values())

    def _count(self, batch: Sequence[Supplement], stored: Sequence[Sample]) -> None:
        """Count what came; what now joins a sample that waited is counted there."""
        reached = {target for sample in stored for target in targets_of(sample)}
        about_to = {target for sample in self._ready.values() for target in targets_of(sample)}
        for one in batch:
            target = address_of(one), one.app
            if target in reached:
                self._on_supplement(one.source, "joined")
            elif target not in about_to and not self._room.holds(one):
                self._on_supplement(one.source, "waiting")

    async def _settle(self, supplement_ids: Sequence[str], sample_ids: Sequence[str]) -> None:
        """Have these samples completed, then acknowledge the supplements."""
        loop = asyncio.get_running_loop()
        waiting = [(sample_id, loop.create_future()) for sample_id in sample_ids]
        self._late.extend(waiting)
        if all(await asyncio.gather(*(done for _, done in waiting))):
            await self._persist.attempt("ack", lambda: self._queue.ack_supplies(supplement_ids))

    async def _supplements_of(self, sample: Sample) -> Sequence[Supplement] | None:
        return await self._persist.attempt("join", lambda: self._store.supplements_of(sample), engine_failed)

    def _show(self, sample: Sample, new: Sequence[Evaluation]) -> None:
        for exporter in self._exporters:
            try:
                exporter.export(sample, new)
            except Exception as error:  # noqa: BLE001 - what is stored counts; showing it must not undo that
                self._on_error("export")
                _log.warning("%s failed: %s: %s", type(exporter).__name__, type(error).__name__, error)
        self._on_scored(sample, new)


def _by_address(supplements: Iterable[Supplement]) -> dict[Address, list[Supplement]]:
    found: dict[Address, list[Supplement]] = {}
    for one in supplements:
        if (address := address_of(one)) is not None:
            found.setdefault(address, []).append(one)
    return found


def _concerning(sample: Sample, said: Mapping[Address, Sequence[Supplement]]) -> list[Supplement]:
    return [one for address in addresses_of(sample) for one in said.get(address, ())]


def _has_gaps(sample: Sample, evaluations: Sequence[Evaluation]) -> bool:
    return sample.skip_reason is None and any(isinstance(one.outcome, Skipped) for one in evaluations)
