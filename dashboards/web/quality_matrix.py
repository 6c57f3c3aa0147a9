"""The overview's matrix: a row per app, a cell per metric with the trend of 24 hours; filtered, sorted, cut. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from markupsafe import Markup
from msgspec import Struct

from dashboards.web.charts import Dot, trend_line
from dashboards.web.format import MIN_N, number
from dashboards.web.gateways import AppTraffic
from gaugeway.records import grouped
from gaugeway.storage.stores import Summary
from gaugeway.storage.sums import WeightedSums
from monitors.alerting.engine import StreamStatus
from monitors.alerting.rule_watch import ALL
from monitors.analysis.capture_coverage import Captured
from monitors.analysis.quality import Quality
from monitors.analysis.series import HOUR_S, Stream
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
        groups = grouped(((last - math.floor(start / HOUR_S)) // width, summary) for start, summary in hours)
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


Hours = Mapping[Stream, Sequence[tuple[float, Summary]]]
"""Hourly sums by app and metric."""
ORDER = ("firing", "pending", "learning", "waiting", "quiet", "unwatched")
"""States of a rule, worst first."""
TRAFFIC = {
    "requests_per_min": "requests_per_min",
    "error_share": "error_ratio",
    "p95_latency": "p95_s",
    "cost_per_answer": "usd_per_answer",
}
"""Columns about the gateways' traffic, and what `AppTraffic` calls them. They are sorted with the largest value first,
metrics with the worst."""


class Watch(Struct, frozen=True, kw_only=True):
    """Worst rule state of an app's metric, with that rule's baseline and learning progress (in scores)."""

    state: str = "unwatched"
    baseline: float | None = None
    learned: int = 0
    needed: int = 0


class Cell(Struct, frozen=True, kw_only=True):
    """One metric of one app."""

    quality: Quality
    watch: Watch
    trend: str
    chart: Markup


class AppRow(Struct, frozen=True, kw_only=True):
    """One app: the worst state of its metrics, and all its estimates and rule states by metric."""

    app: str
    state: str
    qualities: Mapping[str, Quality]
    watches: Mapping[str, Watch]

    @property
    def n(self) -> int:
        """Scores of all metrics."""
        return sum(quality.n for quality in self.qualities.values())


class Watches:
    """Worst rule state by app and metric; slice streams are ignored.

    `is_watched` says whether a rule covers a metric of an app. Without a stream the state is then "waiting": the rule
    has taken in no score yet.
    """

    def __init__(
        self, streams: Iterable[StreamStatus], is_watched: Callable[[str, str], bool] = lambda _metric, _app: False
    ) -> None:
        self._is_watched = is_watched
        self._worst: dict[Stream, Watch] = {}
        for stream in streams:
            if stream.slice:
                continue
            state = "learning" if stream.state == "quiet" and stream.m0 is None else stream.state
            watch = Watch(state=state, baseline=stream.m0, learned=stream.learned, needed=stream.needed)
            known = self._worst.get((stream.app, stream.metric))
            if known is None or rank(watch) < rank(known):
                self._worst[stream.app, stream.metric] = watch

    def of(self, app: str, metric: str) -> Watch:
        """The worst state among the rules that watch an app's metric."""
        found = [watch for key in ((app, metric), (ALL, metric)) if (watch := self._worst.get(key)) is not None]
        if found:
            return min(found, key=rank)
        return Watch(state="waiting" if self._is_watched(metric, app) else "unwatched")


def rank(watch: Watch) -> int:
    """Place in `ORDER`, the worst first."""
    return ORDER.index(watch.state)


