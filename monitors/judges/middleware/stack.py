"""The middleware stack around one judge endpoint, with its circuit breaker."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from msgspec import Struct

from monitors.judges import Judge, JudgeError, Observer
from monitors.judges.middleware import Wrapper
from monitors.judges.middleware.limits import LONGEST_RETRY_AFTER_S, AdaptiveConcurrency, DeadlineJudge, Retrying

T = TypeVar("T")
NEUTRAL = frozenset({"deadline", "unsure"})
ANSWERED = frozenset({"refused", "context_overflow"})
"""Failures that the sample caused: the judge itself works."""


class BreakerState(Struct, frozen=True, kw_only=True):
    """The circuit and the current run of failures, which began at `since` (Unix seconds).

    `failures` counts the run, `kind` and `detail` are those of the last failure. While the circuit is `open`, the judge
    is not called.
    """

    open: bool = False
    since: float | None = None
    failures: int = 0
    kind: str = ""
    detail: str = ""


@dataclass(eq=False, kw_only=True)
class CircuitBreaker(Wrapper):
    """Opens after `failures` consecutive failures; calls then raise JudgeError("blind") without reaching the judge.

    After `blind_s` seconds one call probes the judge. If it succeeds the circuit closes; if not, the next probe follows
    after twice the time, up to `most_blind_s`. A failure that the sample caused (refused, context_overflow) counts as a
    success. `clock` gives Unix time; `on_change` is called when the circuit opens and when it closes.

    Inside the retries every request counts. Failures of the kinds in `neutral` then count only where `count` is called,
    after the retries, or in a probe.
    """

    failures: int = 10
    blind_s: float = 30.0
    most_blind_s: float = 600.0
    clock: Callable[[], float] = time.time
    neutral: frozenset[str] = frozenset()
    observer: Observer = field(default_factory=Observer)
    on_change: Callable[[BreakerState], None] = lambda _: None

    def __post_init__(self) -> None:
        self._state = BreakerState()
        self._pause_s = self.blind_s
        self._probe_at = 0.0
        self._probing = False
        self._answered_at = -math.inf

    @property
    def state(self) -> BreakerState:
        """The circuit and the current run of failures."""
        return self._state

    @property
    def is_open(self) -> bool:
        """Whether the circuit is open, so that the judge is not called."""
        return self._state.open

    def resume(self, since: float) -> None:
        """Open the circuit for a run of failures that an earlier process saw begin at `since`; the next call probes.

        Does nothing while the circuit is open, and when the judge has answered after `since`.
        """
        if self._state.open or self._answered_at > since:
            return
        self._state = BreakerState(open=True, since=since, failures=self.failures, kind="before the restart")
        self._probe_at = self.clock()
        self.on_change(self._state)

    def count(self, error: JudgeError) -> None:
        """Count a failure of a kind in `neutral` whose retries failed too."""
        if error.kind in self.neutral:
            self._failed(error, probe=False)

    async def _through(self, call: Callable[[], Awaitable[T]]) -> T:
        if probe := self._state.open:
            self._admit_probe()
        try:
            answer = await call()
        except JudgeError as error:
            if error.kind in ANSWERED:
                self._succeeded()
            elif error.kind not in NEUTRAL and (probe or error.kind not in self.neutral):
                self._failed(error, probe=probe)
            raise
        else:
            self._succeeded()
            return answer
        finally:
            if probe:
                self._probing = False

    def _admit_probe(self) -> None:
        """Admit one call when a probe is due; raise JudgeError("blind") for all others."""
        if self._probing or self.clock() < self._probe_at:
            self.observer.failed(self.model, "blind")
            raise JudgeError("blind", f"not asked: {self._state.failures} failures in a row, last {self._state.kind}")
        self._probing = True

    def _succeeded(self) -> None:
        before, self._state = self._state, BreakerState()
        self._answered_at = self.clock()
        if before.open:
            self._pause_s = self.blind_s
            self.on_change(self._state)

    def _failed(self, error: JudgeError, *, probe: bool) -> None:
        now, before = self.clock(), self._state
        failures = before.failures + 1
        opened = before.open or failures >= self.failures
        since = before.since if before.since is not None else now
        self._state = BreakerState(open=opened, since=since, failures=failures, kind=error.kind, detail=error.detail)
        if opened and not before.open:
            self._probe_at = now + self._pause_s
            self.on_change(self._state)
        elif probe:
            self._pause_s = min(self.most_blind_s, 2.0 * self._pause_s)
            self._probe_at = now + self._pause_s


_BUSY = frozenset({"rate_limited"})
"""What a server that works answers when it gets too many requests: its Retry-After is honoured first."""


class StackSettings(Struct, frozen=True, kw_only=True):
    """The limits of one endpoint; see AdaptiveConcurrency, Retrying and CircuitBreaker.

    With `count_requests` the circuit counts every request that fails, not only calls whose retries fail too. A server
    that asks for a longer pause than `longest_pause_s` (Retry-After) fails the call at once.
    """

    concurrency: int = 4
    max_retries: int = 3
    blind_after: int = 10
    blind_s: float = 30.0
    most_blind_s: float = 600.0
    count_requests: bool = False
    longest_pause_s: float = LONGEST_RETRY_AFTER_S


class Stack(Struct, frozen=True, kw_only=True):
    """A judge for metrics, and the parts of it whose state is shown."""

    judge: Judge
    breaker: CircuitBreaker
    concurrency: AdaptiveConcurrency


def build_stack(
    judge: Judge,
    settings: StackSettings,
    *,
    observer: Observer | None = None,
    on_change: Callable[[BreakerState], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    draw: Callable[[], float] = random.random,
) -> Stack:
    """Wrap a judge that neither waits nor retries (`max_retries=0`, at least `settings.concurrency` places).

    From outside to inside: the circuit breaker sees the results after retries; a retry holds no place while it waits;
    the sample's deadline runs only while a call has a place. With `count_requests` the breaker is inside both instead:
    calls that wait for a place or a retry when it opens are no longer sent.
    """
    observing = observer or Observer()

    def breaking(inner: Judge, neutral: frozenset[str] = frozenset()) -> CircuitBreaker:
        return CircuitBreaker(
            inner,
            failures=settings.blind_after,
            blind_s=settings.blind_s,
            most_blind_s=settings.most_blind_s,
            clock=wall,
            neutral=neutral,
            observer=observing,
            on_change=on_change,
        )

    def limited(inner: Judge) -> AdaptiveConcurrency:
        return AdaptiveConcurrency(
            inner,
            most=settings.concurrency,
            longest_pause_s=settings.longest_pause_s,
            cut_in_outage=not settings.count_requests,
            clock=clock,
            sleep=sleep,
        )

    def repeated(inner: Judge) -> Retrying:
        longest_s = settings.longest_pause_s
        return Retrying(inner, times=settings.max_retries, longest_pause_s=longest_s, sleep=sleep, draw=draw)

    endpoint = DeadlineJudge(judge, observer=observing)
    if settings.count_requests:
        breaker = breaking(endpoint, _BUSY)
        adaptive = limited(breaker)
        return Stack(judge=_CountedAfterRetries(repeated(adaptive), breaker), breaker=breaker, concurrency=adaptive)
    adaptive = limited(endpoint)
    breaker = breaking(repeated(adaptive))
    return Stack(judge=breaker, breaker=breaker, concurrency=adaptive)


class _CountedAfterRetries(Wrapper):
    """Counts in the breaker the failures that it leaves to the retries."""

    def __init__(self, judge: Judge, breaker: CircuitBreaker) -> None:
        super().__init__(judge)
        self._breaker = breaker

    async def _through(self, call: Callable[[], Awaitable[T]]) -> T:
        try:
            return await call()
        except JudgeError as error:
            self._breaker.count(error)
            raise
