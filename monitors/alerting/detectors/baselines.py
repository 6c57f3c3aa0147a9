"""Baselines: an SLO, or a lower bound of the mean learned from the stream, with a learned margin below it.

A learned m0 is a lower confidence bound of the mean minus a tolerance, which preserves the guarantee of the detector
(docs/explanation/alerts.md#baselines). Each is fixed before the scores that are compared with it are seen.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from monitors.alerting.detectors import Baseline, Bucket
from monitors.statistics.betting_bounds import RunningLower, Spread, WindowLower, packed, unpacked
from monitors.statistics.eprocess import Array, checked

NARROWEST, WIDEST = 0.02, 0.05
"""The margin without any variation, and with much of it, or before there are enough hours."""
HOURS_KEPT, HOURS_NEEDED = 168, 24
LAG_HOURS = 6
"""The latest hours do not count: a drop must not widen the margin that it is judged by."""
LEAST_SCORES = 30
"""Independent scores an hour needs to count."""
_SPREAD, _SIGMAS = 2.0, 2.5
_HOUR_S = 3600.0
_SUMS = 4


class HourlyMargin:
    """The margin of a stream, from the means m of its hours and their standard errors s.

    The true means vary by tau^2 = var(m) - mean(s^2), and the lowest is max(mean(m) - m - 2.5 s) below the average.
    The margin is the larger of 2 tau and that, within [.02, .05]; .05 until 24 hours with 30 scores are 6 hours old.
    It is fixed before the scores it is applied to are seen.

    >>> margin = HourlyMargin()
    >>> scores, weights = np.tile([0.8, 1.0], 50), np.ones(100)
    >>> for hour in range(40):
    ...     margin.update(3600.0 * hour, scores, weights)
    >>> margin.value
    0.02
    >>> for hour in range(40, 90):
    ...     margin.update(3600.0 * hour, scores - (0.1 if hour % 24 < 8 else 0.0), weights)
    >>> margin.value
    0.05
    """

    def __init__(self) -> None:
        self._hour: int | None = None
        self._sums = np.zeros(_SUMS)  # of w, w^2, w x, w x^2; the squared weights serve the standard error
        self._past: list[tuple[float, float, float]] = []  # hour, mean, squared standard error
        self._value = WIDEST

    @property
    def value(self) -> float:
        """The margin for the scores that come next."""
        return self._value

    def update(self, start: float, scores: Array, weights: Array) -> None:
        """Take in the scores of a bucket that began at Unix time `start`."""
        if not scores.size:
            return
        hour = math.floor(start / _HOUR_S)
        if self._hour is not None and hour > self._hour:
            self._close(hour)
        self._hour = hour if self._hour is None else max(hour, self._hour)
        self._sums += (weights.sum(), (weights**2).sum(), weights @ scores, weights @ scores**2)

    def _close(self, now: int) -> None:
        w, w2, wx, wxx = self._sums
        self._sums = np.zeros(_SUMS)
        if w2 > 0.0 and w * w / w2 >= LEAST_SCORES:
            mean = wx / w
            variance = max(wxx / w - mean * mean, 0.25 / (w * w / w2))
            self._past.append((float(self._hour or 0), float(mean), float(variance * w2 / (w * w))))
            del self._past[:-HOURS_KEPT]
        self._value = margin_of((mean, error2) for hour, mean, error2 in self._past if hour <= now - LAG_HOURS)

    def dumps(self) -> str:
        """Return the state, under 6 kB."""
        hour = math.nan if self._hour is None else float(self._hour)
        past = [value for reading in self._past for value in reading]
        return packed(np.array([hour, self._value, *self._sums, *past]))

    def loads(self, state: str) -> None:
        """Restore a state. Raises ValueError."""
        hour, value, *rest = unpacked(state, (-1,)).tolist()
        self._hour = None if math.isnan(hour) else int(hour)
        self._sums, self._value = np.array(rest[:_SUMS]), value
        past = iter(rest[_SUMS:])
        self._past = list(zip(past, past, past, strict=True))


def margin_of(hours: Iterable[tuple[float, float]]) -> float:
    """Return the margin from the means of hours and their squared standard errors.

    >>> margin_of([(0.9, 1e-4)] * 23), margin_of([(0.9, 1e-4)] * 24)
    (0.05, 0.02)
    """
    known = np.array(list(hours), dtype=np.float64).reshape(-1, 2)
    if len(known) < HOURS_NEEDED:
        return WIDEST
    means, errors2 = known.T
    between = math.sqrt(max(0.0, float(means.var(ddof=1) - errors2.mean())))
    lowest = float((means.mean() - means - _SIGMAS * np.sqrt(errors2)).max())
    return min(WIDEST, max(NARROWEST, _SPREAD * between, lowest))


WINDOW, LAG, LEVEL = 2000, 1000, 0.95
HOURS, HOUR_S, DAYS, DAY_S = 24, 3600.0, 7, 86_400.0
LEAST_IN_HOUR = 1000
"""Scores an hour of the day needs before `Auto` uses its bound: a looser bound would hide more drops than it prevents
false alarms."""
CHECKPOINTS = 20
EDGE = 1e-3


class _Saved(ABC):
    """A baseline that is saved with what it is for: its kind and its options, without which its state means nothing."""

    KIND: ClassVar[str]
    OPTIONS: ClassVar[tuple[str, ...]]
    tolerance: float | None = 0.0

    @property
    def margin(self) -> float:
        """How far the mean may fall below the bound before it is a drop."""
        return self.tolerance or 0.0

    def dumps(self) -> str:
        return json.dumps({"for": self._identity(), "state": self._state()}, separators=(",", ":"))

    def loads(self, state: str) -> None:
        saved = json.loads(state)
        if saved.get("for") != self._identity():
            raise ValueError(f"this state belongs to another baseline than {self._identity()}")
        self._restore(saved["state"])

    @abstractmethod
    def _state(self) -> Any:
        """Return what was learned."""

    @abstractmethod
    def _restore(self, saved: Any) -> None:
        """Restore a state from `_state`."""

    def _identity(self) -> dict[str, Any]:
        return {"kind": self.KIND} | {name: getattr(self, name) for name in self.OPTIONS}


class Fixed(_Saved):
    """An SLO: a configured mean, known from the start.

    >>> Fixed(0.85).m0(at=0.0)
    0.85
    """

    KIND, OPTIONS = "fixed", ("slo",)

    def __init__(self, slo: float) -> None:
        if not 0.0 < slo < 1.0:
            raise ValueError(f"an SLO lies in (0, 1), got {slo!r}")
        self.slo = slo

    def m0(self, at: float) -> float | None:
        del at
        return self.slo

    def update(self, bucket: Bucket) -> None:
        del bucket

    def progress(self) -> tuple[int, int]:
        return 0, 0

    def rebaseline(self) -> None:
        """Do nothing: an SLO is not learned."""

    def _state(self) -> None:
        return None

    def _restore(self, saved: None) -> None:
        del saved


class Window(_Saved):
    """The betting lower bound of the first `n0` scores; later scores do not change it.

    The last bucket is used whole, so the window may be a few scores longer.

    >>> baseline = Window(n0=200, tolerance=0.02)
    >>> for i in range(20):
    ...     baseline.update(Bucket(start=60.0 * i, seconds=60.0, scores=(0.9, 0.8) * 5, weights=(1.0,) * 10))
    >>> baseline.progress(), round(baseline.m0(at=1200.0), 3)
    ((200, 200), 0.812)
    """

    KIND, OPTIONS = "window", ("n0", "level", "tolerance")

    def __init__(self, n0: int = WINDOW, *, level: float = LEVEL, tolerance: float = 0.0) -> None:
        self.n0, self.level, self.tolerance = n0, level, tolerance
        self.rebaseline()

    def rebaseline(self) -> None:
        self._learning: WindowLower | None = WindowLower(self.n0, 1.0 - self.level)
        self._bound: float | None = None

    @property
    def bound(self) -> float | None:
        """The lower bound, without the tolerance."""
        return self._bound

    def m0(self, at: float) -> float | None:
        del at
        return _lowered(self._bound, self.margin)

    def update(self, bucket: Bucket) -> None:
        scores, weights = _independent(bucket)
        if self._learning is None or not scores.size:
            return
        self._learning.update(scores, weights)
        if self._learning.n >= self.n0:
            self._bound, self._learning = self._learning.bound(), None

    def progress(self) -> tuple[int, int]:
        return self.n0 if self._learning is None else self._learning.n, self.n0

    def _state(self) -> dict[str, Any]:
        return {"bound": self._bound, "learning": None if self._learning is None else self._learning.dumps()}

    def _restore(self, saved: dict[str, Any]) -> None:
        learning = None
        if saved["learning"] is not None:
            learning = WindowLower(self.n0, 1.0 - self.level)
            learning.loads(saved["learning"])
        self._learning, self._bound = learning, saved["bound"]


class Ratchet(_Saved):
    """The running maximum of the stream's lower confidence bound, `lag` scores ago; it only rises.

    A running maximum does not follow a slow decline. The lag keeps a drop's first scores out of the bound they are
    compared with. Available from `n0` scores on.

    >>> baseline = Ratchet(n0=400, lag=200)
    >>> for i in range(100):
    ...     baseline.update(Bucket(start=60.0 * i, seconds=60.0, scores=(0.9, 0.8) * 5, weights=(1.0,) * 10))
    >>> high = baseline.m0(at=6000.0)
    >>> for i in range(100, 300):
    ...     baseline.update(Bucket(start=60.0 * i, seconds=60.0, scores=(0.5, 0.4) * 5, weights=(1.0,) * 10))
    >>> round(high, 3), baseline.m0(at=18000.0) >= high
    (0.842, True)
    """

    KIND, OPTIONS = "ratchet", ("n0", "lag", "level", "tolerance")

    def __init__(self, n0: int = WINDOW, *, lag: int = LAG, level: float = LEVEL, tolerance: float = 0.0) -> None:
        if lag < 1:
            raise ValueError(f"the lag must be at least one score, got {lag!r}")
        self.n0, self.lag, self.level, self.tolerance = n0, lag, level, tolerance
        self.rebaseline()

    def rebaseline(self) -> None:
        self._running = RunningLower(1.0 - self.level)
        self._spread = Spread()
        # (scores, bound after them), oldest first; the first is at least `lag` scores old once there are that many
        self._past: list[tuple[int, float]] = [(0, 0.0)]

    @property
    def bound(self) -> float | None:
        """The lagged lower bound without the tolerance; None before the first one."""
        return self._past[0][1] or None

    def m0(self, at: float) -> float | None:
        del at
        return _lowered(self.bound, self.margin) if self._running.n >= self.n0 else None

    def update(self, bucket: Bucket) -> None:
        scores, weights = _independent(bucket)
        if not scores.size:
            return
        self._running.update(scores, weights, self._spread.variance)
        self._spread.update(scores, weights)
        n = self._running.n
        if n >= self._past[-1][0] + self.lag / CHECKPOINTS:
            self._past.append((n, self._running.bound))
        while len(self._past) > 1 and self._past[1][0] <= n - self.lag:
            del self._past[0]

    def progress(self) -> tuple[int, int]:
        return min(self._running.n, self.n0), self.n0

    def _state(self) -> dict[str, Any]:
        running, spread = packed(self._running.state), packed(self._spread.state)
        return {"running": running, "spread": spread, "past": packed(np.array(self._past))}

    def _restore(self, saved: dict[str, Any]) -> None:
        running, spread = unpacked(saved["running"], (RunningLower.SIZE,)), unpacked(saved["spread"], (Spread.SIZE,))
        self._past = [(int(n), bound) for n, bound in unpacked(saved["past"], (-1, 2)).tolist()]
        self._running.state, self._spread.state = running, spread


class Seasonal(_Saved):
    """A lower confidence bound for each hour of the day (UTC), from 7 days on; all 24 hold together at `level`.

    Each bound has level 1 - (1 - level)/24 and rises with the hour's scores. None before the 7 days, and for an hour
    with fewer than `least` scores.

    >>> baseline = Seasonal()
    >>> for i in range(7 * 24):
    ...     x = 0.9 if i % 24 < 12 else 0.7
    ...     baseline.update(Bucket(start=3600.0 * i, seconds=3600.0, scores=(x,) * 50, weights=(1.0,) * 50))
    >>> baseline.progress(), baseline.m0(at=0.0) > 0.8 > baseline.m0(at=12 * 3600.0) > 0.6
    ((7, 7), True)
    """

    KIND, OPTIONS = "seasonal", ("least", "level", "tolerance")

    def __init__(self, *, least: int = 100, level: float = LEVEL, tolerance: float = 0.0) -> None:
        self.least, self.level, self.tolerance = least, level, tolerance
        self.rebaseline()

    def rebaseline(self) -> None:
        self._hours = [RunningLower((1.0 - self.level) / HOURS) for _ in range(HOURS)]
        self._spread = Spread()
        self._since: float | None = None
        self._until = 0.0

    def bound(self, at: float) -> float | None:
        """Return the lower bound for the hour of the day of `at`, without the tolerance."""
        hour = self._hours[_hour(at)]
        known = self._since is not None and self._until - self._since >= DAYS * DAY_S
        return hour.bound or None if known and hour.n >= self.least else None

    def m0(self, at: float) -> float | None:
        return _lowered(self.bound(at), self.margin)

    def update(self, bucket: Bucket) -> None:
        scores, weights = _independent(bucket)
        if not scores.size:
            return
        # one variance for all hours keeps the state small; any bet fixed in advance is valid
        self._hours[_hour(bucket.start)].update(scores, weights, self._spread.variance)
        self._spread.update(scores, weights)
        self._since = bucket.start if self._since is None else self._since
        self._until = bucket.start + bucket.seconds

    def progress(self) -> tuple[int, int]:
        return min(DAYS, int((self._until - (self._since or 0.0)) / DAY_S)), DAYS

    def _state(self) -> dict[str, Any]:
        hours, spread = packed(np.array([hour.state for hour in self._hours])), packed(self._spread.state)
        return {"since": self._since, "until": self._until, "hours": hours, "spread": spread}

    def _restore(self, saved: dict[str, Any]) -> None:
        hours, spread = unpacked(saved["hours"], (HOURS, RunningLower.SIZE)), unpacked(saved["spread"], (Spread.SIZE,))
        for hour, values in zip(self._hours, hours, strict=True):
            hour.state = values
        self._spread.state, self._since, self._until = spread, saved["since"], saved["until"]


class Auto(_Saved):
    """The default: the maximum of the window's and the ratchet's bounds, or the hour's bound where that is lower.

    The window and the ratchet have half of 1 - level each, so the flat bound holds at `level`. An hour's bound can only
    lower it, which preserves the guarantee; it is for streams whose mean follows the time of day, and holds at `level`
    too. Without a `tolerance` the margin is learned: what the hourly means of the last week varied by.

    >>> baseline = Auto(n0=200)
    >>> for i in range(20):
    ...     baseline.update(Bucket(start=60.0 * i, seconds=60.0, scores=(0.9, 0.8) * 5, weights=(1.0,) * 10))
    >>> round(baseline.m0(at=1200.0), 3)
    0.828
    """

    KIND, OPTIONS = "auto", ("n0", "lag", "level", "tolerance")

    def __init__(
        self, n0: int = WINDOW, *, lag: int = LAG, level: float = LEVEL, tolerance: float | None = 0.0
    ) -> None:
        self.n0, self.lag, self.level, self.tolerance = n0, lag, level, tolerance
        self._margin = HourlyMargin()
        half = 0.5 + level / 2.0
        self._window = Window(n0, level=half)
        self._ratchet = Ratchet(n0, lag=lag, level=half)
        self._seasonal = Seasonal(least=LEAST_IN_HOUR, level=level)
        self._parts: tuple[Baseline, ...] = (self._window, self._ratchet, self._seasonal)

    @property
    def margin(self) -> float:
        """How far the mean may fall below the bound before it is a drop."""
        return self._margin.value if self.tolerance is None else self.tolerance

    def rebaseline(self) -> None:
        self._margin = HourlyMargin()
        for part in self._parts:
            part.rebaseline()

    def m0(self, at: float) -> float | None:
        flat = self._window.bound
        if flat is None:
            return None
        flat = max(flat, self._ratchet.bound or 0.0)
        hour = self._seasonal.bound(at)
        return _lowered(flat if hour is None else min(flat, hour), self.margin)

    def update(self, bucket: Bucket) -> None:
        for part in self._parts:
            part.update(bucket)
        if self.tolerance is None:
            self._margin.update(bucket.start, *_independent(bucket))

    def progress(self) -> tuple[int, int]:
        return self._window.progress()

    def _state(self) -> dict[str, Any]:
        margin = {} if self.tolerance is not None else {"margin": self._margin.dumps()}
        return {"parts": [json.loads(part.dumps()) for part in self._parts], **margin}

    def _restore(self, saved: dict[str, Any]) -> None:
        for part, own in zip(self._parts, saved["parts"], strict=True):
            part.loads(json.dumps(own))
        if "margin" in saved:  # a release without learned margins saved the same parts
            self._margin.loads(saved["margin"])

    def _identity(self) -> dict[str, Any]:
        return super()._identity() | {"tolerance": WIDEST if self.tolerance is None else self.tolerance}


KINDS: Mapping[str, Callable[..., Baseline]] = {kind.KIND: kind for kind in (Fixed, Window, Ratchet, Seasonal, Auto)}


def build(kind: str, **options: Any) -> Baseline:
    """Build a baseline: `kind` is a key of `KINDS`, `options` its constructor's arguments.

    Raises ValueError for an unknown kind, ValueError or TypeError for options that it does not take.
    """
    if kind not in KINDS:
        raise ValueError(f"a baseline is one of {', '.join(KINDS)}, not {kind!r}")
    return KINDS[kind](**options)


def _independent(bucket: Bucket) -> tuple[Array, Array]:
    """Scores and weights of a bucket, freed of what the earlier scores of their clusters say.

    With the prediction m + c (e - m) of a cluster's next score x, w (x - m - c (e - m)) = w (1 - c) (x' - m), where
    x' = (x - c e)/(1 - c): what the bounds take for scores and weights. x' may lie outside [0, 1], w (1 - c) (x' - m)
    lies in [-1, 1] all the same, and that is what the bounds need.
    """
    scores, weights = checked(bucket.scores, bucket.weights)
    if not any(bucket.shrinkage):
        return scores, weights
    c = np.array(bucket.shrinkage)
    return (scores - c * np.array(bucket.earlier)) / (1.0 - c), weights * (1.0 - c)


def _hour(at: float) -> int:
    return math.floor(at / HOUR_S) % HOURS


def _lowered(bound: float | None, tolerance: float) -> float | None:
    """Return the bound minus the tolerance, clipped away from 0 and 1, where the bets are undefined."""
    return None if bound is None else min(1.0 - EDGE, max(EDGE, bound - tolerance))
