"""Simulation of detection delays and false alarms on traffic like the captured one. Pure: no clock, no I/O.

Streams come from a block bootstrap: runs of consecutive hours of captured scores, each from a random day but at its own
time of day, which preserves daily cycles, bursts and the correlation of neighbouring scores.
Reference: Kunsch (1989), Ann. Stat. 17 (the moving-block bootstrap).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from gaugeway.storage.stores import Point
from monitors.alerting.detectors import Baseline, Bucket
from monitors.alerting.detectors.baselines import EDGE
from monitors.alerting.stream import HOUR_S, on_scale, usable
from monitors.statistics import eprocess
from monitors.statistics.dependence import SerialDependence
from monitors.statistics.eprocess import Array

MONTH_S = 30 * 86_400.0
DAY_HOURS, BLOCK = 24, 6
LEAST_SCORES, LEAST_HOURS = 200, 6
DROPS = (0.02, 0.05, 0.10, 0.20)
LONGEST_SCORES, LONGEST_HOURS = 20_000, 28 * 24  # internal bound: commands an operator runs on a data set
"""Limits of the search: longer delays count as not found."""
LONGEST_LEARNING_HOURS = 60 * 24  # internal bound: commands an operator runs on a data set
Law: TypeAlias = Literal["beta", "llm", "binary"]
Ints: TypeAlias = NDArray[np.int64]
_MEAN = 0.85


class Traffic(Struct, frozen=True):
    """Scores of consecutive hours, higher is better: hour h has `lengths[h]` scores from index `begins[h]`.

    `at` is the seconds since the start of the hour, `weights` the smallest rate over a score's own. Hours a multiple of
    24 apart are at the same time of day. `independent` scores are drawn singly, not by the hour.
    """

    x: Array
    weights: Array
    at: Array
    begins: Ints
    lengths: Ints
    independent: bool = False

    @property
    def hours(self) -> int:
        """The number of hours."""
        return len(self.lengths)

    @property
    def per_hour(self) -> float:
        """Scores per hour."""
        return self.x.size / self.hours

    @property
    def mean(self) -> float:
        """The weighted mean."""
        return float((self.x * self.weights).sum() / self.weights.sum())


class Setting(Struct, frozen=True, kw_only=True):
    """A simulated setting: `budget_per_s` is the stream's share of the budget, `rate` scales the judged answers.

    `baseline` builds the baseline, without a tolerance; for an SLO it is `Fixed`.
    """

    name: str
    tolerance: float
    budget_per_s: float
    baseline: Callable[[], Baseline]
    rate: float = 1.0


class Found(Struct, frozen=True, kw_only=True):
    """The delay to detect a drop, as median and 90 % quantile; None beyond the limits."""

    drop: float
    scores: int | None
    scores_90: int | None
    seconds: float | None
    seconds_90: float | None


class Simulated(Struct, frozen=True, kw_only=True):
    """The result of a setting: false `alarms` in `months` of 30 days, and the budget per month (`promised`).

    `m0` is the average baseline, None if it was never learned.
    """

    setting: Setting
    m0: float | None
    alarms: int
    months: float
    promised: float
    found: tuple[Found, ...]


class Plan(Struct, frozen=True, kw_only=True):
    """The extent of the simulation: `streams` of `days` without a drop, then `changes` drops of every size on each."""

    streams: int = 16
    days: int = 30
    changes: int = 6
    bucket_s: float = 60.0
    seed: int = 1
    drops: tuple[float, ...] = DROPS


def traffic_of(points: Iterable[Point], *, flipped: bool) -> Traffic:
    """Build traffic from the scores of whole hours. Raises ValueError for fewer than 200 scores or 6 hours."""
    chosen = sorted(filter(usable, points), key=lambda point: point.started_at)
    times = np.array([point.started_at for point in chosen])
    if not chosen:
        raise ValueError("there are no scores")
    hours = np.floor(times / HOUR_S).astype(np.int64)
    # the first and the last hour are incomplete
    inside = (hours > hours[0]) & (hours < hours[-1])
    if inside.sum() < LEAST_SCORES or hours[-1] - hours[0] - 1 < LEAST_HOURS:
        raise ValueError(
            f"not enough data: {int(inside.sum())} scores in {max(0, int(hours[-1] - hours[0]) - 1)} full hours; "
            f"needs {LEAST_SCORES} in {LEAST_HOURS}"
        )
    rates = np.array([point.rate for point in chosen])
    x = np.array([on_scale(point.value or 0.0, flipped=flipped) for point in chosen])[inside]
    lengths = np.bincount(hours[inside] - hours[0] - 1, minlength=int(hours[-1] - hours[0]) - 1)
    return _traffic(x, rates[inside].min() / rates[inside], times[inside] % HOUR_S, lengths)


def preset(law: Law, per_minute: float, seed: int = 1) -> Traffic:
    """Build synthetic stationary traffic of mean .85, with scores of sd .12 ("beta"), .27 ("llm") or .36 ("binary").

    >>> traffic = preset("binary", per_minute=10.0)
    >>> round(traffic.mean, 2), round(traffic.per_hour / 60)
    (0.85, 10)
    """
    if not per_minute > 0.0:
        raise ValueError(f"the rate must be positive, got {per_minute!r}")
    rng = np.random.default_rng(seed)
    lengths = rng.poisson(60.0 * per_minute, 7 * DAY_HOURS)
    n = int(lengths.sum())
    x: Array
    if law == "beta":
        x = rng.beta(7.854 * _MEAN, 7.854 * (1.0 - _MEAN), n)
    elif law == "llm":
        x = np.concatenate([np.zeros(6 * n // 100), np.ones(60 * n // 100)])
        x = np.concatenate([x, rng.beta(4.73 * 0.735, 4.73 * 0.265, n - x.size)])
    else:
        x = (np.arange(n) < _MEAN * n).astype(np.float64)
    inside = (x > 0.0) & (x < 1.0)
    # shift the sample to the exact mean of the law: false alarms are counted at the boundary
    x[inside] = np.clip(x[inside] + (_MEAN - x.mean()) * n / max(1, inside.sum()), 0.0, 1.0)
    drawn = _traffic(x, np.ones(n), rng.uniform(0.0, HOUR_S, n), lengths)
    return replace(drawn, independent=True)


def simulate(traffic: Traffic, settings: Sequence[Setting], plan: Plan) -> Iterator[Simulated]:
    """Simulate each setting on the same streams."""
    for setting in settings:
        yield _Run(traffic, setting, plan).result()


class _Snapshot(Struct):
    """The streams just before a drop: the evidence so far, and m0 and its variance by hour of the day."""

    hour: int
    log_m: Array
    m0: Array
    variance: Array


class _Scored(NamedTuple):
    """Stream, score, weight and bucket of every score of an hour, sorted by stream and bucket."""

    stream: Ints
    x: Array
    w: Array
    bucket: Ints


class _Run:
    """The simulation of one setting: months without a drop, with snapshots at which drops of every size begin."""

    def __init__(self, traffic: Traffic, setting: Setting, plan: Plan) -> None:
        self._traffic, self._setting, self._plan = traffic, setting, plan
        self._bets = eprocess.bets()
        self._buckets = max(1, round(HOUR_S / plan.bucket_s))
        self._log_start = math.log(setting.budget_per_s * HOUR_S / self._buckets)
        self._rng = np.random.default_rng(plan.seed)
        dependence = SerialDependence()
        dependence.add(traffic.x.tolist(), traffic.weights.tolist())
        self._effect = 1.0 if traffic.independent else dependence.design_effect

    def result(self) -> Simulated:
        alarms, watched, m0s, snapshots = self._calm()
        found = tuple(self._delays(drop, snapshots) for drop in self._plan.drops)
        return Simulated(
            setting=self._setting,
            m0=float(np.mean(m0s)) if m0s else None,
            alarms=alarms,
            months=watched * HOUR_S / MONTH_S,
            promised=self._setting.budget_per_s * MONTH_S,
            found=found,
        )

    def _calm(self) -> tuple[int, int, list[float], list[_Snapshot]]:
        """Return the alarms, the hours with a known m0, its values, and snapshots from the second half."""
        plan, streams = self._plan, self._plan.streams
        hours = plan.days * DAY_HOURS
        # drops begin at any time of day
        moments = {hours // 2 + int(hour) for hour in self._rng.choice(hours - hours // 2, plan.changes, replace=False)}
        baselines = [self._setting.baseline() for _ in range(streams)]
        log_m = np.full((streams, len(self._bets)), eprocess.EMPTY)
        alarms, watched, calm, m0s = 0, 0, 0, []
        snapshots: list[_Snapshot] = []
        for hour, chosen in enumerate(self._days(streams, 0)):
            m0 = self._m0(baselines, hour)
            learned = ~np.isnan(m0)
            calm += bool(learned.all()) or hour >= LONGEST_LEARNING_HOURS
            if calm > hours:
                break
            if calm in moments:
                ahead = np.stack([self._m0(baselines, hour + later) for later in range(DAY_HOURS)])
                spread = np.stack([self._variance(baselines, hour + later) for later in range(DAY_HOURS)])
                whole = ~np.isnan(ahead).any(axis=0)
                snapshots.append(_Snapshot(hour, log_m[whole], ahead[:, whole], spread[:, whole]))
            scored = self._scores(chosen)
            log_m, _, count = self._watch(log_m, m0, self._variance(baselines, hour), scored)
            alarms, watched = alarms + count, watched + int(learned.sum())
            m0s += m0[learned].tolist()
            _learn(baselines, hour, scored, self._effect)
        return alarms, watched, m0s, snapshots

    def _delays(self, drop: float, snapshots: Sequence[_Snapshot]) -> Found:
        """Simulate drops: a share of the scores becomes 0, so that the mean falls by `drop`; m0 is frozen."""
        lost = min(1.0, drop / self._traffic.mean)
        scores: list[float] = []
        seconds: list[float] = []
        for snapshot in snapshots:
            streams = len(snapshot.log_m)
            log_m, seen = snapshot.log_m, np.zeros(streams)
            open_ = np.ones(streams, dtype=bool)
            for later, chosen in zip(range(LONGEST_HOURS), self._days(streams, snapshot.hour), strict=False):
                if not open_.any() or seen[open_].min() > LONGEST_SCORES:
                    break
                scored = self._scores(chosen, open_)
                stream = scored.stream
                scored = scored._replace(x=np.where(self._rng.random(stream.size) < lost, 0.0, scored.x))
                at = later % DAY_HOURS
                log_m, first, _ = self._watch(log_m, snapshot.m0[at], snapshot.variance[at], scored)
                found = open_ & (first < self._buckets)
                until = np.bincount(stream[scored.bucket <= first[stream]], minlength=streams)
                scores += (seen + until)[found].tolist()
                seconds += (later * HOUR_S + (first[found] + 1) * HOUR_S / self._buckets).tolist()
                seen += np.bincount(stream, minlength=streams)
                open_ &= ~found
            scores += [math.inf] * int(open_.sum())
            seconds += [math.inf] * int(open_.sum())
        half, most = _quantiles(scores)
        half_s, most_s = _quantiles(seconds)
        whole = [None if end is None else round(end) for end in (half, most)]
        return Found(drop=drop, scores=whole[0], scores_90=whole[1], seconds=half_s, seconds_90=most_s)

    def _m0(self, baselines: Sequence[Baseline], hour: int) -> Array:
        """Return m0 by stream; NaN while it is being learned."""
        bounds = [baseline.m0(hour * HOUR_S) for baseline in baselines]
        known = np.array([np.nan if bound is None else bound - self._setting.tolerance for bound in bounds])
        kept: Array = np.clip(known, EDGE, 1.0 - EDGE)
        return kept

    @staticmethod
    def _variance(baselines: Sequence[Baseline], hour: int) -> Array:
        return np.array([baseline.variance(hour * HOUR_S) for baseline in baselines])

    def _days(self, streams: int, start: int) -> Iterator[Ints]:
        """Yield, for each hour from `start` on, the captured hour that each stream replays."""
        traffic = self._traffic
        block = min(BLOCK, traffic.hours)
        begins = np.arange(traffic.hours - block + 1)
        hour = start
        while True:
            same = begins[(begins - hour) % DAY_HOURS == 0]
            chosen = self._rng.choice(same if same.size else begins, streams)
            for step in range(block):
                yield chosen + step
            hour += block

    def _scores(self, chosen: Ints, open_: NDArray[np.bool_] | None = None) -> _Scored:
        """Return the scores of each stream in its chosen hour; none for closed streams."""
        traffic, rate = self._traffic, self._setting.rate
        lengths = traffic.lengths[chosen] if open_ is None else traffic.lengths[chosen] * open_
        stream = np.repeat(np.arange(len(chosen)), lengths)
        place = np.arange(len(stream)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        index = place + np.repeat(traffic.begins[chosen], lengths)
        if rate < 1.0:
            kept = self._rng.random(len(index)) < rate
            stream, index = stream[kept], index[kept]
        elif rate > 1.0:
            # resample the hour: more of its answers are judged
            extra = np.repeat(np.arange(len(stream)), self._rng.poisson(rate - 1.0, len(stream)))
            again = (self._rng.random(len(extra)) * lengths[stream[extra]]).astype(np.int64)
            stream = np.concatenate([stream, stream[extra]])
            index = np.concatenate([index, traffic.begins[chosen[stream[len(index) :]]] + again])
        bucket = np.minimum(self._buckets - 1, (traffic.at[index] * self._buckets / HOUR_S).astype(np.int64))
        order = np.lexsort((bucket, stream))
        if traffic.independent:
            index = self._rng.integers(traffic.x.size, size=index.size)
        return _Scored(stream[order], traffic.x[index][order], traffic.weights[index][order], bucket[order])

    def _watch(self, log_m: Array, m0: Array, variance: Array, scored: _Scored) -> tuple[Array, Ints, int]:
        """Run e-SR over an hour for all streams; return the new state, first alarm per stream, and number of alarms.

        The first alarm is a bucket number, `buckets` if there is none. An alarm resets M to 0.
        """
        stream, x, w, bucket = scored
        streams, buckets = len(m0), self._buckets
        first, count = np.full(streams, buckets), 0
        usable_ = ~np.isnan(m0[stream])
        stream, x, w, bucket = stream[usable_], x[usable_], w[usable_], bucket[usable_]
        flat = np.zeros((streams * buckets, len(self._bets)))
        if x.size:
            mean = m0[stream]
            logs = eprocess.log_factors(w * (mean - x) / (1.0 - mean), self._bets) / self._effect
            keys = stream * buckets + bucket
            edges = np.flatnonzero(np.diff(keys, prepend=-1))
            flat[keys[edges]] = np.add.reduceat(logs, edges, axis=0)
        there = np.bincount(stream * buckets + bucket, minlength=streams * buckets).reshape(streams, buckets) > 0
        sums = flat.reshape(streams, buckets, -1) - self._cost(m0, variance, keys=stream * buckets + bucket, weights=w)
        for number in range(buckets):
            moved = eprocess.shiryaev_roberts(log_m, sums[:, number], self._log_start)
            log_m = np.where(there[:, number, None], moved, log_m)
            hit = there[:, number] & (eprocess.log_mean(log_m) >= 0.0)
            if hit.any():
                first[hit] = np.minimum(first[hit], number)
                log_m[hit] = eprocess.EMPTY
                count += int(hit.sum())
        return log_m, first, count

    def _cost(self, m0: Array, variance: Array, *, keys: Ints, weights: Array) -> Array:
        """Return what the bets pay for the variance of m0: (streams, buckets, bets), as in `MixtureESR`."""
        shape = len(m0), self._buckets
        until = np.bincount(keys, weights, minlength=shape[0] * shape[1]).reshape(shape).cumsum(axis=1)
        squares = np.diff(until**2, axis=1, prepend=0.0)
        slopes = np.where(np.isnan(m0), 0.0, 1.0 / (1.0 - m0))[:, None] * self._bets / self._effect
        cost: Array = (squares * variance[:, None] / 2.0)[..., None] * (slopes * slopes)[:, None, :]
        return cost


def _learn(baselines: Sequence[Baseline], hour: int, scored: _Scored, effect: float) -> None:
    """Update each baseline with an hour at once, so m0 is known up to an hour late."""
    ends = np.searchsorted(scored.stream, np.arange(len(baselines) + 1)).tolist()
    for baseline, (begin, end) in zip(baselines, pairwise(ends), strict=True):
        if end > begin:
            x, w = (tuple(values[begin:end].tolist()) for values in (scored.x, scored.w))
            taken = Bucket(start=hour * HOUR_S, seconds=HOUR_S, scores=x, weights=w, design_effect=effect)
            baseline.update(taken)


def _traffic(x: Array, weights: Array, at: Array, lengths: NDArray[np.integer[Any]]) -> Traffic:
    counts = lengths.astype(np.int64)
    return Traffic(x=x, weights=weights, at=at, begins=np.cumsum(counts) - counts, lengths=counts)


def _quantiles(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the median and the 90 % quantile; None beyond the limits."""
    if not values:
        return None, None
    ordered = sorted(values)
    pair = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.9))
    half, most = (seconds if math.isfinite(seconds) else None for seconds in pair)
    return half, most
