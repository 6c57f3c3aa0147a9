"""Limits of the calls to one endpoint: retries, how many run at a time (AIMD), and the deadline of a sample."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

from monitors.judges import JudgeError, Observer
from monitors.judges.middleware import Wrapper

T = TypeVar("T")
TRANSIENT = frozenset({"rate_limited", "server_error", "connection", "timeout"})
FIRST_S, LONGEST_S = 0.5, 30.0  # internal bound: time between our own attempts
LONGEST_RETRY_AFTER_S = 60.0  # internal bound: time between our own attempts


@dataclass(eq=False, kw_only=True)
class Retrying(Wrapper):
    """Repeats a call at most `times`, after the server's Retry-After, or with exponential back-off and jitter.

    A Retry-After of more than `longest_pause_s` is not waited for: the call fails.

    Place it outside `AdaptiveConcurrency`: a call must hold no place while it waits. `draw` gives numbers in [0, 1).
    """

    times: int = 3
    longest_pause_s: float = LONGEST_RETRY_AFTER_S
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    draw: Callable[[], float] = random.random

    async def _through(self, call: Callable[[], Awaitable[T]]) -> T:
        for repeated in range(self.times):
            try:
                return await call()
            except JudgeError as error:
                if error.kind not in TRANSIENT:
                    raise
                if (pause_s := error.retry_after_s) is not None and pause_s > self.longest_pause_s:
                    raise
            if pause_s is None:
                pause_s = min(LONGEST_S, FIRST_S * 2.0**repeated * (0.5 + self.draw() / 2.0))
            await self.sleep(pause_s)
        return await call()


_TOO_MUCH = frozenset({"rate_limited", "timeout"})


@dataclass(eq=False, kw_only=True)
class AdaptiveConcurrency(Wrapper):
    """Runs at most `limit` calls at a time, between 1 and `most`: additive increase, multiplicative decrease.

    Every answer adds 1/limit, so a round of answers adds one place. A 429, a timeout, or a server error with a
    Retry-After halves the limit; a call that began before the last cut does not cut again, for it met the same
    congestion. Without `cut_in_outage` a timeout cuts only after an answer: a server that answers nothing is down, not
    congested, and fewer calls at a time would only open its circuit later.

    After a Retry-After no call starts until then. Without an answer in between, such pauses add up to at most
    `longest_pause_s`: what asks for more fails at once, with an infinite `retry_after_s`, so that it is not repeated.

    Reference: D.-M. Chiu, R. Jain (1989), Analysis of the increase and decrease algorithms for congestion avoidance.
    """

    most: int = 4
    longest_pause_s: float = LONGEST_RETRY_AFTER_S
    cut_in_outage: bool = True
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        self._paused_s = 0.0  # since the last answer
        self._answered = self.cut_in_outage
        self._places = float(self.most)
        self._running = 0
        self._cut_at = self._paused_until = float("-inf")
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def limit(self) -> int:
        """How many calls may run now."""
        return int(self._places)

    @property
    def running(self) -> int:
        """How many calls run now."""
        return self._running

    async def _through(self, call: Callable[[], Awaitable[T]]) -> T:
        await self._acquire()
        started = self.clock()
        try:
            answer = await call()
        except JudgeError as error:
            self._cut(error, started)
            raise
        else:
            self._answered = True
            self._paused_s = 0.0
            self._places = min(float(self.most), self._places + 1.0 / self._places)
            return answer
        finally:
            self._running -= 1
            self._wake()

    def _cut(self, error: JudgeError, started: float) -> None:
        pause_s = error.retry_after_s
        if error.kind not in _TOO_MUCH and not (error.kind == "server_error" and pause_s):
            return
        now = self.clock()
        if pause_s:
            self._pause(error, now, pause_s)
        if started > self._cut_at and (self._answered or error.kind != "timeout"):
            self._answered = self.cut_in_outage
            self._places = max(1.0, self._places / 2.0)
            self._cut_at = now

    def _pause(self, error: JudgeError, now: float, pause_s: float) -> None:
        more_s = max(0.0, now + pause_s - max(now, self._paused_until))
        if self._paused_s + more_s > self.longest_pause_s:
            error.retry_after_s = math.inf
        else:
            self._paused_s += more_s
            self._paused_until = max(self._paused_until, now + pause_s)

    async def _acquire(self) -> None:
        """Wait for a place, first come, first served; a pause may let a later caller pass."""
        woken = False
        while True:
            if (pause_s := self._paused_until - self.clock()) > 0.0:
                await self.sleep(pause_s)
            elif self._running < self.limit and (woken or not self._waiting):
                self._running += 1
                return
            else:
                await self._woken(first=woken)
                woken = True

    async def _woken(self, *, first: bool) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if first:
            self._waiting.appendleft(place)
        else:
            self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._wake()  # the place goes to the next waiter
            raise

    def _wake(self) -> None:
        free = self.limit - self._running
        while free > 0 and self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                free -= 1


class Deadline:
    """A budget of `seconds` for all judge calls of one sample; time during which calls overlap counts once."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._used = 0.0
        self._running = 0
        self._since = 0.0

    @property
    def left(self) -> float:
        """Seconds left, at least 0.0."""
        running = self._clock() - self._since if self._running else 0.0
        return max(0.0, self.seconds - self._used - running)

    @contextmanager
    def spending(self) -> Iterator[float]:
        """Count the time the block takes; yields the seconds left at its start."""
        left = self.left
        if not self._running:
            self._since = self._clock()
        self._running += 1
        try:
            yield left
        finally:
            self._running -= 1
            if not self._running:
                self._used += self._clock() - self._since


DEADLINE: ContextVar[Deadline | None] = ContextVar("gaugeway_deadline", default=None)
"""The deadline of the sample under evaluation; the evaluator sets it before the metrics start. None: unbounded."""


@dataclass(eq=False, kw_only=True)
class DeadlineJudge(Wrapper):
    """Raises JudgeError("deadline") when the sample's DEADLINE has passed.

    Place it inside `AdaptiveConcurrency`, so that the wait for other samples' calls does not count.
    """

    observer: Observer = field(default_factory=Observer)

    async def _through(self, call: Callable[[], Awaitable[T]]) -> T:
        if (deadline := DEADLINE.get()) is None:
            return await call()
        if deadline.left > 0.0:
            try:
                with deadline.spending() as left:
                    async with asyncio.timeout(left):
                        return await call()
            except TimeoutError:
                pass
        self.observer.failed(self.model, "deadline")
        raise JudgeError("deadline", f"the sample's {deadline.seconds:g} s of judging are used up")
