"""Compare: two versions of an app on its own traffic, or two periods, and what their difference says to do."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from cachetools import FIFOCache
from litestar import get
from litestar.response import Template
from markupsafe import Markup
from msgspec import Struct

from dashboards.web.charts import Dot, Line, effect_of, forest_axis, forest_row, scale_of, timeline
from dashboards.web.format import interval, number, signed
from dashboards.web.prompt_diff import prompt_change
from dashboards.web.site import TEXTS, Page, Site
from dashboards.web.views.overview import leading
from gaugeway.records import PROMPT_SCHEME, grouped
from gaugeway.storage.stores import Point, Query, ScoreHistogram, Store
from monitors.alerting.changes import Version
from monitors.analysis import ab_compare as comparing
from monitors.analysis import captured
from monitors.analysis.ab_binned import Parts, estimate, parts_of
from monitors.analysis.ab_compare import Compared, Sides
from monitors.analysis.ab_query import PERIOD, UnknownVersionError, VersionQuery, compare_versions, period_of
from monitors.statistics.confidence_sequence import level_of, mean_of
from monitors.statistics.weighted_mean import Estimate

SINCE, MAX_FIELD = "7d", 300
SPANS = (("24h", "24 hours"), ("7d", "7 days"), ("30d", "30 days"))
MOST, READING_S = 10_000, 2.0
"""Where the store cannot aggregate: scores read per version, and the time limit for reading."""
MOST_QUESTIONS, WITHIN_S = 1000, 0.6
"""Scores of both versions up to which they are read individually with their questions; time limit for counting."""
FRESH_S, PARTIAL_S, _KEPT = 60.0, 2.0, 20
MAX_APPS = 200
"""Apps offered for selection; others by their address."""
MAX_TRIALS = 5
"""Trials beside a comparison, the newest ones."""
LONGEST_S = 366 * 86_400.0
"""Longest period of a comparison: the store is queried day by day."""
PERIODS = ("14d..7d", "7d..now")
"""Periods compared by default."""
FINE_S, FINE_WITHIN_S = 6 * 3600.0, 0.15
"""Histograms are of hours: up to this span they are read again in shorter bins for the chart, within this time."""
WORDS = {"roll back": "worse", "ship": "not worse", "not enough data": "undecided"} | {
    name: name for name in ("within the margin", "differs")
}
"""What a decision says of a metric: a metric is neither shipped nor rolled back."""
_UNITS = {"m": "minute", "h": "hour", "d": "day"}
PRESETS = {
    "last 3 hours against the day before": ("27h..3h", "3h..now"),
    "today against yesterday": ("48h..24h", "24h..now"),
    "this week against last week": ("14d..7d", "7d..now"),
}
SIGNS = {"ship": "✓", "roll back": "✗", "not enough data": "○", "differs": "≠", "within the margin": "≈"}
TOGETHER_S = 900.0
"""Seconds: no comparison separates B from a version of another kind that came so close to it."""
DIGITS = 3
"""Decimals: what is compared is of the size of the margin."""
BINS, LEAST_BINS, PER_BIN, FEW = 24, 6, 40, 5
Item = TypeVar("Item")


class Start(Struct, frozen=True, kw_only=True):
    """Defaults of the form: the kind of version, the two latest values `a` and `b`, and the known kinds and values."""

    by: str
    a: str
    b: str
    kinds: tuple[str, ...]
    values: tuple[str, ...]


class Row(Struct, frozen=True, kw_only=True):
    """Table row: one app and metric under both versions, with its charts; `counted`: its scores were not read."""

    compared: Compared
    chart: Markup
    forest: Markup
    counted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareForm:
    """The submitted form; `problems` are validation errors."""

    by: str
    a: str
    b: str
    app: str
    since: str
    margin: float
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A comparison made at `at` (Unix seconds); `capped` if only part of the scores could be read.

    `difference` is that of two prompts' instructions, None where they are not stored or not read in time.
    `apart` is the smallest overlap of the times in which the versions served, if that is little (`served_apart`).
    """

    rows: Sequence[Row]
    axis: Markup
    decision: str
    capped: bool
    at: float
    apart: float | None = None
    difference: Sequence[str] | None = None


