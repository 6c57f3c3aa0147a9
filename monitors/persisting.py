"""Bringing what the worker found to queue and store, however long they fail."""

from __future__ import annotations

import asyncio
import logging
import random
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from monitors.queues import Queue
from monitors.records import Evaluation, Failed, Sample
from monitors.stores import Settling, Store
from monitors.tasks import happens_within

T = TypeVar("T")
FIRST_BACK_OFF_S, MAX_BACK_OFF_S = 0.1, 5.0
_log = logging.getLogger("gaugeway.worker")


class Persistence:
    """Tries until it works, or until `stopping`; every failure is told to `on_error` with the operation's name.

    Between two tries it waits for a random part of a time that grows to 5 s: many processes that lost the same engine
    must not come back all at once.
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
        self._store = store
        self._settler = store if isinstance(store, Settling) and store.settles(queue) else None
        self._on_error = on_error
        self._stopping = stopping
        self._draw = draw

    @property
    def settles(self) -> bool:
        """Whether storing takes a sample out of the queue at the same moment."""
        return self._settler is not None

    async def keep(
        self, sample: Sample, evaluations: Sequence[Evaluation], *, settled: bool = False
    ) -> Sequence[Evaluation] | None:
        """Store all evaluations that can be stored, and of the others that they cannot; return those that are new.

        `settled`: the sample needs nothing more, and a store that can takes it out of the queue. Raises when the sample
        itself is at fault: its lease then runs out, and after its last attempt it is set aside.
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
        return None if settle and await add(last=True) is None else new

    async def attempt(
        self,
        operation: str,
        action: Callable[[], Awaitable[T]],
        worth_waiting: Callable[[Exception], bool] = lambda _: True,
    ) -> T | None:
        """Try until it works; None when the worker is stopped first (the sample's lease then runs out).

        Raises a failure that is not `worth_waiting` for.
        """
        back_off = FIRST_BACK_OFF_S
        while True:
            try:
                return await action()
            except Exception as error:
                if not worth_waiting(error):
                    raise
                self._on_error(operation)
                _log.warning("%s failed, trying again: %s: %s", operation, type(error).__name__, error)
            if self._stopping.is_set():
                return None
            await happens_within(self._stopping, back_off * self._draw())
            back_off = min(back_off * 2, MAX_BACK_OFF_S)


def engine_failed(error: Exception) -> bool:
    """Whether a store complains about itself, as opposed to what it was given to store."""
    refusals = sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError
    return isinstance(error, (sqlite3.Error, OSError)) and not isinstance(error, refusals)
