"""Comparison of two runs, and floors for means: which run is better, and whether a mean is high enough to be sure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import Literal, TypeAlias

import numpy as np
from msgspec import Struct

from monitors.offline.results import Measure, Run
from monitors.statistics.confidence_sequence import ALPHA, student

Verdict: TypeAlias = Literal["better", "worse", "cannot tell"]
SMALLEST = 0.02
"""The smallest difference of means worth detecting; `more` is not computed for a smaller one."""

_POWER = 0.8


class Comparison(Struct, frozen=True, kw_only=True):
    """One metric in two runs, over the samples that have a score in both.

    `difference` (new - old) and its 95 % interval are on the metric's own scale; `verdict` allows for its direction.
    `more` is the approximate number of further pairs to detect the observed difference with 80 % probability.
    """

    metric: str
    pairs: int
    old_mean: float | None = None
    new_mean: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: Verdict = "cannot tell"
    more: int | None = None
    reason: str = ""


def compare(old: Run, new: Run) -> list[Comparison]:
    """Compare `new` with `old`, metric by metric in the order of `new`, paired by the samples' ids."""
    before = {measure.name: measure for measure in old.measures}
    return [_compared(old, new, before[measure.name], measure) for measure in new.measures if measure.name in before]


def unpaired(old: Run, new: Run) -> tuple[int, int]:
    """Return the numbers of samples that only the old run has, and only the new one."""
    left, right = ({row.sample.id for row in run.rows} for run in (old, new))
    return len(left - right), len(right - left)


def _compared(old: Run, new: Run, before: Measure, after: Measure) -> Comparison:
    was, now = ({row.sample.id: row.score(after.name) for row in run.rows} for run in (old, new))
    pairs = [(was[name], now[name]) for name in now if None not in (was.get(name), now[name])]
    if not pairs:
        return Comparison(metric=after.name, pairs=0, reason="no sample has a score in both")
    x = np.array(pairs, dtype=np.float64)
    differences = x[:, 1] - x[:, 0]
    low, high = bounded_difference(differences.tolist())
    verdict, reason = _verdict(low, high, before, after)
    if not reason and not differences.any():
        reason = "no sample's score differs"
    return Comparison(
        metric=after.name,
        pairs=len(pairs),
        old_mean=float(x[:, 0].mean()),
        new_mean=float(x[:, 1].mean()),
        difference=float(differences.mean()),
        low=low,
        high=high,
        verdict=verdict,
        more=_more(differences.tolist()) if verdict == "cannot tell" and not reason else None,
        reason=reason,
    )


def _verdict(low: float, high: float, before: Measure, after: Measure) -> tuple[Verdict, str]:
    changed = []
    if before.version != after.version:
        changed.append(f"the metric changed: version {before.version} before, {after.version} after")
    if before.judge != after.judge:
        changed.append(f"the judge changed: {before.judge} before, {after.judge} after")
    if changed:
        return "cannot tell", "; ".join(changed)
    if low <= 0.0 <= high:
        return "cannot tell", ""
    return ("better" if (low > 0.0) != after.lower_is_better else "worse"), ""


def _more(differences: Sequence[float]) -> int:
    """Return the number of further pairs needed: n = (z_alpha/2 + z_power)^2 s^2 / d^2, d at least `SMALLEST`."""
    x = np.asarray(differences)
    seen = max(SMALLEST, abs(float(x.mean())))
    variance = (1.0 + float(((x - x.mean()) ** 2).sum())) / (len(x) + 1)  # as in the interval: one pair of a coin
    z = NormalDist().inv_cdf(1.0 - ALPHA / 2.0) + NormalDist().inv_cdf(_POWER)
    return max(1, math.ceil(z * z * variance / seen**2) - len(x))


