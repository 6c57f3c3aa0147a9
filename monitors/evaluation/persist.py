"""Bringing what the worker found to queue and store, however long they fail."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from monitors.records import Evaluation, Failed, Sample
from monitors.runtime.tasks import happens_within
from monitors.storage.engines.failures import engine_failed, reason_of
from monitors.storage.queues import Queue
from monitors.storage.stores import Store

T = TypeVar("T")
FIRST_BACK_OFF_S, MAX_BACK_OFF_S = 0.1, 5.0
MOST_OVERTAKEN = 10
"""So often in a row may an operation fail while the engine does the same one for other samples."""
_log = logging.getLogger("gaugeway.worker")


class Persistence:
    """Tries until it works, or until `stopping`; every failure is told to `on_error` with the operation's name.

    Between two tries it waits for a random part of a time that grows to 5 s: many processes that lost the same engine
    must not come back all at once. An operation that fails while the same one succeeds for others is given up after
    `MOST_OVERTAKEN` such failures: whatever the reason, its sample must not hold a worker's place for good.
    """

    def __init__(
        self,
        queue: Queue,
        store: Store,
        *,
        on_error: Callable[[str], None],
        stopping: asyncio.Event,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._queue = queue
        self._store = store
        self._settler = store if store.settles(queue) else None
        self._on_error = on_error
        self._stopping = stopping
        self._draw = draw
        self._done: Counter[str] = Counter()

    @property
    def settles(self) -> bool:
        """Whether storing takes a sample out of the queue at the same moment."""
        return self._settler is not None

    async def keep(
        self, sample: Sample, evaluations: Sequence[Evaluation], *, settled: bool = False
    ) -> Sequence[Evaluation] | None:
        """Store all evaluations that can be stored, and of the others that they cannot; return those that are new.

        `settled`: the sample needs nothing more, and a store that can takes it out of the queue. Raises when the sample
        itself is at fault.
        """
        settle = self._settler.settle if settled and self._settler else None

        async def add(*some: Evaluation, last: bool = False) -> Sequence[Evaluation] | None:
            def attempt() -> Awaitable[Sequence[Evaluation]]:
                return settle(sample, some) if last and settle else self._store.add(sample, some)

            return await self.attempt("store", attempt, engine_failed)

        try:
            return await add(*evaluations, last=True)
        except Exception as error:  # whatever it is, to try the same again would not help
            self._on_error("store")
            if not evaluations:
                raise
            if engine_failed(error):
                raise
            failure = error
        if await add() is None:  # raises when it is the sample that is refused
            return None
        _log.warning("cannot store an evaluation of %s: %s: %s", sample.id, type(failure).__name__, failure)
        new: list[Evaluation] = []
        for evaluation in evaluations:
            try:
                added = await add(evaluation)
            except Exception as error:  # noqa: BLE001 - the same
                added = await add(replace(evaluation, outcome=Failed("unstorable", reason_of(error))))
            if added is None:
                return None
            new += added
        return None if settle and await add(last=True) is None else new

    async def set_aside(self, sample: Sample, error: Exception) -> None:
        """Make a sample that is at fault a dead letter."""
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
        """Try until it works; None when the worker is stopped first (the sample's lease then runs out).

        With `worth_waiting`, raises a failure that is not, and one of an operation that others overtake too often.
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
            await happens_within(self._stopping, back_off * self._draw())
            back_off = min(back_off * 2, MAX_BACK_OFF_S)
