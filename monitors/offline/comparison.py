"""Comparison of two runs over the same questions: which is better, or how many more samples are needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, TypeAlias

import numpy as np

from monitors.offline.intervals import bounded_difference
from monitors.offline.results import Measure, Run

Verdict: TypeAlias = Literal["better", "worse", "cannot tell"]
SMALLEST = 0.02
"""The smallest difference of means worth detecting; `more` is not computed for a smaller one."""

_POWER = 0.8
_ALPHA = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
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
    was = {row.sample.id: value for row in old.rows if (value := row.score(after.name)) is not None}
    pairs = [
        (was[row.sample.id], value)
        for row in new.rows
        if (value := row.score(after.name)) is not None and row.sample.id in was
    ]
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
    z = NormalDist().inv_cdf(1.0 - _ALPHA / 2.0) + NormalDist().inv_cdf(_POWER)
    return max(1, math.ceil(z * z * variance / seen**2) - len(x))
