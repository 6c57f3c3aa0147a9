"""The worker: leases samples from the queue, has them evaluated, and stores the outcomes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from gaugeway.records import Evaluation, Sample, Skipped, Supplement
from gaugeway.runtime.tasks import happens_within, spawn
from gaugeway.settings.bounds import bounded_sample
from gaugeway.signals import SIGNALS
from gaugeway.storage.engines.failures import engine_failed, refused
from gaugeway.storage.joining import SETTLE_S, WaitingRoom, complete, expected, join
from gaugeway.storage.queues import Queue
from gaugeway.storage.stores import Store
from monitors.evaluation.conversations import ConversationJoiner, TurnGatherer
from monitors.evaluation.evaluator import Begun, Evaluator
from monitors.evaluation.persist import Persistence, WorkerObserver
from monitors.evaluation.supplements import SupplementIntake
from monitors.exporters import Exporter

_BATCH, _BATCH_S = 8, 0.02
_PAUSE_EVERY_S = 0.01
"""After so long a batch lets requests to the page, and what else waits, have a turn."""
_log = logging.getLogger("gaugeway.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """How a worker takes samples and joins supplements to them.

    `concurrency` samples are judged at a time, and some more scored without a judge (`JudgePace.room`); an empty queue
    is polled every `poll_s`. A sample that expects supplements (`joining.expected`) waits up to `join_window_s` for
    them, for more spans of a trace `settle_s`; at most `waiting_limit` samples wait. The leases of samples under
    evaluation are renewed every `renew_s`, so that one that takes longer is not handed out again. `spans` says that an
    OTLP receiver runs, so that spans can be expected. Without `completes` a stored sample is never completed later: the
    store does not hold the texts that this needs.
    """

    concurrency: int
    poll_s: float = 0.2
    join_window_s: float = 0.0
    settle_s: float = SETTLE_S
    waiting_limit: int = 1000
    renew_s: float = 40.0
    spans: bool = False
    completes: bool = True


class _Arrived(NamedTuple):
    """A sample as it was leased, and with its supplements. `expired` is the channel that it waited for in vain.

    What was stored `early` is exported with the rest, so that an exchange has one evaluation span.
    """

    sample: Sample
    joined: Sample
    supplements: Sequence[Supplement]
    expired: str | None
    early: Sequence[Evaluation] = ()


class Worker:
    """Evaluates samples side by side, as many as `settings.concurrency` allows.

    A sample is acknowledged only after its evaluations are stored (by a store that settles, in the same transaction);
    the store ignores rows that it has already. Scores that need no judge are stored before the judge is asked, and
    leases are renewed every `renew_s`. So a crash at any point loses nothing and stores nothing twice. While queue or
    store fail, the worker retries with back-off and takes no new samples. An evaluation that no store can take is
    stored as Failed("unstorable").

    Supplements are joined to a sample before it is evaluated; a sample that waits for some takes no place meanwhile.
    Supplements that arrive later complete the stored sample, and the metrics that were skipped are then computed.
    """

    def __init__(
        self,
        queue: Queue,
        store: Store,
        evaluator: Evaluator,
        *,
        settings: WorkerSettings,
        exporters: Sequence[Exporter] = (),
        observer: WorkerObserver | None = None,
    ) -> None:
        self._queue = queue
        self._store = store
        self._evaluator = evaluator
        self._settings = settings
        self._exporters = exporters
        self._observer = observer or WorkerObserver()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._persist = Persistence(queue, store, on_error=self._observer.failed, stopping=self._stopping)
        self._conversations = ConversationJoiner(store, self._persist, self._observer)
        self._turns = TurnGatherer(store, self._persist)
        self._supplements = SupplementIntake(
            queue,
            store,
            self._persist,
            room=WaitingRoom(settings.join_window_s, settings.waiting_limit, settings.settle_s),
            observer=self._observer,
            stopping=self._stopping,
            poll_s=settings.poll_s,
        )

    async def run(self) -> None:
        """Work until `stop`, then finish the samples under way. Samples that wait are left to their leases."""
        # No lease before the store answers: each sample that cannot be stored would use up one of its attempts.
        await self._persist.attempt("store", partial(self._store.questions, [""]))
        beside = [spawn(self._supplements.run(), name="supplements"), spawn(self._renew_leases(), name="leases")]
        try:
            await self._work()
        finally:
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)
            await self._supplements.aclose()

    def stop(self) -> None:
        """Take no new samples."""
        self._stopping.set()

    @property
    def held(self) -> int:
        """How many leases this worker holds."""
        return len(self._running) + len(self._supplements.ready) + len(self._supplements.room)

    async def _work(self) -> None:
        while not self._stopping.is_set():
            started = self._start_waiting()
            free = self._room()
            leases = await self._persist.attempt("lease", partial(self._queue.lease, free)) if free > 0 else []
            # A lease that ran out here (the store was down, or all places were taken) comes back to this worker while
            # it still works on the sample.
            held = (self._running, self._supplements.room, self._supplements.ready)
            new = [lease.sample for lease in leases or [] if not any(lease.sample.id in those for those in held)]
            joined = await self._conversations.join([bounded_sample(sample) for sample in new]) or ()
            if joined:
                self._start_leased(joined, again={lease.sample.id for lease in leases or () if lease.attempt > 1})
                started += len(joined)
                self._evaluator.judge_pace.leased(len(joined))
            if self._running and len(leases or ()) == free:  # there are more: the next batch when there is room
                await self._make_room()
            elif not started:
                await happens_within(self._stopping, self._settings.poll_s)
        while self._running:  # a batch hands samples to tasks of their own
            await asyncio.wait(set(self._running.values()))

    async def _renew_leases(self) -> None:
        """Renew the leases of the samples under evaluation, until cancelled; a failure is made up for the next time."""
        while True:
            await asyncio.sleep(self._settings.renew_s)
            try:
                if self._running:
                    await self._queue.renew(list(self._running))
            except Exception as error:  # noqa: BLE001 - the engine's failure, which others report too; counted
                self._observer.failed("renew")
                _log.warning("cannot renew leases: %s: %s", type(error).__name__, error)

    def _room(self) -> int:
        """How many more samples may be started."""
        return self._evaluator.judge_pace.room(len(self._running), self._settings.concurrency, time.monotonic())

    async def _make_room(self) -> None:
        """Wait until one sample has ended, and a moment longer for a batch: leasing one by one costs more."""
        self._ended.clear()
        await self._ended.wait()
        until = time.monotonic() + _BATCH_S
        while self._running and self._room() < _BATCH and (left := until - time.monotonic()) > 0.0:
            self._ended.clear()
            await happens_within(self._ended, left)

    def _start(self, sample: Sample, work: Coroutine[Any, Any, None]) -> None:
        """Give the work on a sample a task of its own."""
        self._start_named(sample.id, self._guarded(sample, work))

    def _start_named(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = spawn(work, name=f"evaluation of {name}")
        self._running[name] = task
        task.add_done_callback(lambda _: self._end(name))

    def _start_leased(self, samples: Sequence[Sample], *, again: Collection[str]) -> None:
        """Start a batch. Those that came before and were not finished may be what ended it: each is on its own now."""
        if together := [sample for sample in samples if sample.id not in again]:
            self._start_batch(together)
        for sample in samples:
            if sample.id in again:
                self._start(sample, self._process(sample, may_wait=True))

    def _start_batch(self, samples: Sequence[Sample]) -> None:
        task = spawn(self._process_batch(samples), name=f"evaluation of {len(samples)} samples")
        self._running |= {sample.id: task for sample in samples}

        def end(_: object) -> None:
            for sample in samples:
                if self._running.get(sample.id) is task:  # not handed to a task of its own
                    self._end(sample.id)

        task.add_done_callback(end)

    def _end(self, name: str) -> None:
        self._running.pop(name, None)
        self._ended.set()

    def _start_waiting(self) -> int:
        """Start samples whose wait is over, and late completions, as far as there are places; return how many."""
        ready, late = self._supplements.ready, self._supplements.late
        ready |= {sample.id: sample for sample in self._supplements.room.due(time.monotonic())}
        before = len(self._running)
        while ready and self._room():
            sample = ready.pop(next(iter(ready)))
            self._start(sample, self._process(sample, may_wait=False))
        for _ in range(len(late)):
            if not self._room():
                break
            sample_id, done = late.popleft()
            if sample_id in self._running:
                late.append((sample_id, done))  # one after the other: the second sees what the first stored
            elif not done.done():
                self._start_named(sample_id, self._process_late(sample_id, done))
        return len(self._running) - before

    async def _process_batch(self, samples: Sequence[Sample]) -> None:
        """Process those samples together that have to wait for nothing, and hand the others to tasks of their own."""
        try:
            supplements = await self._supplements.settled_for(samples)
        except Exception:  # noqa: BLE001 - one of them is at fault: each meets its own failure again
            for sample in samples:
                self._start(sample, self._process(sample, may_wait=True))
            return
        if supplements is None:
            return
        arrived = []
        for sample, said in zip(samples, supplements, strict=True):  # without a pause, see `settled_for`
            try:
                arrival = self._admitted(sample, said, may_wait=True)
            except Exception:  # noqa: BLE001 - as above
                self._start(sample, self._process(sample, may_wait=True))
                continue
            if arrival is None:
                self._end(sample.id)
            else:
                arrived.append(arrival)
        scored: list[tuple[_Arrived, Sequence[Evaluation]]] = []
        paused = time.monotonic()
        for ready in arrived:
            if (evaluations := self._at_once(ready)) is not None:
                scored.append((ready, evaluations))
            if time.monotonic() - paused > _PAUSE_EVERY_S:
                await asyncio.sleep(0)
                paused = time.monotonic()
        await self._store_batch(scored)

    def _at_once(self, arrived: _Arrived) -> Sequence[Evaluation] | None:
        """Evaluate a sample that has to wait for nothing; None for others, which now have tasks of their own."""
        begun = None
        try:
            if not self._turns.concerns(arrived.joined):
                begun = self._evaluator.begin(arrived.joined)
                if begun is not None and not begun.paid:
                    return self._evaluator.finish_unjudged(begun)
        except Exception:  # noqa: BLE001 - the task meets it again, and ends with it
            begun = None
        self._start(arrived.sample, self._evaluate_and_store(arrived, begun))
        return None

    async def _store_batch(self, scored: Sequence[tuple[_Arrived, Sequence[Evaluation]]]) -> None:
        """Store evaluations, each sample where it stands by now, and acknowledge them."""
        try:
            placed = await self._conversations.current([arrived.joined for arrived, _ in scored])
        except Exception:  # noqa: BLE001 - as in `_process_batch`
            for arrived, evaluations in scored:
                self._start(arrived.sample, self._place_and_store(arrived, evaluations))
            return
        if placed is None or not scored:
            return
        stored = await self._persist.keep_each(
            [
                (sample, evaluations, not self._is_unfinished(sample, evaluations))
                for sample, (_, evaluations) in zip(placed, scored, strict=True)
            ]
        )
        done = []
        for sample, (arrived, evaluations), new in zip(placed, scored, stored, strict=True):
            if new is None:
                self._start(sample, self._store_and_finish(arrived, sample, evaluations))
                continue
            try:
                self._announce(arrived, sample, evaluations, new)
            except Exception as error:  # noqa: BLE001 - it must not keep the others from being announced and acknowledged
                _log.error("evaluation of %s ended: %s: %s", sample.id, type(error).__name__, error)
                continue
            if self._is_unfinished(sample, evaluations):
                self._start(sample, self._finish(arrived, sample, unfinished=True))
            else:
                done.append(sample.id)
        if done and not self._persist.settles:
            await self._persist.attempt("ack", lambda: self._queue.ack(done))

    async def _guarded(self, sample: Sample, work: Coroutine[Any, Any, None]) -> None:
        """Do the work on a sample; set the sample aside where the store refuses it."""
        try:
            await work
        except Exception as error:
            if not refused(error):
                raise
            await self._persist.set_aside(sample, error)

    async def _process(self, sample: Sample, *, may_wait: bool) -> None:
        if (supplements := await self._supplements.settled_for([sample])) is None:
            return
        if (arrived := self._admitted(sample, supplements[0], may_wait=may_wait)) is not None:
            await self._evaluate_and_store(arrived, None)

    def _admitted(self, sample: Sample, supplements: Sequence[Supplement], *, may_wait: bool) -> _Arrived | None:
        """Join supplements to a sample; None for one that now waits for more."""
        joined = join(sample, supplements)
        channel = expected(joined, spans=self._settings.spans)
        came = joined.context_source == channel
        if may_wait and channel and self._supplements.room.admit(sample, channel, time.monotonic(), settling=came):
            return None
        return _Arrived(sample, joined, supplements, expired=channel if channel and not came and not may_wait else None)

    async def _evaluate_and_store(self, arrived: _Arrived, begun: Begun | None) -> None:
        """Evaluate a sample, from where its evaluation stands, with what its turn holds; then store it."""
        if begun is None:
            if (gathered := await self._turns.gather(arrived.joined)) is None:
                return
            arrived, begun = arrived._replace(joined=gathered), await self._evaluator.start(gathered)
        if begun.asks and begun.done:
            if (early := await self._store_unjudged(arrived, begun.done)) is None:
                return
            arrived = arrived._replace(early=early)
        await self._place_and_store(arrived, await self._evaluator.finish(begun))

    async def _store_unjudged(self, arrived: _Arrived, done: Sequence[Evaluation]) -> Sequence[Evaluation] | None:
        """Store what needs no judge, who may take long or fail; return what is new, None when stopped first."""
        placed = await self._conversations.current([arrived.joined])
        return None if placed is None else await self._persist.keep(placed[0], done)

    async def _place_and_store(self, arrived: _Arrived, evaluations: Sequence[Evaluation]) -> None:
        if (placed := await self._conversations.current([arrived.joined])) is not None:
            await self._store_and_finish(arrived, placed[0], evaluations)

    async def _store_and_finish(self, arrived: _Arrived, sample: Sample, evaluations: Sequence[Evaluation]) -> None:
        unfinished = self._is_unfinished(sample, evaluations)
        if (new := await self._persist.keep(sample, evaluations, settled=not unfinished)) is None:
            return
        self._announce(arrived, sample, evaluations, [*arrived.early, *new])
        await self._finish(arrived, sample, unfinished=unfinished)

    def _is_unfinished(self, sample: Sample, evaluations: Sequence[Evaluation]) -> bool:
        return self._settings.completes and _has_gaps(sample, evaluations)

    def _announce(
        self, arrived: _Arrived, sample: Sample, evaluations: Sequence[Evaluation], new: Sequence[Evaluation]
    ) -> None:
        """Tell observer and exporters what is stored; `new` are the evaluations that were not there before."""
        if new or not evaluations:  # it may have been stored before a crash
            self._observer.stored(sample, None)
        self._export(sample, new)
        for supplement in arrived.supplements:
            self._observer.supplement(supplement.source, "joined")
        if arrived.expired is not None:
            self._observer.supplement(arrived.expired, "expired")

    async def _finish(self, arrived: _Arrived, sample: Sample, *, unfinished: bool) -> None:
        """Complete a stored sample with what arrived meanwhile, and acknowledge it."""
        if unfinished and not await self._catch_up(sample, {said.id for said in arrived.supplements}):
            return
        if unfinished or not self._persist.settles:
            await self._persist.attempt("ack", lambda: self._queue.ack([sample.id]))

    async def _catch_up(self, sample: Sample, known: Collection[str]) -> bool:
        """Complete a sample with the supplements that arrived while it was evaluated; False when stopped first.

        The intake finds a sample only once it is stored; what came before that is picked up here.
        """
        if (supplements := await self._supplements.stored_for(sample)) is None:
            return False
        new = [supplement for supplement in supplements if supplement.id not in known]
        for supplement in new:
            self._observer.supplement(supplement.source, "joined")
        return not new or await self._complete(sample.id)

    async def _process_late(self, sample_id: str, done: asyncio.Future[bool]) -> None:
        handled = False
        try:
            handled = await self._complete(sample_id)
        except Exception as error:  # noqa: BLE001 - not the engine's failure, so a retry would fail again; counted
            handled = True
            self._observer.failed("join")
            _log.warning("cannot complete %s: %s: %s", sample_id, type(error).__name__, error)
        finally:
            if not done.done():
                done.set_result(handled)

    async def _complete(self, sample_id: str) -> bool:
        """Fill the gaps of a stored sample and run the metrics that were skipped; False when stopped first."""

        async def look() -> tuple[tuple[Sample, Sequence[Evaluation]] | None]:
            return (await self._store.sample(sample_id),)

        if (stored := await self._persist.attempt("join", look, engine_failed)) is None:
            return False
        if stored[0] is None:
            return True
        sample, evaluations = stored[0]
        if (supplements := await self._supplements.stored_for(sample)) is None:
            return False
        if (completed := complete(sample, supplements)) == sample:
            return True
        new = await self._persist.keep(completed, await self._evaluator.retry_skipped(completed, evaluations))
        if new is None:
            return False
        self._observer.stored(completed, sample)
        if new:
            self._export(completed, new)
        return True

    def _export(self, sample: Sample, new: Sequence[Evaluation]) -> None:
        """Hand new scores to the exporters, signals only to those that take them."""
        scores = [evaluation for evaluation in new if evaluation.metric not in SIGNALS]
        for exporter in self._exporters:
            try:
                exporter.export(sample, new if exporter.takes_signals else scores)
            except Exception as error:  # noqa: BLE001 - the rows are stored; an exporter must not undo that; counted
                self._observer.failed("export")
                _log.warning("%s failed: %s: %s", exporter.name, type(error).__name__, error)
        self._observer.scored(sample, scores)


def _has_gaps(sample: Sample, evaluations: Sequence[Evaluation]) -> bool:
    return sample.skip_reason is None and any(isinstance(evaluation.outcome, Skipped) for evaluation in evaluations)