def parse_form(params: Mapping[str, str]) -> CompareForm:
    """Parse and validate the form.

    >>> parse_form({"by": "model", "delta": "2"}).problems
    ('the margin must be at least 0 and below 1',)
    """
    given = {name: params.get(name, "").strip()[:MAX_FIELD] for name in ("by", "a", "b", "app", "since", "delta")}
    problems = []
    if given["by"] and given["by"] not in ("model", "prompt", PERIOD) and not given["by"].startswith("tag:"):
        problems.append("compare by model, prompt, tag:NAME or period")
    try:
        margin = float(given["delta"] or comparing.MARGIN)
    except ValueError:
        margin = -1.0
    if not 0.0 <= margin < 1.0:
        problems.append("the margin must be at least 0 and below 1")
        margin = comparing.MARGIN
    try:
        captured.since(given["since"] or SINCE, 0.0)
    except (ValueError, OverflowError) as error:
        problems.append(f"since: {error}")
        given["since"] = SINCE
    del given["delta"]
    return CompareForm(**given | {"since": given["since"] or SINCE}, margin=margin, problems=tuple(problems))


def start(versions: Sequence[Version], *, by: str = "", app: str = "", kinds: Iterable[str] = ()) -> Start:
    """Choose defaults: the kind of version that changed last, its latest value as `b` and the one before as `a`.

    >>> seen = [Version(app="a", kind="model", value=name, first_seen=at, exchanges=9) for at, name in enumerate("xyz")]
    >>> start(seen)
    Start(by='model', a='y', b='z', kinds=('model', 'prompt', 'period'), values=('x', 'y', 'z'))
    """
    ours = [version for version in versions if app in ("", version.app)]
    old = {
        version.value for version in ours if version.kind == "prompt" and not version.value.startswith(PROMPT_SCHEME)
    }
    if any(version.kind == "prompt" and version.value not in old for version in ours):
        ours = [version for version in ours if version.kind != "prompt" or version.value not in old]
    values: dict[str, dict[str, float]] = {}
    for version in ours:
        known = values.setdefault(version.kind, {})
        known[version.value] = min(version.first_seen, known.get(version.value, version.first_seen))
    several = {kind: max(known.values()) for kind, known in values.items() if len(known) > 1}
    chosen = by or max(several, key=several.__getitem__, default="model")
    known = values.get(chosen, {})
    latest = sorted(known, key=lambda value: (known[value], value))
    a, b = latest[-2:] if len(latest) > 1 else ("", "")
    if chosen == PERIOD:
        a, b = PERIODS
    every = dict.fromkeys(["model", "prompt", PERIOD, *sorted({*values, *kinds, chosen})])
    return Start(by=chosen, a=a, b=b, kinds=tuple(every), values=tuple(latest[-200:]))


def rows_of(
    everything: Sequence[Sides | Parts],
    compared: Sequence[Compared],
    *,
    names: tuple[str, str],
    is_best_at_0: Callable[[str], bool],
    margin: float,
) -> tuple[list[Row], Markup]:
    """Table rows with their charts by app, what got worse first; and the scale of their plots."""
    sides = {(sides_of.app, sides_of.metric): sides_of for sides_of in everything}
    effects = {
        (row.app, row.metric): effect_of(row.difference, row.low, row.high, lower_is_better=is_best_at_0(row.metric))
        for row in compared
        if row.difference is not None and row.directed
    }
    scale = scale_of(effects.values(), margin)
    rows, worse = [], {row.app for row in compared if row.decision == "roll back"}
    for row in sorted(
        compared,
        key=lambda row: (row.app not in worse, row.app, not row.directed, row.decision != "roll back", row.metric),
    ):
        key = (row.app, row.metric)
        about = (
            f"{row.metric}: B - A {signed(row.difference, DIGITS)}, interval {interval(row.low, row.high, DIGITS)}; "
            f"95 % interval {interval(row.ci_low, row.ci_high, DIGITS)}"
        )
        plot = forest_row(effects[key], scale=scale, margin=margin, title=about) if key in effects else Markup("")
        drawing = chart(sides[key], names)
        rows.append(Row(compared=row, chart=drawing, forest=plot, counted=isinstance(sides[key], Parts)))
    return rows, forest_axis(scale, margin)


