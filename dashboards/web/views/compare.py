"""Compare: the version in use against a new one on the app's own traffic. Ship, roll back, or not enough data."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from cachetools import FIFOCache
from litestar import get
from litestar.response import Template
from markupsafe import Markup

from dashboards.web.charts import Dot, Line, timeline
from dashboards.web.format import MIN_N, number
from dashboards.web.site import Page, Site
from monitors.alerting.versions import Version
from monitors.analysis import ab_compare as comparing
from monitors.analysis import captured
from monitors.analysis.ab_binned import Parts, estimate
from monitors.analysis.ab_compare import Compared, Sides
from monitors.analysis.ab_query import UnknownVersionError, VersionQuery, keys_of, read
from monitors.metrics import LOWER_IS_BETTER
from monitors.statistics.clusters import groups_of
from monitors.statistics.confidence_sequence import closed_window
from monitors.statistics.weighted_mean import Estimate, hajek
from monitors.storage.stores import Point, ScoreHistogram, Store

SINCE, MAX_FIELD = "7d", 300
SPANS = (("24h", "24 hours"), ("7d", "7 days"), ("30d", "30 days"))
MOST, READING_S = 10_000, 2.0
"""Where the store cannot aggregate: scores read per version, and the time limit for reading."""
MOST_QUESTIONS, WITHIN_S = 1000, 0.12
"""Scores of both versions up to which they are read individually with their questions; time limit for counting."""
FRESH_S, PARTIAL_S, _KEPT = 60.0, 2.0, 20
MAX_APPS = 200
"""Apps offered for selection; others can be typed."""
LONGEST_S = 366 * 86_400.0
"""Longest period of a comparison: the store is queried day by day."""
SIGNS = {"ship": "✓", "roll back": "✗", "not enough data": "…"}
BINS, LEAST_BINS, PER_BIN, FEW = 24, 6, 40, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Defaults of the form: the kind of version, the two latest values `a` and `b`, and the known kinds and values."""

    by: str
    a: str
    b: str
    kinds: tuple[str, ...]
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Table row: one app and metric under both versions, with its chart."""

    compared: Compared
    chart: Markup
    lower_is_better: bool


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
    """A comparison made at `at` (Unix seconds); `capped` if only part of the scores could be read."""

    rows: Sequence[Row]
    decision: str
    verdict: Mapping[str, Any]
    capped: bool
    at: float


def parse_form(params: Mapping[str, str]) -> CompareForm:
    """Parse and validate the form.

    >>> parse_form({"by": "model", "delta": "2"}).problems
    ('the margin must be at least 0 and below 1',)
    """
    given = {name: params.get(name, "").strip()[:MAX_FIELD] for name in ("by", "a", "b", "app", "since", "delta")}
    problems = []
    if given["by"] and given["by"] not in ("model", "prompt") and not given["by"].startswith("tag:"):
        problems.append("compare by model, prompt or tag:NAME")
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
    return CompareForm(
        by=given["by"],
        a=given["a"],
        b=given["b"],
        app=given["app"],
        since=given["since"] or SINCE,
        margin=margin,
        problems=tuple(problems),
    )


def start(versions: Sequence[Version], *, by: str = "", app: str = "", kinds: Iterable[str] = ()) -> Start:
    """Choose defaults: the kind of version that changed last, its latest value as `b` and the one before as `a`.

    >>> seen = [Version(app="a", kind="model", value=one, first_seen=at, exchanges=30) for at, one in enumerate("xyz")]
    >>> start(seen)
    Start(by='model', a='y', b='z', kinds=('model', 'prompt'), values=('x', 'y', 'z'))
    """
    ours = [one for one in versions if app in ("", one.app)]
    values: dict[str, dict[str, float]] = {}
    for one in ours:
        known = values.setdefault(one.kind, {})
        known[one.value] = min(one.first_seen, known.get(one.value, one.first_seen))
    several = {kind: max(known.values()) for kind, known in values.items() if len(known) > 1}
    chosen = by or max(several, key=several.__getitem__, default="model")
    known = values.get(chosen, {})
    latest = sorted(known, key=lambda one: (known[one], one))
    a, b = latest[-2:] if len(latest) > 1 else ("", "")
    every = dict.fromkeys(["model", "prompt", *sorted({*values, *kinds, chosen})])
    return Start(by=chosen, a=a, b=b, kinds=tuple(every), values=tuple(latest[-200:]))


def rows_of(
    everything: Sequence[Sides | Parts], compared: Sequence[Compared], *, names: tuple[str, str], lower: Collection[str]
) -> list[Row]:
    """Table rows with their charts, decided ones first."""
    sides = {(one.app, one.metric): one for one in everything}
    order = ("roll back", "ship", "not enough data")
    rows = [
        Row(compared=one, chart=chart(sides[one.app, one.metric], names), lower_is_better=one.metric in lower)
        for one in compared
    ]
    return sorted(rows, key=lambda row: (order.index(row.compared.decision), row.compared.app, row.compared.metric))


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
        [
            Line(dots=some, label=name, kind=kind, gap_s=2.5 * width)
            for kind, name, some in zip((1, 2), names, both, strict=True)
        ],
        title=f"{sides.metric} of {sides.app} over time",
        desc="; ".join(descriptions),
        since=since,
        until=max(until, since + 60.0),
    )


def _one_by_one(sides: Sides) -> tuple[float, float, float, list[list[Dot]]]:
    points = (*sides.champion, *sides.challenger)
    since, until = min(one.started_at for one in points), max(one.started_at for one in points)
    bins = max(LEAST_BINS, min(BINS, len(points) // (2 * PER_BIN)))
    width = max((until - since) / bins, 1.0)
    return since, until, width, [dots(some, since, width) for some in (sides.champion, sides.challenger)]


def _counted(sides: Parts) -> tuple[float, float, float, list[list[Dot]]]:
    """Dots from binned scores. Days are not split: a dot spans at least the widest bin of the store."""
    parts = (*sides.champion, *sides.challenger)
    since, until = min(one.since for one in parts), max(one.until for one in parts)
    width = max((until - since) / BINS, *(one.until - one.since for one in parts))
    both = []
    for side in (sides.champion, sides.challenger):
        bins: dict[int, list[ScoreHistogram]] = {}
        for one in side:
            bins.setdefault(int(((one.since + one.until) / 2.0 - since) / width), []).append(one)
        known = ((index, estimate(some)) for index, some in sorted(bins.items()))
        both.append([_dot(since + (at + 0.5) * width, one) for at, one in known if one is not None and one.n >= FEW])
    return since, until, width, both


def _dot(at: float, known: Estimate) -> Dot:
    low, high = closed_window(known) if known.n_eff >= MIN_N else (None, None)
    return Dot(at=at, mean=min(1.0, max(0.0, known.mean)), low=low, high=high, n=known.n)


def dots(points: Iterable[Point], since: float, width: float) -> list[Dot]:
    """Means in bins of `width` seconds; bins with fewer than `FEW` scores have no dot, few effective scores no band."""
    bins: dict[int, list[Point]] = {}
    for one in points:
        bins.setdefault(int((one.started_at - since) / width), []).append(one)
    found = []
    for index, some in sorted(bins.items()):
        if len(some) < FEW:
            continue
        groups = groups_of([one.cluster for one in some])
        known = hajek([one.value or 0.0 for one in some], [one.rate for one in some], groups)
        found.append(_dot(since + (index + 0.5) * width, known))
    return found


def verdict(rows: Iterable[Compared], decision: str, a: str, b: str) -> dict[str, Any]:
    """Overall verdict: its style (`kind`) and a sentence."""
    some = list(rows)
    if decision == "roll back":
        worse = [f"{one.metric} of {one.app}" for one in some if one.decision == "roll back"]
        words = f"{b} is worse than {a} by more than the margin: {', '.join(worse[:5])}."
        return {"kind": "bad", "words": f"Roll back. {words}"}
    if decision == "ship":
        return {"kind": "good", "words": f"Ship. {b} is not worse than {a} by more than the margin on any metric."}
    open_ = [one for one in some if one.decision == "not enough data"]
    more = [one.more for one in open_ if one.more is not None]
    needed = (
        f" About {max(more):,} more scores are needed if the difference persists." if len(more) == len(open_) else ""
    )
    return {"kind": "warn", "words": f"Not enough data to decide between {a} and {b}.{needed}"}


class Comparisons:
    """Runs one comparison at a time and caches results for a minute (2 s for partial ones)."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turn = asyncio.Semaphore(1)
        self._known: FIFOCache[CompareForm, Answer] = FIFOCache(_KEPT)

    async def of(self, wanted: CompareForm, now: float, lower: frozenset[str]) -> Answer:
        """Compare two versions, cached.

        Raises ValueError if they cannot be compared, UnknownVersionError if one has no score.
        """
        async with self._turn:
            known = self._known.get(wanted)
            if known is None or now - known.at > (PARTIAL_S if known.capped else FRESH_S):
                known = self._known[wanted] = await self._compared(wanted, now, lower)
        return known

    async def _compared(self, wanted: CompareForm, now: float, lower: frozenset[str]) -> Answer:
        since = captured.since(wanted.since, now)
        everything, partial_ = await read(
            self._store,
            VersionQuery(
                by=wanted.by,
                a=wanted.a,
                b=wanted.b,
                since=since,
                until=now + 1.0,
                app=wanted.app or None,
                few=MOST_QUESTIONS,
                most=MOST,
                within_s=WITHIN_S,
                reading_s=READING_S,
            ),
        )
        keys = await keys_of(self._store, everything, "auto", most=MOST_QUESTIONS)
        work = partial(comparing.compare, margin=wanted.margin, keys=keys, lower_is_better=lower.__contains__)
        compared = await asyncio.to_thread(work, everything)
        decision = comparing.decision(compared) if compared else "not enough data"
        return Answer(
            rows=await asyncio.to_thread(rows_of, everything, compared, names=(wanted.a, wanted.b), lower=lower),
            decision=decision,
            verdict=verdict(compared, decision, wanted.a, wanted.b),
            capped=partial_,
            at=now,
        )