def rows_of(quality: Iterable[Quality], watches: Watches, known: Iterable[Stream] = ()) -> list[AppRow]:
    """One row per app, in no order; `known` streams without an estimate get an empty one."""
    apps: dict[str, dict[str, Quality]] = {}
    for estimate in quality:
        if not estimate.slice:
            apps.setdefault(estimate.app, {})[estimate.metric] = estimate
    for app, metric in known:  # no score in the window, but some in the last 24 hours
        missing = Quality(app=app, metric=metric, n=0, n_eff=0.0, coverage_ratio=0.0)
        apps.setdefault(app, {}).setdefault(metric, missing)
    rows = []
    for app, qualities in apps.items():
        watched = {metric: watches.of(app, metric) for metric in qualities}
        state = min(watched.values(), key=rank).state
        rows.append(AppRow(app=app, state=state, qualities=qualities, watches=watched))
    return rows


def metrics_of(rows: Iterable[AppRow]) -> list[str]:
    """The metrics of the rows, those of most apps first, then by name."""
    counts = Counter(metric for row in rows for metric in row.qualities)
    return sorted(counts, key=lambda metric: (-counts[metric], metric))


def filtered(rows: Iterable[AppRow], text: str) -> list[AppRow]:
    """Rows whose app contains `text`, whatever the case."""
    wanted = text.casefold()
    return [row for row in rows if wanted in row.app.casefold()]


def ordered(
    rows: Iterable[AppRow],
    by: str,
    *,
    traffic: Mapping[str, AppTraffic],
    captured: Mapping[str, Captured],
    lower_is_better: Collection[str],
) -> list[AppRow]:
    """Rows sorted by a column, the other way round with a minus before it; apps without a value come last.

    By default and by "state": the worst state first, then the most scores.
    """
    name, reverse = by.removeprefix("-"), by.startswith("-")
    some = sorted(rows, key=lambda row: (ORDER.index(row.state), -row.n, row.app))
    if name in ("", "state"):
        return some[::-1] if reverse else some
    if name == "app":
        return sorted(some, key=lambda row: row.app, reverse=reverse)
    values = {row.app: _value(row, name, traffic, captured) for row in some}
    descending = is_descending(name, lower_is_better) != reverse
    with_value = [row for row in some if values[row.app] is not None]
    with_value.sort(key=lambda row: values[row.app] or 0.0, reverse=descending)
    return [*with_value, *(row for row in some if values[row.app] is None)]


def is_descending(column: str, lower_is_better: Collection[str]) -> bool:
    """Whether a column starts with its largest value."""
    return column in TRAFFIC or column in lower_is_better


def cell(row: AppRow, metric: str, now: float, *, hours: Hours, lower_is_better: Collection[str]) -> Cell | None:
    """The cell of a metric; None where the app has no score of it."""
    quality = row.qualities.get(metric)
    if quality is None:
        return None
    some, lower = hours.get((row.app, metric), ()), metric in lower_is_better
    watch = row.watches[metric]
    return Cell(
        quality=quality,
        watch=watch,
        trend=movement(some, now, lower_is_better=lower),
        chart=_chart(quality, watch, some, now),
    )


def _value(
    row: AppRow, column: str, traffic: Mapping[str, AppTraffic], captured: Mapping[str, Captured]
) -> float | None:
    if column in TRAFFIC:
        found: float | None = getattr(traffic.get(row.app), TRAFFIC[column], None)
        return found
    if column == "capture_share":
        return captured[row.app].ratio if row.app in captured else None
    quality = row.qualities.get(column)
    return None if quality is None else quality.mean


def _chart(quality: Quality, watch: Watch, hours: Sequence[tuple[float, Summary]], now: float) -> Markup:
    dots, width = dots_of(hours, now)
    if not dots:
        return Markup("")
    against = f", baseline {number(watch.baseline)}" if watch.baseline is not None else ""
    return trend_line(
        dots,
        title=f"{quality.metric} of {quality.app}, last 24 hours by {width} h: from {number(dots[0].mean, 2)} "
        f"to {number(dots[-1].mean, 2)}{against}",
        baseline=watch.baseline,
        since=now - HOURS * HOUR_S,
        until=now,
        gap_s=2.5 * width * HOUR_S,
    )
