"""Floors for means (`--fail-under`): a floor is met if the worse end of the 95 % interval meets it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from monitors.offline.results import Run

MAX_FAILED = 0.1
"""A floor counts as missed if the metric failed on more than this share of the samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """A checked floor. `bound` is the end of the interval it was compared with, None without scores."""

    metric: str
    limit: float
    bound: float | None
    met: bool
    reason: str


def parse(text: str) -> dict[str, float]:
    """Read `faithfulness=0.8,hallucination=0.1`. Raises ValueError.

    >>> parse("faithfulness=0.8, hallucination=0.1")
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


def judge(run: Run, floors: Mapping[str, float], *, max_failed: float = MAX_FAILED) -> list[Floor]:
    """Hold each floor against the lower 95 % bound of its metric's mean; where 0 is best, against the upper one.

    Raises ValueError for a metric that was not computed.
    """
    known = {measure.name for measure in run.measures}
    if unknown := [name for name in floors if name not in known]:
        raise ValueError(f"{unknown[0]!r} was not computed; there are {', '.join(sorted(known)) or 'no metrics'}")
    return [_judged(run, metric, limit, max_failed) for metric, limit in floors.items()]


def missed(floors: Iterable[Floor]) -> bool:
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