def compare_view_handlers(site: Site) -> list[Any]:
    """The handlers of `/compare`."""
    comparisons = Comparisons(site.insight.store)
    configured = [one for one in site.config.alerts.slices if one.startswith("tag:")]

    @get("/compare")
    async def compare(request: Page) -> Template:
        wanted, now = parse_form(request.query_params), site.clock()
        versions = site.engine.versions.all()
        begin = start(versions, by=wanted.by, app=wanted.app, kinds=configured)
        a, b = wanted.a, wanted.b
        if not (a or b):
            a, b = begin.a, begin.b
        about = await site.insight.status()
        lower = LOWER_IS_BETTER | {one["name"] for one in about["metrics"] if one["lower_is_better"]}
        answer, problems, missing = None, list(wanted.problems), ""
        if captured.since(wanted.since, now) < now - LONGEST_S:
            problems.append("since: at most one year ago")
        if a and b and not problems:
            chosen = CompareForm(by=begin.by, a=a, b=b, app=wanted.app, since=wanted.since, margin=wanted.margin)
            try:
                answer = await comparisons.of(chosen, now, lower)
            except UnknownVersionError as error:
                missing = str(error)
            except ValueError as error:
                problems.append(str(error))
        return site.render(
            request,
            "compare.html",
            title="Compare versions",
            status=400 if problems else 200,
            wanted=wanted,
            begin=begin,
            a=a,
            b=b,
            answer=answer,
            problems=problems,
            missing=missing,
            signs=SIGNS,
            spans=SPANS,
            apps=sorted({one.app for one in versions} | {one.app for one in site.insight.quality()})[:MAX_APPS],
            alpha=comparing.ALPHA,
        )

    return [compare]
