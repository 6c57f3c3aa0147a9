"""The wrappers around one endpoint, in the order in which they work."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from monitors.judges import Judge, Observer
from monitors.judges.middleware.circuit_breaker import Breaker, Sight
from monitors.judges.middleware.concurrency import Adaptive
from monitors.judges.middleware.deadline import Patient
from monitors.judges.middleware.retry import Retrying


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """How carefully an endpoint is treated: see Adaptive, Retrying and Breaker."""

    concurrency: int = 4
    max_retries: int = 3
    blind_after: int = 10
    blind_s: float = 30.0
    most_blind_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """A judge for metrics, and the parts whose state is worth watching."""

    judge: Judge
    breaker: Breaker
    adaptive: Adaptive


def guarded(
    judge: Judge,
    guard: Guard,
    *,
    observer: Observer | None = None,
    on_sight: Callable[[Sight], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    draw: Callable[[], float] = random.random,
) -> Guarded:
    """Wrap a judge that itself neither waits nor repeats (`max_retries=0`, as many places as `guard.concurrency`).

    From the outside: the breaker sees how questions end, retries included; between two tries no place is held; a
    sample's deadline runs only while it has one.
    """
    adaptive = Adaptive(Patient(judge, observer=observer), most=guard.concurrency, clock=clock, sleep=sleep)
    breaker = Breaker(
        Retrying(adaptive, times=guard.max_retries, sleep=sleep, draw=draw),
        failures=guard.blind_after,
        blind_s=guard.blind_s,
        most_blind_s=guard.most_blind_s,
        clock=wall,
        observer=observer,
        on_change=on_sight,
    )
    return Guarded(judge=breaker, breaker=breaker, adaptive=adaptive)
