"""Persistence: writes the results of the worker to store and queue, and retries while they fail; what is counted."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from gaugeway.records import Evaluation, Failed, Sample
from gaugeway.runtime.tasks import happens_within
from gaugeway.storage.engines.failures import engine_failed, reason_of
from gaugeway.storage.queues import Queue
from gaugeway.storage.stores import Store


class WorkerObserver:
    """Receives the worker's events; each method does nothing unless a subclass overrides it."""

    def failed(self, operation: str) -> None:
        """An operation of the queue, the store or an exporter failed, perhaps to be retried."""

    def stored(self, sample: Sample, before: Sample | None) -> None:
        """A sample was stored; `before` is what was stored until supplements completed it, None the first time."""

    def scored(self, sample: Sample, evaluations: Sequence[Evaluation]) -> None:
        """These evaluations are new in the store."""

    def supplement(self, source: str, result: str) -> None:
        """A supplement from the channel `source` was handled.

        `result` is "joined", "waiting" (its exchange has not arrived yet), "expired" (an exchange waited for it in
        vain) or "cut" (to `runtime.bounds`, counted besides one of the others).
        """

    def linked(self, result: str, count: int) -> None:
        """`count` samples were looked for in conversations; `result` is one of `storage.conversations.Result`."""

    def expired(self) -> None:
        """A sample was too old to be judged: its judged metrics were skipped."""


T = TypeVar("T")
FIRST_BACK_OFF_S, MAX_BACK_OFF_S = 0.1, 5.0  # internal bound: time between our own attempts
MOST_OVERTAKEN = 10
"""How often an operation may fail while the same one succeeds for other samples, before it is given up."""
_log = logging.getLogger("gaugeway.worker")


class Persistence:
    """Retries operations until they succeed or `stopping` is set; calls `on_error` with the operation after a failure.

    Back-off grows from 0.1 s to 5 s with full jitter, so that many processes that lost the same engine do not return
    all at once. An operation that fails while the same one succeeds for other samples is given up after
    `MOST_OVERTAKEN` such failures, so that its sample does not hold one of the worker's places for good.
    """

    def __init__(self, queue: Queue, store: Store, *, on_error: Callable[[str], None], stopping: asyncio.Event) -> None:
        self._queue = queue
        self._store = store
        self._settler = store if store.settles(queue) else None
        self._on_error = on_error
        self._stopping = stopping
        self._done: Counter[str] = Counter()

    @property
    def settles(self) -> bool:
        """Whether storing a sample removes it from the queue in the same transaction."""
        return self._settler is not None

    async def keep(
        self, sample: Sample, evaluations: Sequence[Evaluation], *, settled: bool = False
    ) -> Sequence[Evaluation] | None:
        """Store the evaluations, those that the store rejects as Failed("unstorable"); return the new ones.

        `settled` says that the sample is finished, so that a store that settles also removes it from the queue. None
        when the worker is stopped first. Raises when the store rejects the sample itself.
        """
        settle = self._settler.settle if settled and self._settler else None

        async def add(*some: Evaluation, last: bool = False) -> Sequence[Evaluation] | None:
            def attempt() -> Awaitable[Sequence[Evaluation]]:
                return settle(sample, some) if last and settle else self._store.add(sample, some)

            return await self.attempt("store", attempt, engine_failed)

        try:
            return await add(*evaluations, last=True)
        except Exception as error:  # not the engine's failure, so a retry would fail again
            self._on_error("store")
            if not evaluations or engine_failed(error):
                raise
        if await add() is None:  # raises when it is the sample that is refused
            return None
        new: list[Evaluation] = []
        for evaluation in evaluations:
            try:
                added = await add(evaluation)
            except Exception as error:  # noqa: BLE001 - as above; stored as unstorable
                kind = type(error).__name__
                _log.warning(
                    "cannot store the evaluation of %s by %s: %s: %s", sample.id, evaluation.metric, kind, error
                )
                added = await add(replace(evaluation, outcome=Failed("unstorable", reason_of(error))))
            if added is None:
                return None
            new += added
        return None if settle and await add(last=True) is None else new

    async def keep_each(
        self, some: Sequence[tuple[Sample, Sequence[Evaluation], bool]]
    ) -> Sequence[Sequence[Evaluation] | None]:
        """Try once to do what `keep` does for several samples, each with its evaluations and whether it is settled.

        Returns the new evaluations of each; None for one that could not be stored and is left to `keep`.
        """
        outcomes: Sequence[Sequence[Evaluation] | Exception]
        try:
            if self._settler is None:
                outcomes = await self._store.add_each([(sample, evaluations) for sample, evaluations, _ in some])
            else:  # each settles in a transaction of its own
                outcomes = await asyncio.gather(*(self._added(*pending[:2], settled=pending[2]) for pending in some))
        except Exception as error:  # noqa: BLE001 - whose fault it is shows when each is stored alone
            outcomes = [error] * len(some)
        for outcome in outcomes:
            if not isinstance(outcome, Exception):
                self._done["store"] += 1
            elif engine_failed(outcome):  # another failure is counted by `keep`, which meets it again
                self._on_error("store")
                _log.warning("store failed, retrying: %s: %s", type(outcome).__name__, outcome)
        return [None if isinstance(outcome, Exception) else outcome for outcome in outcomes]

    async def _added(
        self, sample: Sample, evaluations: Sequence[Evaluation], *, settled: bool
    ) -> Sequence[Evaluation] | Exception:
        settler = self._settler if settled else None
        try:
            return await (settler.settle if settler else self._store.add)(sample, evaluations)
        except Exception as error:  # noqa: BLE001 - returned
            return error

    async def set_aside(self, sample: Sample, error: Exception) -> None:
        """Move a sample that the store rejects to the dead letters; if the queue cannot, its attempts run out."""
        reason = reason_of(error)
        self._on_error("dead_letter")
        _log.warning("%s cannot be evaluated, moved to dead letters: %s", sample.id, reason)
        await self.attempt("dead_letter", lambda: self._queue.set_aside(sample.id, f"refused: {reason}"))

    async def attempt(
        self,
        operation: str,
        action: Callable[[], Awaitable[T]],
        worth_waiting: Callable[[Exception], bool] | None = None,
    ) -> T | None:
        """Retry `action` until it succeeds; None when the worker is stopped first (the sample's lease then runs out).

        With `worth_waiting`, raises a failure for which it returns False, and any failure of an operation that
        succeeded for other samples `MOST_OVERTAKEN` times meanwhile.
        """
        back_off, overtaken, done = FIRST_BACK_OFF_S, 0, self._done[operation]
        while True:
            try:
                result = await action()
            except Exception as error:
                overtaken, done = overtaken + (self._done[operation] > done), self._done[operation]
                if worth_waiting and (not worth_waiting(error) or overtaken > MOST_OVERTAKEN):
                    raise
                self._on_error(operation)
                _log.warning("%s failed, retrying: %s: %s", operation, type(error).__name__, error)
            else:
                self._done[operation] += 1
                return result
            if self._stopping.is_set():
                return None
            await happens_within(self._stopping, back_off * random.random())  # noqa: S311 - jitter
            back_off = min(back_off * 2, MAX_BACK_OFF_S)
