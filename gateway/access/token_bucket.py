"""Token buckets: a local one, and one that several processes share, each with its own copy.

The arithmetic of sharing, and how far it may be off: docs/explanation/shared-limits.md.
"""

from __future__ import annotations

from gaugeway.storage.documents import Draw, burst_of

_MINUTE_S = 60.0
MAX_DEBT_S = 3600.0
"""The longest debt that tokens leave which only an upstream's report shows: a wrong report must not lock an app out."""
_TRUST = 2
"""A process may take 1/(2N) of the last known level, so that several processes with the same level leave some."""


class TokenBucket:
    """Fills at `per_min` per minute up to `burst`; taking more than the level makes it negative. `now` is monotonic."""

    def __init__(self, per_min: float, burst: float, now: float) -> None:
        self._rate = per_min / _MINUTE_S
        self._burst = self._level = burst
        self._at = now

    def level(self, now: float) -> float:
        """Return the level; negative for a debt."""
        self._level = min(self._burst, self._level + max(now - self._at, 0.0) * self._rate)
        self._at = max(self._at, now)
        return self._level

    def wait_s(self, now: float) -> float:
        """Return the seconds until the level reaches one; 0 when it has."""
        return max(1.0 - self.level(now), 0.0) / self._rate

    def take(self, amount: float, now: float) -> None:
        """Take `amount`; the level may become negative."""
        self._level = self.level(now) - amount

    def room(self, now: float) -> float:
        """Return how much can be taken until the debt lasts MAX_DEBT_S."""
        return max(self.level(now) + MAX_DEBT_S * self._rate, 0.0)

    def is_full(self, now: float) -> bool:
        """Whether it is full, so that it can be dropped."""
        return self.level(now) >= self._burst

    def retune(self, per_min: float, burst: float, now: float) -> None:
        """Change the rate."""
        self.fill(self.level(now), now)
        self._rate, self._burst = per_min / _MINUTE_S, burst
        self._level = min(self._level, burst)

    def lack(self, now: float) -> float:
        """Return the missing amount."""
        return self._burst - self.level(now)

    def fill(self, level: float, now: float) -> None:
        """Set the level."""
        self._at = max(self._at, now)
        self._level = min(level, self._burst)


class SharedBucket:
    """One process's copy of a bucket that `processes` processes share.

    Without sync the process has its share of rate and burst. With sync it has the whole rate and, between two syncs,
    its part of the last known level. `_whole` is always the shared bucket's level as this process knows it.
    """

    __slots__ = ("_own", "_per_min", "_together", "_whole", "unsent")

    def __init__(self, per_min: float, now: float, *, processes: int, together: bool) -> None:
        self._per_min = per_min
        self._whole = TokenBucket(per_min, burst_of(per_min), now)
        self._own = TokenBucket(per_min / processes, burst_of(per_min / processes), now)
        self._together = False
        self.unsent = 0.0
        if together:
            self._trust(processes, now)

    def wait_s(self, now: float, hearing_s: float) -> float:
        """Return after how many seconds to come again, 0 for now; at the next hearing, `hearing_s`, more may be had."""
        own = self._own.wait_s(now)
        return own if not self._together else max(self._whole.wait_s(now), min(own, hearing_s))

    def level(self, now: float) -> float:
        """Return the level as this process knows it; negative for a debt."""
        return self._whole.level(now) if self._together else self._own.level(now)

    def take(self, amount: float, now: float) -> None:
        """Take `amount`; the level may become negative."""
        self._own.take(amount, now)
        self._whole.take(amount, now)
        self.unsent += amount

    def take_reported(self, amount: float, hidden: float, now: float) -> bool:
        """Take `amount`, of it `hidden` only up to a debt of MAX_DEBT_S; return whether all was taken."""
        self.take(amount - hidden, now)
        taken = min(hidden, (self._whole if self._together else self._own).room(now))
        self.take(taken, now)
        return taken == hidden

    def is_full(self, now: float) -> bool:
        """Whether it is full, so that it can be dropped."""
        return self._own.is_full(now) if not self._together else self._is_quiet(now)

    def draw(self, subject: str, kind: str, now: float) -> Draw | None:
        """Return the draw to sync; None when there is nothing to report or to read."""
        if not self._together:
            # A long time alone is not to be told as one great debt: what filled in meanwhile was this process's to use.
            self.unsent = min(self.unsent, max(self._own.lack(now), 0.0))
        if self._is_quiet(now):
            return None
        level = self._whole.level(now) + self.unsent
        return Draw(subject=subject, kind=kind, per_min=self._per_min, used=self.unsent, level=level)

    def hear(self, draw: Draw, level: float, processes: int, now: float) -> None:
        """Apply the level after `draw` was synced; later draws are still to be reported."""
        self.unsent = max(self.unsent - draw.used, 0.0)
        self._whole.fill(level - self.unsent, now)
        self._trust(processes, now)

    def join(self, processes: int, now: float) -> None:
        """Share the bucket again, without news of its level."""
        if not self._together:
            self._trust(processes, now)

    def part(self, processes: int, now: float) -> None:
        """Continue alone with this process's share of the level, debts included."""
        if not self._together:
            return
        self._together = False
        share = self._per_min / processes
        self._own.retune(share, burst_of(share), now)
        self._own.fill(self._whole.level(now) / processes, now)

    def retune(self, per_min: float, processes: int, now: float) -> None:
        """Change the rate."""
        self._per_min = per_min
        self._whole.retune(per_min, burst_of(per_min), now)
        if self._together:
            self._trust(processes, now)
        else:
            self._own.retune(per_min / processes, burst_of(per_min / processes), now)

    def _is_quiet(self, now: float) -> bool:
        return not self.unsent and self._whole.is_full(now)

    def _trust(self, processes: int, now: float) -> None:
        self._together = True
        parts = 1 if processes == 1 else _TRUST * processes
        self._own.retune(self._per_min, max(burst_of(self._per_min) / parts, 1.0), now)
        self._own.fill(max(self._whole.level(now) / parts, 1.0), now)