def bounded_mean(values: Sequence[float]) -> tuple[float, float]:
    """Return a two-sided interval for the mean of values in [0, 1].

    Wilson's interval with the observed dispersion: the bounds are the m that solve

        (x - m)^2 = t^2 r m (1 - m) / n,     r = (1 + sum (x_i - x)^2 / (x (1 - x))) / (n + 1)

    where x is the mean and t Student's quantile. r is the share of a coin's variance that the values have: 1 for zeros
    and ones, which gives Wilson's interval, less for what lies between; one more value of a coin keeps equal values
    from an interval without width. Simulated for n of 5 to 400, for smooth scores, for scores with spikes at 0 and 1,
    and for coins: it covers 93 % or more, where Student's interval falls to 88 % and less near the ends. Where nearly
    all scores lie in one place and few far below it covers less: 78 % at n = 15 (.95, or .1 in one of ten). For means
    of scores there is `closed_window`; this is for paired differences.
    Reference: E. B. Wilson (1927), JASA 22, 209-212.

    Raises ValueError without values, or for one outside [0, 1].

    >>> [round(bound, 3) for bound in bounded_mean([1.0] * 18 + [0.0] * 2)]
    [0.682, 0.974]
    >>> [round(bound, 3) for bound in bounded_mean([0.8, 0.9, 0.85, 0.9] * 5)]
    [0.818, 0.898]
    """
    x = np.asarray(values, dtype=np.float64)
    if not x.size or not (np.isfinite(x).all() and x.min() >= 0.0 and x.max() <= 1.0):
        raise ValueError("an interval needs at least one value, all of them in [0, 1]")
    n, mean = x.size, float(x.mean())
    coin = mean * (1.0 - mean)
    dispersion = min(1.0, float(x.var()) / coin) if coin > 0.0 else 1.0
    k = student(ALPHA, n - 1) ** 2 * (1.0 + n * dispersion) / (n + 1) / n if n > 1 else math.inf
    if math.isinf(k):
        return 0.0, 1.0
    centre, half = (mean + k / 2.0) / (1.0 + k), math.sqrt(k * coin + k * k / 4.0) / (1.0 + k)
    return max(0.0, min(mean, centre - half)), min(1.0, max(mean, centre + half))


def bounded_difference(differences: Sequence[float]) -> tuple[float, float]:
    """Return a two-sided interval for the mean of paired differences in [-1, 1]: `bounded_mean` of (d + 1)/2.

    >>> [round(bound, 3) for bound in bounded_difference([0.1, 0.0, 0.2, 0.1] * 10)]
    [0.045, 0.154]
    """
    low, high = bounded_mean([(difference + 1.0) / 2.0 for difference in differences])
    return 2.0 * low - 1.0, 2.0 * high - 1.0


MAX_FAILED = 0.1
"""A floor counts as missed if the metric failed on more than this share of the samples."""


class Floor(Struct, frozen=True, kw_only=True):
    """A checked floor. `bound` is the end of the interval it was compared with, None without scores."""

    metric: str
    limit: float
    bound: float | None
    met: bool
    reason: str


def parse_floors(text: str) -> dict[str, float]:
    """Read `faithfulness=0.8,hallucination=0.1`. Raises ValueError.

    >>> parse_floors("faithfulness=0.8, hallucination=0.1")
    {'faithfulness': 0.8, 'hallucination': 0.1}
    """
    floors: dict[str, float] = {}
    for part in filter(None, (pair.strip() for pair in text.split(","))):
        name, equals, number = part.rpartition("=")
        try:
            limit = float(number)
        except ValueError:
            limit = -1.0
        if not (equals and name.strip() and 0.0 <= limit <= 1.0):
            raise ValueError(f"{part!r}: expected metric=number, the number in [0, 1]")
        floors[name.strip()] = limit
    return floors


def check_floors(run: Run, floors: Mapping[str, float], *, max_failed: float = MAX_FAILED) -> list[Floor]:
    """Hold each floor against the lower 95 % bound of its metric's mean; where 0 is best, against the upper one.

    Raises ValueError for a metric that was not computed.
    """
    known = {measure.name for measure in run.measures}
    if unknown := [name for name in floors if name not in known]:
        raise ValueError(f"{unknown[0]!r} was not computed; there are {', '.join(sorted(known)) or 'no metrics'}")
    return [_judged(run, metric, limit, max_failed) for metric, limit in floors.items()]


def any_missed(floors: Iterable[Floor]) -> bool:
    """Return whether any floor is missed."""
    return any(not floor.met for floor in floors)


def _judged(run: Run, metric: str, limit: float, max_failed: float) -> Floor:
    lower = run.measure(metric).lower_is_better
    summary = next(known for known in run.summary if known.metric == metric)
    bound = summary.high if lower else summary.low
    if bound is None or summary.mean is None:
        return Floor(metric=metric, limit=limit, bound=None, met=False, reason="no sample has a score")
    if summary.failed_share > max_failed:
        reason = f"failed on {summary.failed_share:.0%} of the samples, more than {max_failed:.0%}"
        return Floor(metric=metric, limit=limit, bound=bound, met=False, reason=reason)
    met = bound <= limit if lower else bound >= limit
    side, relation = ("upper", "above") if lower else ("lower", "below")
    reason = f"the {side} 95 % bound is {bound:.3f}" + ("" if met else f", {relation} {limit:g}")
    unsure = summary.mean <= limit if lower else summary.mean >= limit
    if not met and unsure:
        reason += f" (the mean, {summary.mean:.3f}, reaches it; {_few(summary.n)} to be sure)"
    return Floor(metric=metric, limit=limit, bound=bound, met=met, reason=reason)


def _few(n: int) -> str:
    return "1 score is too few" if n == 1 else f"{n} scores are too few"
