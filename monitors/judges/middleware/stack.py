"""The middleware stack around one judge endpoint."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from monitors.judges import Judge, Observer
from monitors.judges.middleware.circuit_breaker import BreakerState, CircuitBreaker
from monitors.judges.middleware.concurrency import AdaptiveConcurrency
from monitors.judges.middleware.deadline import DeadlineJudge
from monitors.judges.middleware.retry import Retrying


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSettings:
    """The limits of one endpoint; see AdaptiveConcurrency, Retrying and CircuitBreaker."""

    concurrency: int = 4
    max_retries: int = 3
    blind_after: int = 10
    blind_s: float = 30.0
    most_blind_s: float = 600.0


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
    the sample's deadline runs only while a call has a place.
    """
    adaptive = AdaptiveConcurrency(
        DeadlineJudge(judge, observer=observer), most=settings.concurrency, clock=clock, sleep=sleep
    )
    breaker = CircuitBreaker(
        Retrying(adaptive, times=settings.max_retries, sleep=sleep, draw=draw),
        failures=settings.blind_after,
        blind_s=settings.blind_s,
        most_blind_s=settings.most_blind_s,
        clock=wall,
        observer=observer,
        on_change=on_change,
    )
    return Stack(judge=breaker, breaker=breaker, concurrency=adaptive)
