"""A/B comparison on binned scores: the estimates at each look. Pure: no clock, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from gaugeway.storage.stores import Point, ScoreHistogram
from gaugeway.storage.sums import WeightedSums
from monitors.statistics.dependence import design_effects
from monitors.statistics.weighted_mean import Estimate, hajek_from_sums

S = TypeVar("S", Point, ScoreHistogram)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Binned scores of one app and metric, by one judge and metric version; each side in the order of time."""

    app: str
    metric: str
    champion: Sequence[ScoreHistogram]
    challenger: Sequence[ScoreHistogram]
    left_out: int = 0


def parts_of(champion: Iterable[ScoreHistogram], challenger: Iterable[ScoreHistogram]) -> list[Parts]:
    """Pair the comparable scores per app and metric."""
    ordered = [sorted(side, key=lambda histogram: histogram.since) for side in (champion, challenger)]
    return [
        Parts(app=app, metric=metric, champion=a, challenger=b, left_out=left_out)
        for app, metric, a, b, left_out in comparable(*ordered, number=lambda histogram: histogram.n)
    ]


def comparable(
    champion: Iterable[S], challenger: Iterable[S], *, number: Callable[[S], int]
) -> Iterator[tuple[str, str, list[S], list[S], int]]:
    """Yield the app and metric of scores that both sides have, those by one judge and metric version, and how many not.

    Scores by different judges or versions are not comparable: of several the one with the most on both sides is taken.
    """
    sides: list[dict[tuple[str, str], dict[tuple[str, str], list[S]]]] = [{}, {}]
    for streams, scores in zip(sides, (champion, challenger), strict=True):
        for score in scores:
            makers = streams.setdefault((score.app, score.metric), {})
            makers.setdefault((score.version, score.judge or ""), []).append(score)
    for app, metric in sorted(sides[0].keys() & sides[1].keys()):
        both = [streams[app, metric] for streams in sides]
        counts = [{maker: sum(map(number, some)) for maker, some in makers.items()} for makers in both]
        common = sorted(both[0].keys() & both[1].keys())
        chosen = max(common, key=lambda maker: min(count[maker] for count in counts), default=("", ""))
        left_out = sum(n for count in counts for maker, n in count.items() if not common or maker != chosen)
        a, b = (makers[chosen] if common else [] for makers in both)
        yield app, metric, a, b, left_out


def looks_at(parts: Parts, *, flipped: bool) -> list[tuple[Estimate, Estimate]]:
    """Return the estimates of both sides from the scores of the first 1, 2, ... bins of time in which both have some.

    Their design effect is that of the difference where the sides share at least half of the bins, else each side's own.
    """
    sides = _sums(parts.champion, flipped=flipped), _sums(parts.challenger, flipped=flipped)
    starts = sorted(sides[0].keys() | sides[1].keys())
    a, b = (
        np.array([[s.w, s.wx, s.w2, s.w2x, s.w2x2] for s in (side.get(start, WeightedSums()) for start in starts)]).T
        for side in sides
    )
    if 2 * len(sides[0].keys() & sides[1].keys()) >= len(starts):
        effects = [design_effects(a, b)] * 2
    else:
        effects = [design_effects(a), design_effects(b)]
    so_far, found = [WeightedSums(), WeightedSums()], []
    for at, start in enumerate(starts):
        so_far = [total + side.get(start, WeightedSums()) for total, side in zip(so_far, sides, strict=True)]
        x, y = (hajek_from_sums(total) for total in so_far)
        if x is not None and y is not None:
            found.append((with_effect(x, float(effects[0][at + 1])), with_effect(y, float(effects[1][at + 1]))))
    return found


def with_effect(estimate: Estimate, effect: float) -> Estimate:
    """Return the estimate with the larger of its design effect and another.

    >>> with_effect(Estimate(mean=0.5, sd=0.5, n=100, n_eff=50.0, design_effect=2.0), 4.0).n_eff
    25.0
    """
    larger = max(estimate.design_effect, effect)
    return replace(estimate, n_eff=estimate.n_eff * estimate.design_effect / larger, design_effect=larger)


def estimate(parts: Sequence[ScoreHistogram]) -> Estimate | None:
    """Return the mean over all traffic of binned scores; None without scores."""
    return hajek_from_sums(sum(_sums(parts, flipped=False).values(), WeightedSums()))


def _sums(parts: Sequence[ScoreHistogram], *, flipped: bool) -> dict[float, WeightedSums]:
    """Return the sums over the scores by the start of the bin."""
    least = min((histogram.rate for histogram in parts), default=1.0)
    found: dict[float, WeightedSums] = {}
    for part in parts:
        x, x2 = (part.n - part.x, part.n - 2.0 * part.x + part.x2) if flipped else (part.x, part.x2)
        sums = WeightedSums.of_groups(n=part.n, x=x, x2=x2, w=least / part.rate)
        found[part.since] = found.get(part.since, WeightedSums()) + sums
    return found
