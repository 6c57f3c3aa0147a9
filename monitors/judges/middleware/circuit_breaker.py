"""A circuit breaker: a judge that fails again and again is not asked for a while, and everybody can see it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from monitors.judges import Judge, JudgeError, Observer
from monitors.judges.middleware.base import Wrapper

T = TypeVar("T")
NEUTRAL = frozenset({"deadline", "unsure"})
ANSWERED = frozenset({"refused", "context_overflow"})
"""The judge sees well; it is the sample that it cannot take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """Whether the judge can be relied on. While `blind`, `since` is the time the run of failures began.

    `failures` counts them up to now, `kind` and `detail` are the last one's.
    """

    blind: bool = False
    since: float | None = None
    failures: int = 0
    kind: str = ""
    detail: str = ""


class Breaker(Wrapper):
    """After `failures` failures in a row the judge is blind: questions end with JudgeError("blind"), unasked.

    After `blind_s` one question is let through. If it is answered the judge sees again; if not, the next one may pass
    after twice the time, up to `most_blind_s`. What failed because of the sample (refused, context_overflow) counts as
    an answer. `clock` gives Unix time; `on_change` is told when the judge goes blind and when it sees again.
    """

    def __init__(
        self,
        judge: Judge,
        *,
        failures: int = 10,
        blind_s: float = 30.0,
        most_blind_s: float = 600.0,
        clock: Callable[[], float] = time.time,
        observer: Observer | None = None,
        on_change: Callable[[Sight], None] = lambda _: None,
    ) -> None:
        super().__init__(judge)
        self._threshold = failures
        self._first_s, self._most_s = blind_s, most_blind_s
        self._clock = clock
        self._observer = observer or Observer()
        self._on_change = on_change
        self._sight = Sight()
        self._pause_s = blind_s
        self._closed_until = 0.0
        self._probing = False

    @property
    def sight(self) -> Sight:
        """The judge's state now."""
        return self._sight

    @property
    def blind(self) -> bool:
        """Whether the judge is blind."""
        return self._sight.blind

    async def _through(self, call: Callable[[], Awaitable[T]]) -> T:
        probe = self._sight.blind
        if probe:
            self._let_through()
        try:
            answer = await call()
        except JudgeError as error:
            if error.kind in ANSWERED:
                self._saw()
            elif error.kind not in NEUTRAL:
                self._missed(error, probe=probe)
            raise
        else:
            self._saw()
            return answer
        finally:
            if probe:
                self._probing = False

    def _let_through(self) -> None:
        """Let one question pass when the time has come; raise for all others."""
        if self._probing or self._clock() < self._closed_until:
            self._observer.failed(self.model, "blind")
            raise JudgeError("blind", f"not asked: {self._sight.failures} failures in a row, last {self._sight.kind}")
        self._probing = True

    def _saw(self) -> None:
        before, self._sight = self._sight, Sight()
        if before.blind:
            self._pause_s = self._first_s
            self._on_change(self._sight)

    def _missed(self, error: JudgeError, *, probe: bool) -> None:
        now, before = self._clock(), self._sight
        failures = before.failures + 1
        blind = before.blind or failures >= self._threshold
        since = before.since if before.since is not None else now
        self._sight = Sight(blind=blind, since=since, failures=failures, kind=error.kind, detail=error.detail)
        if blind and not before.blind:
            self._closed_until = now + self._pause_s
            self._on_change(self._sight)
        elif probe:
            self._pause_s = min(self._most_s, 2.0 * self._pause_s)
            self._closed_until = now + self._pause_s
