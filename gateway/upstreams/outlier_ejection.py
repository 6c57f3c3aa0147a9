"""Outlier ejection: failing upstreams get no requests for a while, then one probe at a time. Rules only, no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from gaugeway.runtime.retry import delay_s

HEALTHY: Final = 1.0
HALF_OPEN: Final = 0.5
EJECTED: Final = 0.0

MAX_EJECT_S = 300.0  # internal bound: time between our own attempts


class Attempt(Struct, frozen=True):
    """One request to an upstream. `era` numbers the upstream's state in which it started."""

    upstream: str
    era: int
    probe: bool


class _Health(Struct):
    failures: int = 0
    ejections: int = 0
    until: float | None = None  # None: not ejected
    probing: bool = False
    era: int = 0


class Ejection:
    """The health of the upstreams, by name. Times are seconds of a monotonic clock, given with each call.

    `after` failures in a row eject an upstream for `for_s`. Then one request at a time probes it: a success brings it
    back, a failure ejects it for twice as long as before, up to 5 minutes. An upstream is only ejected while another
    healthy one serves the same model. All begin healthy; `changed` is called with each new state.
    """

    def __init__(
        self, upstreams: Iterable[str], *, after: int, for_s: float, changed: Callable[[str, float], None]
    ) -> None:
        self._after = after
        self._for_s = for_s
        self._changed = changed
        self._health = {name: _Health() for name in upstreams}

    def state(self, upstream: str, now: float) -> float:
        """Return HEALTHY, HALF_OPEN or EJECTED."""
        until = self._health[upstream].until
        return HEALTHY if until is None else HALF_OPEN if now >= until else EJECTED

    def takes(self, upstream: str, now: float) -> bool:
        """Whether a request may go there: it is healthy, or half-open without a probe under way."""
        health = self._health[upstream]
        return health.until is None or (now >= health.until and not health.probing)

    def begin(self, upstream: str, now: float) -> Attempt:
        """Begin a request, to be followed by `end`. It may go to an ejected upstream where there is no other."""
        health = self._health[upstream]
        probe = health.until is not None and now >= health.until and not health.probing
        if probe:
            health.probing = True
            self._changed(upstream, HALF_OPEN)
        return Attempt(upstream, health.era, probe)

    def end(self, attempt: Attempt, *, success: bool | None, peers: Iterable[str], now: float) -> None:
        """Record how a request ended; None: it was given up, which says nothing about the upstream.

        `peers` are the upstreams for the same model. Requests from before the latest change of state are ignored.
        """
        health = self._health[attempt.upstream]
        if attempt.era != health.era:
            return
        if attempt.probe:
            health.probing = False
        if success:
            health.failures = 0
            if health.until is not None:
                health.until, health.ejections, health.probing = None, 0, False
                health.era += 1
                self._changed(attempt.upstream, HEALTHY)
        elif success is not None:
            health.failures += 1
            if attempt.probe or (
                health.until is None
                and health.failures >= self._after
                and any(self._health[peer].until is None for peer in peers if peer != attempt.upstream)
            ):
                self._eject(attempt.upstream, now)

    def _eject(self, upstream: str, now: float) -> None:
        health = self._health[upstream]
        longest_s = max(MAX_EJECT_S, self._for_s)
        health.until = now + delay_s(health.ejections, first_s=self._for_s, longest_s=longest_s)
        health.ejections += 1
        health.probing = False
        health.era += 1
        self._changed(upstream, EJECTED)
