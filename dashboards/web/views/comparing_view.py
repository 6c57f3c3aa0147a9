"""Two versions side by side as the page shows them: which ones to begin with, the verdict in words, both over time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from dashboards.web.charts import Dot, Line, timeline
from dashboards.web.format import MIN_N, number
from monitors.alerting.versions import Version
from monitors.analysis.ab_binned import Parts, estimate
from monitors.analysis.ab_compare import Compared, Sides
from monitors.statistics.confidence_sequence import closed_window
from monitors.statistics.weighted_mean import Estimate, hajek
from monitors.storage.stores import Point, ScoreHistogram

SIGNS = {"ship": "✓", "roll back": "✗", "not enough data": "…"}
BINS, LEAST_BINS, PER_BIN, FEW = 24, 6, 40, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What the page begins with: by what versions are told apart, the two latest, and every value that was seen."""

    by: str
    a: str
    b: str
    kinds: tuple[str, ...]
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One app and metric under both versions, with its chart."""

    compared: Compared
    chart: Markup
    lower_is_better: bool


def start(versions: Sequence[Version], *, by: str = "", app: str = "", kinds: Iterable[str] = ()) -> Start:
    """Choose what was not said: the kind that changed last, of it the latest version and the one before.

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
    """The rows of the table with their charts; what is decided comes first."""
    sides = {(one.app, one.metric): one for one in everything}
    order = ("roll back", "ship", "not enough data")
    rows = [
        Row(compared=one, chart=chart(sides[one.app, one.metric], names), lower_is_better=one.metric in lower)
        for one in compared
    ]
    return sorted(rows, key=lambda row: (order.index(row.compared.decision), row.compared.app, row.compared.metric))


def chart(sides: Sides | Parts, names: tuple[str, str]) -> Markup:
    """Both versions' means over time; no picture where there is too little."""
    if not (sides.champion or sides.challenger):
        return Markup("")
    since, until, width, both = _counted(sides) if isinstance(sides, Parts) else _one_by_one(sides)
    if not any(both):
        return Markup("")
    told = [
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
        desc="; ".join(told),
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
    """Days stay whole: a dot is as wide as the widest part at least."""
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
    """Means of equal times from `since` on; none where there are too few scores, a band only where it has a basis."""
    bins: dict[int, list[Point]] = {}
    for one in points:
        bins.setdefault(int((one.started_at - since) / width), []).append(one)
    found = []
    for index, some in sorted(bins.items()):
        if len(some) < FEW:
            continue
        known = hajek([one.value or 0.0 for one in some], [one.rate for one in some])
        found.append(_dot(since + (index + 0.5) * width, known))
    return found


def verdict(rows: Iterable[Compared], decision: str, a: str, b: str) -> dict[str, Any]:
    """The whole in a sentence."""
    some = list(rows)
    if decision == "roll back":
        worse = [f"{one.metric} of {one.app}" for one in some if one.decision == "roll back"]
        words = f"{b} is worse than {a} by more than the margin: {', '.join(worse[:5])}."
        return {"kind": "bad", "words": f"Roll back. {words}"}
    if decision == "ship":
        return {"kind": "good", "words": f"Ship. {b} is nowhere worse than {a} by more than the margin."}
    open_ = [one for one in some if one.decision == "not enough data"]
    more = [one.more for one in open_ if one.more is not None]
    needed = f" About {max(more):,} more scores are needed, if the difference stays." if len(more) == len(open_) else ""
    return {"kind": "warn", "words": f"Not enough data yet to choose between {a} and {b}.{needed}"}
