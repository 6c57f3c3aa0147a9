"""Baselines: an SLO, a forecast of the hour's mean, or a lower bound of the mean, learned from the stream.

From a learned m0 a tolerance is subtracted. Each is fixed before the scores that are compared with it are seen
(docs/explanation/alerts.md#baselines).
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from monitors.alerting.detectors import Baseline, Bucket
from monitors.statistics.betting_bounds import RunningLower, Spread, WindowLower, packed, unpacked
from monitors.statistics.eprocess import Array, checked
from monitors.statistics.hourly_forecast import Forecast, HourlyForecast, Variation

WINDOW, LAG, LEVEL = 2000, 1000, 0.95
HOUR_S = 3600.0
LEAST_IN_HOUR = 20.0
"""Independent scores that a mean is made of: an hour with fewer is joined with the next ones."""
MOST_HELD = 168  # internal bound: an alert of a week
LEARNED = 24
"""Hours of an alert that are learned once it is over: what passes within a day may be the time of day. Those of a
longer alert, up to 168, are learned if they come back a week later."""
_VARIANCE_HORIZON = 2_000.0
_SUMS = 4
VARIATIONS: Mapping[str, Variation] = {
    "metric": Variation(season=0.01, weekday=0.015, hour=0.01),
    "signal": Variation(season=0.06, weekday=0.08, hour=0.03),
}
"""What is assumed of the hours of judged scores and of signals, until it is learned: latency, passages and declines
follow the traffic, and a signal has a value of every exchange, so that caution costs little."""
CHECKPOINTS = 20
EDGE, _NEXT_TO_NOTHING = 1e-3, 1e-9


class _Saved(ABC):
    """A baseline that is saved with what it is for: its kind and its options, without which its state means nothing."""

    KIND: ClassVar[str]
    OPTIONS: ClassVar[tuple[str, ...]]
    tolerance: float = 0.0

    def expected(self, at: float) -> Forecast | None:
        """Return the forecast of the mean at Unix time `at`; None for an SLO and for a lower bound."""
        del at
        return None

    def variance(self, at: float) -> float:
        expected = self.expected(at)
        return 0.0 if expected is None else expected.variance

    def hold(self, bucket: Bucket) -> None:
        """Forget a bucket during an alert: a bound does not change then."""
        del bucket

    def release(self) -> None:  # noqa: B027 - what holds nothing has nothing to do
        """Do nothing: nothing was held."""

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
        return _lowered(self._bound, self.tolerance)

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
        return _lowered(self.bound, self.tolerance) if self._running.n >= self.n0 else None

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


class Forecasted(_Saved):
    """The default: a forecast of the hour's mean from the time of day, the weekday and the last hours.

    Known from `n0` scores on, and honest about the hours that it has not seen: the detector pays for the forecast's
    variance. The tolerance is subtracted. Of what is watched in both directions neither is an improvement (`improves`):
    a fault would be the level that its end is compared with. Hours of fewer than 20 independent scores are joined with
    the next ones.

    >>> baseline = Forecasted(n0=200)
    >>> for i in range(20):
    ...     baseline.update(Bucket(start=60.0 * i, seconds=60.0, scores=(0.9, 0.8) * 5, weights=(1.0,) * 10))
    >>> round(baseline.m0(at=1200.0), 3), baseline.variance(at=1200.0) < baseline.variance(at=43_200.0) < 1e-3
    (0.85, True)
    """

    KIND, OPTIONS = "forecast", ("n0", "variation")

    def __init__(
        self, n0: int = WINDOW, *, tolerance: float = 0.0, variation: str = "metric", improves: bool = True
    ) -> None:
        self.n0, self.tolerance, self.variation, self.improves = n0, tolerance, variation, improves
        self.rebaseline()

    def rebaseline(self) -> None:
        self._n = 0
        self._hour: int | None = None
        self._sums = np.zeros(_SUMS)  # of w, w^2, w x, w x^2; the squared weights serve the standard error
        self._effect = 1.0
        self._variance: float | None = None
        self._forecast: HourlyForecast | None = None
        self._next: tuple[int, Forecast] | None = None
        self._held: list[tuple[int, float, float]] | None = None  # hours during an alert; None without one

    def m0(self, at: float) -> float | None:
        expected = self.expected(at)
        return _lowered(None if expected is None else expected.mean, self.tolerance)

    def update(self, bucket: Bucket) -> None:
        scores, weights = _independent(bucket)
        if not scores.size:
            return
        hour = math.floor(bucket.start / HOUR_S)
        w, w2, *_ = self._sums
        if self._hour is not None and hour > self._hour and w and w * w >= LEAST_IN_HOUR * w2:
            self._close()
        self._hour = hour if self._hour is None or not self._sums[0] else self._hour
        self._sums += (weights.sum(), (weights**2).sum(), weights @ scores, weights @ scores**2)
        self._effect = bucket.design_effect
        self._n = min(self.n0, self._n + bucket.count)
        if self._n >= self.n0 and self._forecast is None:
            self._close()

    def hold(self, bucket: Bucket) -> None:
        self._held = [] if self._held is None else self._held
        self.update(bucket)

    def release(self) -> None:
        held, self._held = self._held or [], None
        if self._forecast is not None and len(held) <= MOST_HELD:
            for hour, mean, error2 in held:
                if len(held) <= LEARNED:
                    self._forecast.update(hour, mean, error2, improves=self.improves)
                else:
                    self._forecast.note(hour, mean)
        self._next = None

    def progress(self) -> tuple[int, int]:
        return self._n, self.n0

    def expected(self, at: float) -> Forecast | None:
        if self._forecast is None or self._n < self.n0:
            return None
        hour = math.floor(at / HOUR_S)
        if self._next is None or self._next[0] != hour:
            self._next = hour, self._forecast.at(hour)
        return self._next[1]

    def _close(self) -> None:
        """Give the forecast the mean of the hour that is over."""
        w, w2, wx, wxx = self._sums
        self._sums = np.zeros(_SUMS)
        n, mean = w * w / w2, wx / w
        own = (0.25 + n * max(0.0, wxx / w - mean * mean)) / (n + 1.0)
        known = own if self._variance is None else self._variance
        self._variance = known + (own - known) * min(1.0, n / _VARIANCE_HORIZON)
        if self._forecast is None:
            of = VARIATIONS[self.variation]
            self._forecast = HourlyForecast(of, mean=float(mean), sd=math.sqrt(self._variance))
        error2 = float(self._variance * self._effect / n)
        reading = self._hour or 0, float(mean), error2
        if self._held is None:
            self._forecast.update(*reading, improves=self.improves)
            self._next = None
        elif len(self._held) <= MOST_HELD:
            self._held.append(reading)

    def _state(self) -> dict[str, Any]:
        forecast = None if self._forecast is None else packed(np.array(self._forecast.state))
        hour = {"hour": self._hour, "sums": self._sums.tolist(), "effect": self._effect}
        return {"n": self._n, **hour, "variance": self._variance, "forecast": forecast, "held": self._held}

    def _restore(self, saved: dict[str, Any]) -> None:
        forecast = saved["forecast"]
        self._forecast = None if forecast is None else HourlyForecast.restored(unpacked(forecast, (-1,)).tolist())
        self._n, self._hour, self._variance = saved["n"], saved["hour"], saved["variance"]
        self._held = None if saved["held"] is None else [(hour, mean, error2) for hour, mean, error2 in saved["held"]]
        self._sums, self._effect, self._next = np.array(saved["sums"]), saved["effect"], None


KINDS: Mapping[str, Callable[..., Baseline]] = {
    "fixed": Fixed,
    "window": Window,
    "ratchet": Ratchet,
    "seasonal": Forecasted,
    "auto": Forecasted,
}


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


def _lowered(bound: float | None, tolerance: float) -> float | None:
    """Return the bound minus the tolerance, clipped away from 0 and 1, where the bets are undefined.

    At 0 by next to nothing: no mean is below 0, and none may look as if it were.
    """
    return None if bound is None else min(1.0 - EDGE, max(_NEXT_TO_NOTHING, bound - tolerance))
