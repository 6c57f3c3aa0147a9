"""Hourly means of the last 24 hours as dots of a chart, and their movement in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dashboards.web.charts import Dot
from dashboards.web.format import MIN_N
from gaugeway.storage.stores import Summary
from gaugeway.storage.sums import WeightedSums
from monitors.analysis.series import HOUR_S
from monitors.statistics.confidence_sequence import confidence_sequence
from monitors.statistics.weighted_mean import hajek_from_sums

HOURS = 24
WIDTHS = (2, 3, 6, 12)
"""Hours of a chart's dot: the fewest with which most dots have a basis for an interval."""
RECENT_HOURS = 6


def dots_of(hours: Sequence[tuple[float, Summary]], now: float) -> tuple[list[Dot], int]:
    """Chart dots of a stream, oldest first, and the hours of each; the last one holds the current hour."""
    last = math.floor(now / HOUR_S)
    dots: list[Dot] = []
    for width in WIDTHS:
        groups: dict[int, list[Summary]] = {}
        for start, summary in hours:
            groups.setdefault((last - math.floor(start / HOUR_S)) // width, []).append(summary)
        dots = []
        for index, some in sorted(groups.items(), reverse=True):
            begin = (last + 1 - (index + 1) * width) * HOUR_S
            made = dot(begin, sum(some, WeightedSums()), width * HOUR_S)
            dots += [made] if made is not None else []
        if 2 * len(dots) > len(groups):
            return dots, width
    return dots, WIDTHS[-1]


def dot(start: float, sums: WeightedSums, seconds: float = HOUR_S) -> Dot | None:
    """Chart dot of a period starting at `start`, without an interval; None below `MIN_N` effective scores."""
    found = hajek_from_sums(sums)
    if found is None or found.n_eff < MIN_N:
        return None
    return Dot(at=start + seconds / 2, mean=min(1.0, max(0.0, found.mean)), n=found.n)


def movement(hours: Sequence[tuple[float, Summary]], now: float, *, lower_is_better: bool) -> str:
    """Compare the last six hours with those before, in words.

    A change is reported only if the confidence sequences do not overlap: they stay valid however often the page is
    loaded.
    """
    edge = now - RECENT_HOURS * HOUR_S
    sums = {False: WeightedSums(), True: WeightedSums()}
    for start, summary in hours:
        sums[start >= edge] += summary
    old, new = (hajek_from_sums(side) for side in sums.values())
    if old is None or new is None or min(old.n_eff, new.n_eff) < MIN_N:
        return "too few scores to compare"
    (old_low, old_high), (new_low, new_high) = confidence_sequence(old), confidence_sequence(new)
    if new_low <= old_high and old_low <= new_high:
        return "no clear change"
    better = (new.mean > old.mean) != lower_is_better
    return f"{'better' if better else 'worse'} over {RECENT_HOURS} h: {old.mean:.2f} to {new.mean:.2f}"
