"""A/B comparison on binned scores: the schedule of looks, the evidence, the means. Pure: no clock, no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gaugeway.storage.stores import ScoreHistogram
from gaugeway.storage.stores.rollup_windows import hundredths
from gaugeway.storage.weighted_sums import WeightedSums
from monitors.statistics.sequential_ab import Verdict
from monitors.statistics.sequential_ab_binned import STEPS, CountedComparison, ScoreBins
from monitors.statistics.weighted_mean import Estimate, hajek_from_sums

_FIRST = 20
"""Scores before the first look; each further look is at twice as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Binned scores of one app and metric, by one judge and metric version; each side in the order of time."""

    app: str
    metric: str
    champion: Sequence[ScoreHistogram]
    challenger: Sequence[ScoreHistogram]
    left_out: int = 0


def parts_of(champion: Iterable[ScoreHistogram], challenger: Iterable[ScoreHistogram]) -> list[Parts]:
    """Pair the comparable scores: per app and metric, those by the same judge and metric version on both sides."""
    both = [_by_stream(some) for some in (champion, challenger)]
    found = []
    for app, metric in sorted(both[0].keys() & both[1].keys()):
        sides = [side[app, metric] for side in both]
        makers: list[Counter[tuple[str, str]]] = [Counter() for _ in sides]
        for side, counts in zip(sides, makers, strict=True):
            for histogram in side:
                counts[_maker(histogram)] += histogram.n
        common = makers[0].keys() & makers[1].keys()
        chosen = max(sorted(common), key=lambda maker: min(counts[maker] for counts in makers), default=None)
        a, b = ([histogram for histogram in side if _maker(histogram) == chosen] for side in sides)
        left_out = sum(histogram.n for side in sides for histogram in side if _maker(histogram) != chosen)
        found.append(Parts(app=app, metric=metric, champion=a, challenger=b, left_out=left_out))
    return found


def judged(parts: Parts, test: CountedComparison, *, flipped: bool) -> Verdict:
    """Test the scores in the order of time, with a look whenever their number has doubled."""
    starts: dict[float, int] = {}
    for part in (*parts.champion, *parts.challenger):
        starts[part.since] = starts.get(part.since, 0) + part.n
    look, seen, before, looks = 0, 0, 0, {}
    for start, n in sorted(starts.items()):
        looks[start] = look
        seen += n
        if seen >= max(_FIRST, 2 * before):
            look, before = look + 1, seen
    a, b = (_counts(side, looks, flipped=flipped) for side in (parts.champion, parts.challenger))
    return test.judge(look + 1, a, b)


def estimate(parts: Sequence[ScoreHistogram]) -> Estimate | None:
    """Return the mean over all traffic of binned scores; None without scores."""
    sums, least = WeightedSums(), min((histogram.rate for histogram in parts), default=1.0)
    for histogram in parts:
        sums += WeightedSums.of_groups(n=histogram.n, x=histogram.x, x2=histogram.x2, w=least / histogram.rate)
    return hajek_from_sums(sums)


def _counts(parts: Sequence[ScoreHistogram], looks: Mapping[float, int], *, flipped: bool) -> ScoreBins:
    """Merge the histograms by look, rate and bin: a month has many parts of each."""
    least = min((histogram.rate for histogram in parts), default=1.0)
    groups: dict[tuple[int, float], list[ScoreHistogram]] = {}
    for histogram in parts:
        groups.setdefault((looks[histogram.since], histogram.rate), []).append(histogram)
    rows = []
    for (look, rate), some in groups.items():
        found = hundredths(histogram.bins for histogram in some)
        k = found[:, 0].astype(int)
        n, x = (np.bincount(k, weights=column, minlength=STEPS) for column in (found[:, 1], found[:, 2]))
        # squares only enter the total sums, so those of a whole group are put in its first bin
        x2 = np.zeros(STEPS)
        x2[0] = sum(histogram.n - 2.0 * histogram.x + histogram.x2 if flipped else histogram.x2 for histogram in some)
        scale = np.arange(STEPS - 1, -1, -1) if flipped else np.arange(STEPS)
        weight = np.full(STEPS, least / rate)
        columns = np.full(STEPS, float(look)), scale, n, n - x if flipped else x, x2, weight
        rows.append(np.stack(columns, axis=1))
    return ScoreBins.of(rows)


def _by_stream(spreads: Iterable[ScoreHistogram]) -> dict[tuple[str, str], list[ScoreHistogram]]:
    found: dict[tuple[str, str], list[ScoreHistogram]] = {}
    for histogram in sorted(spreads, key=lambda spread: spread.since):
        found.setdefault((histogram.app, histogram.metric), []).append(histogram)
    return found


def _maker(histogram: ScoreHistogram) -> tuple[str, str]:
    """Return what made the scores: scores by different judges or metric versions are not comparable."""
    return histogram.version, histogram.judge or ""
