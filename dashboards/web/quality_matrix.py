"""The overview's matrix: a row per app, a cell per metric with its trend and chart; filtered, sorted, cut. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal

from markupsafe import Markup
from msgspec import Struct

from dashboards.web.charts import Dot, sparkline
from dashboards.web.format import number
from dashboards.web.gateways import AppTraffic
from gaugeway.records import grouped
from gaugeway.signals import UNDIRECTED
from gaugeway.storage.stores import Summary
from gaugeway.storage.sums import WeightedSums
from monitors.alerting.engine import StreamStatus
from monitors.alerting.rule_watch import ALL
from monitors.analysis.capture_coverage import Captured
from monitors.analysis.quality import Quality
from monitors.analysis.series import HOUR_S, Effects, Stream, estimated_point
from monitors.statistics.confidence_sequence import Level, confidence_sequence, level_of
from monitors.statistics.weighted_mean import hajek_from_sums

HOURS = 24
YOUNG_S, YOUNG_STEP_S = 3 * HOUR_S, 300.0
"""A metric whose first score is not older has a chart of shorter steps."""
WIDTHS = (1, 2, 3, 6, 12)
"""Steps of a chart's dot: the fewest with which most dots have a basis for an interval."""
RECENT_PART = 0.25
"""The part of the time that a trend compares with the time before."""
Steps = Sequence[tuple[float, Summary]]
"""Sums by the start of their step, the oldest first."""


class Trend(Struct, frozen=True, kw_only=True):
    """How the mean of the latest quarter of `over_s` differs from that before.

    The direction is "changed" where neither more nor less is better. Without means there were too few scores.
    """

    direction: Literal["better", "worse", "changed", "unclear", "unknown"] = "unknown"
    before: float | None = None
    since: float | None = None
    over_s: float = 0.0

    @property
    def change(self) -> float:
        """The difference; 0 without means."""
        return (self.since or 0.0) - (self.before or 0.0)

    @property
    def period(self) -> str:
        """The time in words."""
        unit, name = (HOUR_S, "h") if self.over_s > YOUNG_S else (60.0, "min")
        return f"{math.ceil(self.over_s / unit)} {name}"