def further(row: Compared) -> int | None:
    """Scores of both versions that are missing: at the difference so far, else what a decision usually takes."""
    if row.decision != "not enough data" or row.more is not None or row.needed is None:
        return row.more
    return sum(max(0, row.needed - arm.n) for arm in (row.champion, row.challenger)) or None


def wait_s(row: Compared, served: Mapping[str, float]) -> float | None:
    """Seconds until those scores are there, as often as they came in the `served` seconds of B, by app.

    None where both versions hardly served at the same time: of one of them no more scores come.
    """
    seconds, more = served.get(row.app), further(row)
    if not seconds or not more or (row.overlap or 0.0) < comparing.APART:
        return None
    return seconds * more / (row.champion.n + row.challenger.n)


def period_words(period: str) -> str:
    """A period as one says it.

    >>> period_words("3h..now"), period_words("1d..now"), period_words("14d..7d"), period_words("2026-11-01..now")
    ('the last 3 hours', 'the last day', '14 to 7 days ago', '2026-11-01..now')
    """
    if (last := re.fullmatch(r"(\d+)([mhd])\.\.now", period)) is not None:
        return f"the last {_UNITS[last[2]]}" if last[1] == "1" else f"the last {last[1]} {_UNITS[last[2]]}s"
    if (before := re.fullmatch(r"(\d+)([mhd])\.\.(\d+)\2", period)) is not None:
        return f"{before[1]} to {before[3]} {_UNITS[before[2]]}s ago"
    return period


def came_with(changes: Iterable[Version], by: str, b: str, apps: Collection[str]) -> list[str]:
    """Versions of other kinds that came to these apps at the same time as B.

    >>> seen = [Version(app="a", kind=kind, value="v2", first_seen=at, exchanges=9)
    ...         for kind, at in (("model", 100.0), ("prompt", 160.0), ("tag:release", 5000.0))]
    >>> came_with(seen, "model", "v2", {"a"})
    ['prompt v2']
    """
    changes = list(changes)
    began = {change.app: change.first_seen for change in changes if (change.kind, change.value) == (by, b)}
    near = [
        change
        for change in changes
        if change.kind != by
        and change.app in apps
        and abs(change.first_seen - began.get(change.app, -1e9)) <= TOGETHER_S
    ]
    return list(dict.fromkeys(f"{change.kind.removeprefix('tag:')} {change.value}" for change in near))


def chart(sides: Sides | Parts, names: tuple[str, str]) -> Markup:
    """Timeline of both versions' means; empty with too few scores."""
    if not (sides.champion or sides.challenger):
        return Markup("")
    since, until, width, both = _counted(sides) if isinstance(sides, Parts) else _one_by_one(sides)
    if not any(both):
        return Markup("")
    descriptions = [
        f"{letter} ({name}) from {number(some[0].mean, 2)} to {number(some[-1].mean, 2)}"
        for letter, name, some in zip("AB", names, both, strict=True)
        if some
    ]
    return timeline(
        [Line(dots=some, kind=kind, gap_s=2.5 * width) for kind, some in enumerate(both, 1)],
        title=f"{sides.metric} of {sides.app} over time",
        desc="; ".join(descriptions),
        since=since,
        until=max(until, since + 60.0),
    )


