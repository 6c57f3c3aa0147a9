"""The middleware stack around one judge endpoint."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from monitors.judges import Judge, JudgeError, Observer
from monitors.judges.middleware.base import Wrapper
from monitors.judges.middleware.circuit_breaker import BreakerState, CircuitBreaker
from monitors.judges.middleware.concurrency import AdaptiveConcurrency
from monitors.judges.middleware.deadline import DeadlineJudge
from monitors.judges.middleware.retry import LONGEST_RETRY_AFTER_S, Retrying

T = TypeVar("T")
_BUSY = frozenset({"rate_limited"})
"""What a server that works answers when it gets too many requests: its Retry-After is honoured first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSettings:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
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

    def breaking(inner: Judge, neutral: frozenset[str] = frozenset()) -> CircuitBreaker:
        return CircuitBreaker(
            inner,
            failures=settings.blind_after,
            blind_s=settings.blind_s,
            most_blind_s=settings.most_blind_s,
            clock=wall,
            neutral=neutral,
            observer=observer,
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

    endpoint = DeadlineJudge(judge, observer=observer)
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
