"""A/B comparison on binned scores: the schedule of looks, the evidence, the means. Pure: no clock, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from gaugeway.storage.stores import Point, ScoreHistogram
from gaugeway.storage.stores.rollup_windows import hundredths
from gaugeway.storage.sums import WeightedSums
from monitors.statistics.sequential_ab import STEPS, CountedComparison, ScoreBins, Verdict
from monitors.statistics.weighted_mean import Estimate, hajek_from_sums

S = TypeVar("S", Point, ScoreHistogram)
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