def _one_by_one(sides: Sides) -> tuple[float, float, float, list[list[Dot]]]:
    points = (*sides.champion, *sides.challenger)
    since, until = min(point.started_at for point in points), max(point.started_at for point in points)
    bins = max(LEAST_BINS, min(BINS, len(points) // (2 * PER_BIN)))
    width = max((until - since) / bins, 1.0)
    return since, until, width, [dots(some, since, width) for some in (sides.champion, sides.challenger)]


def _counted(sides: Parts) -> tuple[float, float, float, list[list[Dot]]]:
    """Dots from binned scores. Days are not split: a dot spans at least the widest bin of the store."""
    parts = (*sides.champion, *sides.challenger)
    since, until = min(histogram.since for histogram in parts), max(histogram.until for histogram in parts)
    width = max((until - since) / BINS, *(histogram.until - histogram.since for histogram in parts))
    both = [
        _binned([((histogram.since + histogram.until) / 2.0, histogram) for histogram in side], estimate, since, width)
        for side in (sides.champion, sides.challenger)
    ]
    return since, until, width, both


def dots(points: Iterable[Point], since: float, width: float) -> list[Dot]:
    """Means in bins of `width` seconds; bins with fewer than `FEW` scores have no dot, few effective scores no band."""
    return _binned([(point.started_at, point) for point in points], mean_of, since, width)


def _binned(
    timed: Iterable[tuple[float, Item]], mean: Callable[[Sequence[Item]], Estimate | None], since: float, width: float
) -> list[Dot]:
    bins = grouped((int((at - since) / width), item) for at, item in timed)
    known = ((since + (index + 0.5) * width, level_of(mean(some))) for index, some in sorted(bins.items()))
    return [Dot.of(at, found) for at, found in known if found is not None and found.n >= FEW]


class Comparisons:
    """Runs one comparison at a time and caches results for a minute (2 s for partial ones)."""

    def __init__(self, store: Store, is_best_at_0: Callable[[str], bool]) -> None:
        self._store = store
        self._is_best_at_0 = is_best_at_0
        self._turn = asyncio.Semaphore(1)
        self._known: FIFOCache[CompareForm, Answer] = FIFOCache(_KEPT)

    async def of(self, wanted: CompareForm, now: float) -> Answer:
        """Compare two versions, cached.

        Raises ValueError if they cannot be compared, UnknownVersionError if one has no score.
        """
        async with self._turn:
            known = self._known.get(wanted)
            if known is None or now - known.at > (PARTIAL_S if known.capped else FRESH_S):
                known = self._known[wanted] = await self._compared(wanted, now)
        return known

    async def _compared(self, wanted: CompareForm, now: float) -> Answer:
        periods = (period_of(wanted.a, now), period_of(wanted.b, now)) if wanted.by == PERIOD else None
        query = VersionQuery(
            by=wanted.by,
            a=wanted.a,
            b=wanted.b,
            since=captured.since(wanted.since, now),
            until=now + 1.0,
            app=wanted.app or None,
            few=MOST_QUESTIONS,
            most=MOST,
            within_s=WITHIN_S,
            reading_s=READING_S,
            periods=periods,
            margin=wanted.margin,
        )
        found = await compare_versions(self._store, query, lower_is_better=self._is_best_at_0)
        drawn = await finer(self._store, found.everything, query)
        draw = partial(rows_of, names=(wanted.a, wanted.b), margin=wanted.margin, is_best_at_0=self._is_best_at_0)
        overlaps = {(sides.app, sides.metric): comparing.overlap_of(sides) for sides in drawn}
        compared = [replace(row, overlap=overlaps[row.app, row.metric]) for row in found.rows]
        rows, axis = await asyncio.to_thread(draw, drawn, compared)
        return Answer(
            rows=rows,
            axis=axis,
            decision=comparing.decision(found.rows),
            capped=found.partial,
            at=now,
            apart=None if periods else comparing.served_apart(compared),
            difference=await self._difference(query) if wanted.by == "prompt" else None,
        )

    async def _difference(self, wanted: VersionQuery) -> Sequence[str] | None:
        period = Query(since=wanted.since, until=wanted.until, app=wanted.app)
        try:
            async with asyncio.timeout(READING_S):
                return await prompt_change(self._store, period, wanted.a, wanted.b)
        except TimeoutError:
            return None


async def finer(store: Store, everything: Sequence[Sides | Parts], wanted: VersionQuery) -> Sequence[Sides | Parts]:
    """The same scores in shorter bins for the charts, if they are histograms of a few hours only.

    With too many scores to read within `FINE_WITHIN_S` they stay as they are.
    """
    parts = [
        histogram for some in everything if isinstance(some, Parts) for histogram in (*some.champion, *some.challenger)
    ]
    if not parts or wanted.periods is not None:
        return everything
    since = min(histogram.since for histogram in parts)
    until = min(max(histogram.until for histogram in parts), wanted.until)
    if until - since > FINE_S:
        return everything
    deadline = time.monotonic() + FINE_WITHIN_S
    both: tuple[list[ScoreHistogram], list[ScoreHistogram]] = ([], [])
    for index in range(BINS):
        begin = since + (until - since) * index / BINS
        query = Query(since=begin, until=since + (until - since) * (index + 1) / BINS, app=wanted.app)
        found = await store.spread(query, wanted.by)
        if time.monotonic() > deadline:
            return everything
        for side, value in zip(both, (wanted.a, wanted.b), strict=True):
            side.extend(histogram for histogram in found.parts if histogram.slice == value)
    fine = {(sides.app, sides.metric): sides for sides in parts_of(*both)}
    return [fine.get((coarse.app, coarse.metric), coarse) for coarse in everything]


def too_long(by: str, both: tuple[str, str], since: str, now: float) -> list[str]:
    """Problems with the times to compare: periods that are none, or that began over a year ago."""
    try:
        first = min(period_of(period, now)[0] for period in both) if by == PERIOD else captured.since(since, now)
    except (ValueError, OverflowError) as error:
        return [str(error)]
    return ["since: at most one year ago"] if first < now - LONGEST_S else []


def _beside(site: Site, answer: Answer | None, by: str, b: str, since: float) -> dict[str, Any]:
    """What stands beside a comparison: what else was new, alerts of what got worse, and what decides next."""
    rows = [] if answer is None else [row.compared for row in answer.rows]
    worse = {(row.app, row.metric) for row in rows if row.decision == "roll back"}
    firing = leading([alert for alert in site.engine.alerts() if alert.state == "firing"])
    versions, now = site.engine.versions, site.clock()
    of_b = [version for version in versions.all() if (version.kind, version.value) == (by, b)]
    reasons = [row.reason for row in rows if row.directed and row.decision == "not enough data"]
    wait = partial(wait_s, served={version.app: now - max(version.first_seen, since) for version in of_b})

    def soonest(row: Compared) -> tuple[float, int]:
        return wait(row) or math.inf, further(row) or 0

    return {
        "together": came_with(versions.changes(), by, b, {row.app for row in rows}),
        "alerts": [alert for alert in firing if (alert.app, alert.metric) in worse],
        "plan": sorted((row for row in rows if row.directed and further(row)), key=soonest),
        "further": further,
        "shared_reason": reasons[0] if len(set(reasons)) == 1 < len(reasons) else "",
        "wait": wait,
    }


def compare_view_handlers(site: Site) -> list[Any]:
    """The handlers of `/compare`."""
    comparisons = Comparisons(site.insight.store, site.is_best_at_0)

    @get("/compare")
    async def compare(request: Page) -> Template:
        wanted, now = parse_form(request.query_params), site.clock()
        versions = site.engine.versions.all()
        begin = start(versions, by=wanted.by, app=wanted.app, kinds=site.tags(wanted.app))
        asked = request.query_params.get("of", begin.by) == begin.by  # the values shown were those of another kind
        a, b = (wanted.a, wanted.b) if asked and (wanted.a or wanted.b) else (begin.a, begin.b)
        answer, problems, missing = None, list(wanted.problems), ""
        problems += too_long(begin.by, (a, b), wanted.since, now)
        if a and b and not problems:
            try:
                answer = await comparisons.of(replace(wanted, by=begin.by, a=a, b=b), now)
            except UnknownVersionError as error:
                missing = str(error)
            except ValueError as error:
                problems.append(str(error))
        trials = await site.trials.reports() if site.trials is not None else []
        return site.render(
            request,
            "compare.html",
            title="Compare periods" if begin.by == PERIOD else "Compare versions",
            status=400 if problems else 200,
            wanted=wanted,
            begin=begin,
            a=a,
            b=b,
            answer=answer,
            problems=problems,
            missing=missing,
            signs=SIGNS,
            spans=dict(SPANS) | ({} if wanted.since in dict(SPANS) else {wanted.since: wanted.since}),
            apps=sorted({version.app for version in versions} | {name for name, _ in site.apps()})[:MAX_APPS],
            choices=list(dict.fromkeys([*begin.values[::-1], *filter(None, (a, b))])),
            digits=DIGITS,
            **_beside(site, answer, begin.by, b, captured.since(wanted.since, now)),
            alpha=comparing.ALPHA,
            most_questions=MOST_QUESTIONS,
            periods=begin.by == PERIOD,
            words=WORDS,
            presets=PRESETS,
            said=period_words if begin.by == PERIOD else str,
            trials=[report for report in trials if wanted.app in ("", report.app)][:MAX_TRIALS],
            ends=TEXTS["trial_ends"],
            period_examples=(*PERIODS, "48h..24h", "24h..now"),
        )

    return [compare]
