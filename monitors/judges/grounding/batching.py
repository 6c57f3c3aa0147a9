"""The micro-batcher of pairs: pairs of one app that wait at about the same time are sent as one request."""

from __future__ import annotations

import asyncio
import contextvars
import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import msgspec

from gaugeway.runtime.tasks import spawn
from monitors.judges import SPEND, Judge, JudgeError, Prompt
from monitors.judges.grounding.pairs import TASK
from monitors.judges.middleware.deadline import DEADLINE

T = TypeVar("T")
_ONE_PAIRS_FAULT = frozenset({"bad_request", "context_overflow", "too_large", "unreadable"})
"""Failures that a single pair can cause for its whole request."""


class PairSupports(msgspec.Struct, frozen=True):
    """The answer to a batch: one probability a pair, in order."""

    supports: list[float]


class PairProtocol(Protocol):
    """Writes the request for some pairs."""

    @property
    def version(self) -> str:
        """Changes whenever the same pairs are asked about in another way."""

    def write(self, pairs: Sequence[tuple[str, str]]) -> bytes:
        """Return the body of the request for (document, claim) pairs."""


@dataclass(frozen=True, slots=True)
class _Call:
    pair: tuple[str, str]
    answer: asyncio.Future[float]


@dataclass(slots=True)
class _Queue:
    """The waiting calls of one app."""

    calls: list[_Call] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None


class BatchedPairs(Judge):
    """Collects pairs for at most `wait_s` seconds or until there are `size`, and asks `judge` about them at once.

    The pairs of different apps are not mixed, so that each app pays for its own. When a request fails in a way that
    one pair may have caused, it is repeated in halves, so that no pair fails because of another. A cancelled call does
    not stop the request of the others. Belongs to one event loop.
    """

    def __init__(self, judge: Judge, protocol: PairProtocol, *, size: int = 32, wait_s: float = 0.01) -> None:
        if size < 1 or wait_s < 0:
            raise ValueError("a batch has at least one pair and waits no negative time")
        self._judge = judge
        self._protocol = protocol
        self._size = size
        self._wait_s = wait_s
        self._queues: dict[str, _Queue] = {}
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def model(self) -> str:
        return self._judge.model

    @property
    def identity(self) -> str:
        return self._judge.identity

    async def ask(self, prompt: Prompt, answer_type: type[T]) -> T:
        spend = SPEND.get()
        app = spend.app if spend is not None else ""
        loop = asyncio.get_running_loop()
        call = _Call((prompt.system, prompt.user), loop.create_future())
        queue = self._queues.setdefault(app, _Queue())
        queue.calls.append(call)
        if len(queue.calls) >= self._size:
            self._send_now(app)
        elif queue.timer is None:
            queue.timer = loop.call_later(self._wait_s, self._send_now, app)
        return msgspec.convert({"support": await call.answer}, answer_type)

    async def aclose(self) -> None:
        """Send the waiting pairs, wait for the answers, and close the judge."""
        for app in list(self._queues):
            self._send_now(app)
        if self._sending:
            await asyncio.wait(self._sending)
        await self._judge.aclose()

    def _send_now(self, app: str) -> None:
        queue = self._queues.pop(app, _Queue())
        if queue.timer is not None:
            queue.timer.cancel()
        if calls := [call for call in queue.calls if not call.answer.done()]:
            context = contextvars.copy_context()
            context.run(DEADLINE.set, None)  # the first caller's deadline must not end the others' calls
            task = context.run(lambda: spawn(self._send(calls), name="grounding"))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send(self, calls: Sequence[_Call]) -> None:
        """Ask about the pairs of these calls; each call gets its answer or an exception."""
        try:
            await self._answer(calls)
        except JudgeError as error:
            if len(calls) > 1 and error.kind in _ONE_PAIRS_FAULT:
                at = len(calls) // 2
                await asyncio.gather(self._send(calls[:at]), self._send(calls[at:]))
            else:
                _fail(calls, error)
        except Exception as error:  # noqa: BLE001 - any error is passed to the waiting calls, whose metrics count it
            _fail(calls, error)
        except asyncio.CancelledError:
            for call in calls:
                call.answer.cancel()
            raise

    async def _answer(self, calls: Sequence[_Call]) -> None:
        body = self._protocol.write([call.pair for call in calls]).decode()
        prompt = Prompt(task=TASK, version=self._protocol.version, system="", user=body, frozen=True)
        found = (await self._judge.ask(prompt, PairSupports)).supports
        if len(found) != len(calls):
            raise JudgeError(
                "unreadable", f"expected {len(calls)} result{'' if len(calls) == 1 else 's'}, got {len(found)}"
            )
        for call, support in zip(calls, found, strict=True):
            if not call.answer.done():
                call.answer.set_result(support)


def _fail(calls: Sequence[_Call], error: Exception) -> None:
    for call in calls:
        if not call.answer.done():
            # One exception object for each call: raising the same one in several tasks mixes their tracebacks.
            call.answer.set_exception(copy.copy(error) if isinstance(error, JudgeError) else error)
