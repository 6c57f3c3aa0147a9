"""Micro-batching of concurrent requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from gaugeway.runtime.tasks import spawn
from gaugeway.storage.engines.failures import refused

Request = TypeVar("Request")
Answer = TypeVar("Answer")


class Gathering(Generic[Request, Answer]):
    """Hands requests to `work`, at most `most` at once and one batch at a time; it returns as many answers.

    The first request waits `linger_s` for others. Requests that arrive during a batch form the next one, so batches
    grow with the load. An error of `work` is raised to every caller of the batch; after a RefusedError each request is
    run alone, so that only the caller at fault gets it. Cancelled callers are skipped.
    """

    def __init__(
        self, work: Callable[[Sequence[Request]], Awaitable[Sequence[Answer]]], *, linger_s: float, most: int = 256
    ) -> None:
        self._work = work
        self._linger_s = linger_s
        self._most = most
        self._waiting: list[tuple[Request, asyncio.Future[Answer]]] = []
        self._task: asyncio.Task[None] | None = None

    async def ask(self, request: Request) -> Answer:
        """Return the answer to this request, once its batch is done."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        if self._task is None:
            self._task = spawn(self._run(), name="gathering")
        return await answer

    async def finish(self) -> None:
        """Wait until nothing is under way."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(self._linger_s)
                batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                await self._settle(batch)
        finally:
            self._task = None
            for _, answer in self._waiting:
                answer.cancel()
            self._waiting = []

    async def _settle(self, batch: Sequence[tuple[Request, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._work([request for request, _ in batch])
        except asyncio.CancelledError:
            for _, answer in batch:
                answer.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - it belongs to those who asked
            if len(batch) > 1 and refused(error):  # only to the one at fault
                await self._settle_each(batch)
                return
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (_, answer), result in zip(batch, answers, strict=True):
            if not answer.done():
                answer.set_result(result)

    async def _settle_each(self, batch: Sequence[tuple[Request, asyncio.Future[Answer]]]) -> None:
        try:
            for request in batch:
                await self._settle([request])
        finally:
            for _, answer in batch:
                answer.cancel()  # those that are done stay as they are