def dots_of(steps: Steps, now: float, step_s: float = HOUR_S, effect: float = 1.0) -> tuple[list[Dot], float]:
    """Chart dots of a stream, oldest first, and the seconds of each; the last one holds the current step."""
    last = math.floor(now / step_s)
    dots: list[Dot] = []
    for width in WIDTHS:
        groups = grouped(((last - math.floor(start / step_s)) // width, summary) for start, summary in steps)
        dots = []
        for index, some in sorted(groups.items(), reverse=True):
            middle = (last + 1 - (index + 0.5) * width) * step_s
            point = estimated_point(middle, sum(some, WeightedSums()), effect=effect, over=index > 0)
            if point.mean is not None:
                dots.append(Dot(at=middle, mean=point.mean, low=point.ci_low, high=point.ci_high, n=point.n))
        if 2 * len(dots) > len(groups):
            return dots, width * step_s
    return dots, WIDTHS[-1] * step_s


def trend_of(steps: Steps, now: float, *, lower_is_better: bool | None, effect: float = 1.0) -> Trend:
    """Compare the latest quarter of the time with the time before; `lower_is_better` is None where neither is.

    A change is reported only if the confidence sequences do not overlap: they stay valid however often the page is
    loaded.
    """
    if not steps:
        return Trend()
    over_s = now - steps[0][0]
    edge = min(now - RECENT_PART * over_s, steps[-1][0])
    sums = {False: WeightedSums(), True: WeightedSums()}
    for start, summary in steps:
        sums[start >= edge] += summary
    old, new = (None if found is None else found.widened(effect) for found in map(hajek_from_sums, sums.values()))
    levels = (level_of(old, confidence_sequence), level_of(new, confidence_sequence))
    return trend_between(*levels, over_s, lower_is_better=lower_is_better)


def trend_between(old: Level | None, new: Level | None, over_s: float, *, lower_is_better: bool | None) -> Trend:
    """The trend from one mean to another; there is none without an interval of both."""
    overlap = None if old is None or new is None else old.overlaps(new)
    if old is None or new is None or overlap is None:
        return Trend(over_s=over_s)
    direction: Literal["better", "worse", "changed", "unclear"] = "unclear"
    if not overlap:
        better = (new.mean > old.mean) != lower_is_better
        direction = "changed" if lower_is_better is None else "better" if better else "worse"
    return Trend(direction=direction, before=old.mean, since=new.mean, over_s=over_s)


class Read(Struct, frozen=True, kw_only=True):
    """What was read by app and metric: the sums of hours, those of `YOUNG_STEP_S` of young streams, design effects."""

    hours: Mapping[Stream, Steps] = {}
    young: Mapping[Stream, Steps] = {}
    effects: Effects = {}

    def steps(self, stream: Stream, now: float) -> tuple[Steps, float]:
        """The steps of a stream and how long one is."""
        hours = self.hours.get(stream, ())
        if stream in self.young and is_young(hours, now):
            return self.young[stream], YOUNG_STEP_S
        return hours, HOUR_S


def is_young(hours: Steps, now: float) -> bool:
    """Whether the first score of a stream is that recent."""
    return bool(hours) and hours[0][0] > now - YOUNG_S


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
    trend: Trend
    chart: Markup

    @property
    def is_notable(self) -> bool:
        """Whether a rule sees something, or the mean has changed for the worse."""
        return self.watch.state in ("firing", "pending") or self.trend.direction in ("worse", "changed")


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
    """The metrics of the rows: firing ones, pending ones, watched ones, others; of each those of most apps first."""
    counts: Counter[str] = Counter()
    worst: dict[str, int] = {}
    for row in rows:
        counts.update(row.qualities.keys())
        for metric in row.qualities:
            state = row.watches[metric].state
            urgency = min(2, ORDER.index(state)) if state != "unwatched" else ORDER.index(state)
            worst[metric] = min(worst.get(metric, urgency), urgency)
    return sorted(counts, key=lambda metric: (worst[metric], -counts[metric], metric))


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


def cell(row: AppRow, metric: str, now: float, *, read: Read, lower_is_better: Collection[str]) -> Cell | None:
    """The cell of a metric; None where the app has no score of it."""
    quality = row.qualities.get(metric)
    if quality is None:
        return None
    stream = (row.app, metric)
    (steps, step_s), effect = read.steps(stream, now), read.effects.get((*stream, ""), 1.0)
    watch = row.watches[metric]
    lower = None if metric in UNDIRECTED else metric in lower_is_better
    return Cell(
        quality=quality,
        watch=watch,
        trend=trend_of(steps, now, lower_is_better=lower, effect=effect),
        chart=_chart(quality, watch.baseline, steps, now, dots_of(steps, now, step_s, effect)),
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


def _chart(
    quality: Quality, baseline: float | None, steps: Steps, now: float, drawn: tuple[list[Dot], float]
) -> Markup:
    dots, width_s = drawn
    if not dots:
        return Markup("")
    since = steps[0][0] if is_young(steps, now) else now - HOURS * HOUR_S
    period = Trend(over_s=now - since).period
    width = Trend(over_s=width_s).period if width_s < HOUR_S else f"{width_s / HOUR_S:.0f} h"
    against = f", baseline {number(baseline)}" if baseline is not None else ""
    return sparkline(
        dots,
        title=f"{quality.metric} of {quality.app}, last {period} by {width}: from {number(dots[0].mean)} "
        f"to {number(dots[-1].mean)}{against}",
        baseline=baseline,
        since=since,
        until=now,
        gap_s=2.5 * width_s,
    )
