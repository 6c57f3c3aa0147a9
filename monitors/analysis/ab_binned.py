"""Two versions by the counts of their scores: the looks at them, the evidence, the means. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from monitors.statistics.sequential_ab import Verdict
from monitors.statistics.sequential_ab_binned import STEPS, CountedComparison, Counts
from monitors.statistics.weighted_mean import Estimate, WeightedSums
from monitors.storage.stores import ScoreHistogram
from monitors.storage.stores.rollup_windows import hundredths

_FIRST = 20
"""Scores before the first look; from then on there is one whenever all have doubled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The counted scores of one app and metric, of one judge and version of the metric, each side in order of time."""

    app: str
    metric: str
    champion: Sequence[ScoreHistogram]
    challenger: Sequence[ScoreHistogram]
    left_out: int = 0


def parts_of(champion: Iterable[ScoreHistogram], challenger: Iterable[ScoreHistogram]) -> list[Parts]:
    """Bring together what can be compared: per app and metric, what the same judge said of both versions."""
    both = [_by_stream(some) for some in (champion, challenger)]
    found = []
    for app, metric in sorted(both[0].keys() & both[1].keys()):
        sides = [side[app, metric] for side in both]
        makers: list[Counter[tuple[str, str]]] = [Counter() for _ in sides]
        for side, counts in zip(sides, makers, strict=True):
            for one in side:
                counts[_maker(one)] += one.n
        common = makers[0].keys() & makers[1].keys()
        chosen = max(sorted(common), key=lambda maker: min(counts[maker] for counts in makers), default=None)
        a, b = ([one for one in side if _maker(one) == chosen] for side in sides)
        left_out = sum(one.n for side in sides for one in side if _maker(one) != chosen)
        found.append(Parts(app=app, metric=metric, champion=a, challenger=b, left_out=left_out))
    return found


def judged(one: Parts, test: CountedComparison, *, flipped: bool) -> Verdict:
    """Look at the scores in the order of time, whenever there are twice as many."""
    starts: dict[float, int] = {}
    for part in (*one.champion, *one.challenger):
        starts[part.since] = starts.get(part.since, 0) + part.n
    look, seen, before, looks = 0, 0, 0, {}
    for start, n in sorted(starts.items()):
        looks[start] = look
        seen += n
        if seen >= max(_FIRST, 2 * before):
            look, before = look + 1, seen
    a, b = (_counts(side, looks, flipped=flipped) for side in (one.champion, one.challenger))
    return test.judge(look + 1, a, b)


def estimate(parts: Sequence[ScoreHistogram]) -> Estimate | None:
    """The mean over all traffic of counted scores; None without a score."""
    sums, least = WeightedSums(), min((one.rate for one in parts), default=1.0)
    for one in parts:
        sums.add_groups(n=one.n, x=one.x, x2=one.x2, w=least / one.rate)
    return sums.estimate()


def _counts(parts: Sequence[ScoreHistogram], looks: Mapping[float, int], *, flipped: bool) -> Counts:
    """The scores by look, rate and hundredth: a month has many parts for each of them."""
    least = min((one.rate for one in parts), default=1.0)
    groups: dict[tuple[int, float], list[ScoreHistogram]] = {}
    for one in parts:
        groups.setdefault((looks[one.since], one.rate), []).append(one)
    rows = []
    for (look, rate), some in groups.items():
        found = hundredths(one.bins for one in some)
        k = found[:, 0].astype(int)
        n, x = (np.bincount(k, weights=column, minlength=STEPS) for column in (found[:, 1], found[:, 2]))
        # squares count in the sums over all only, so that those of a whole group may stand with its first hundredth
        x2 = np.zeros(STEPS)
        x2[0] = sum(one.n - 2.0 * one.x + one.x2 if flipped else one.x2 for one in some)
        scale = np.arange(STEPS - 1, -1, -1) if flipped else np.arange(STEPS)
        weight = np.full(STEPS, least / rate)
        columns = np.full(STEPS, float(look)), scale, n, n - x if flipped else x, x2, weight
        rows.append(np.stack(columns, axis=1))
    return Counts.of(rows)


def _by_stream(spreads: Iterable[ScoreHistogram]) -> dict[tuple[str, str], list[ScoreHistogram]]:
    found: dict[tuple[str, str], list[ScoreHistogram]] = {}
    for one in sorted(spreads, key=lambda spread: spread.since):
        found.setdefault((one.app, one.metric), []).append(one)
    return found


def _maker(one: ScoreHistogram) -> tuple[str, str]:
    """Who gave the scores: another judge or another version of the metric has another scale."""
    return one.version, one.judge or ""
