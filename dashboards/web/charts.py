"""Charts as SVG, from the files in `drawings`; each has its title as the text alternative.

Colours come from the style sheet by class, so that charts follow the page's light or dark scheme. Where there is
JavaScript, the charts of an app are replaced by interactive ones (`static/charts.js`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from jinja2 import PackageLoader
from markupsafe import Markup
from msgspec import Struct

from dashboards.web import format as words
from dashboards.web.templating import FILTERS, environment
from monitors.statistics.confidence_sequence import Level

INTERVALS = 6
"""Largest number of intervals between the ticks of an axis."""
STEPS_S = (60, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000)
_TICKS = 40
_DATES_FROM_S = 4 * 86_400
DRAWINGS = environment(PackageLoader("dashboards.web", "drawings"), FILTERS | {"ago": words.when})
"""Charts and phrases that Python fills in."""


def drawn(drawing: str, **parts: Any) -> Markup:
    """Fill in one of the drawings."""
    return Markup(DRAWINGS.get_template(f"{drawing}.svg").render(parts))  # noqa: S704 - the drawings escape texts


class Dot(Struct, frozen=True, kw_only=True):
    """A mean at time `at` (Unix seconds), with its interval if there are enough scores."""

    at: float
    mean: float
    low: float | None = None
    high: float | None = None
    n: int = 0

    @staticmethod
    def of(at: float, level: Level) -> Dot:
        """The dot of a mean with its interval."""
        return Dot(at=at, mean=level.mean, low=level.low, high=level.high, n=level.n)


class Line(Struct, frozen=True, kw_only=True):
    """A series; `kind` (1 or 2) selects colour and dashes. Dots more than `gap_s` apart are not connected."""

    dots: Sequence[Dot]
    kind: int = 1
    gap_s: float = math.inf

    def runs(self) -> list[list[Dot]]:
        """Split the series at gaps, so that no line is drawn across missing data."""
        runs: list[list[Dot]] = []
        for dot in self.dots:
            if runs and dot.at - runs[-1][-1].at <= self.gap_s:
                runs[-1].append(dot)
            else:
                runs.append([dot])
        return runs


class Mark(Struct, frozen=True, kw_only=True):
    """A labelled vertical line."""

    at: float
    label: str


class Frame(Struct, frozen=True, kw_only=True):
    """Maps times and values to coordinates of the plot area."""

    since: float
    until: float
    low: float = 0.0
    high: float = 1.0
    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Its right edge."""
        return self.left + self.width

    @property
    def middle(self) -> float:
        """Half-way between its left and right edges."""
        return self.left + self.width / 2

    @property
    def bottom(self) -> float:
        """Its lower edge."""
        return self.top + self.height

    @property
    def seconds(self) -> float:
        """How long a time it shows."""
        return max(1e-9, self.until - self.since)

    def x(self, at: float) -> float:
        """Horizontal coordinate of a time, clamped to the frame."""
        return round(self.left + self.width * min(1.0, max(0.0, (at - self.since) / self.seconds)), 1)

    def y(self, value: float) -> float:
        """Vertical coordinate of a value, clamped to the frame."""
        span = max(1e-9, self.high - self.low)
        return round(self.top + self.height * (1.0 - min(1.0, max(0.0, (value - self.low) / span))), 1)

    def points(self, dots: Iterable[Dot], value: str) -> str:
        """Coordinates of one of the dots' values: `mean`, `low` or `high`."""
        return " ".join(f"{self.x(dot.at)},{self.y(getattr(dot, value))}" for dot in dots)

    def times(self) -> Iterator[tuple[float, str, str]]:
        """Yield the ticks of the time axis: time, the same as ISO text, and label."""
        for at in time_ticks(self.since, self.until):
            text = words.iso(at)
            clock = text[11:16]
            yield at, text, words.day(at) if self.seconds > _DATES_FROM_S or clock == "00:00" else clock


def sparkline(
    dots: Sequence[Dot],
    *,
    title: str,
    since: float,
    until: float,
    gap_s: float,
    desc: str = "",
    baseline: float | None = None,
    width: float = 160.0,
    height: float = 40.0,
) -> Markup:
    """Small chart without axes, on a scale of its own: means with their confidence band, and a dashed baseline."""
    low, high = scale([dots], () if baseline is None else (baseline,))
    size: dict[str, float] = {"left": 2.0, "top": 3.0, "width": width - 4.0, "height": height - 6.0}
    frame = Frame(since=since, until=until, low=low, high=high, **size)
    parts = {"frame": frame, "line": Line(dots=dots, gap_s=gap_s), "baseline": baseline}
    return drawn("sparkline", title=title, desc=desc, **parts)


def timeline(
    lines: Sequence[Line],
    *,
    title: str,
    desc: str = "",
    since: float,
    until: float,
    baseline: float | None = None,
    marks: Sequence[Mark] = (),
) -> Markup:
    """Chart with axes: values up to 1, UTC times, dashed baseline, marks as vertical lines."""
    low, high = scale([line.dots for line in lines], () if baseline is None else (baseline,))
    frame = Frame(since=since, until=until, low=low, high=high, left=44.0, top=22.0, width=950.0, height=190.0)
    parts = {"frame": frame, "ticks": ticks(low, high), "lines": lines, "baseline": baseline, "marks": marks}
    return drawn("timeline", title=title, desc=desc, **parts)


def bars(
    counts: Sequence[int], *, title: str, desc: str = "", edges: Sequence[str] = (), times: Sequence[str] = ()
) -> Markup:
    """Histogram; each bar has its range and count as a tooltip.

    `edges` name the bounds of the bins, one more than there are bins; five of them are written below the axis.
    `times` are the same bounds as ISO times, where they are times: the browser shows them in local time if asked.
    """
    every, tallest = max(1, math.ceil(len(counts) / 4)), max([1, *counts])
    parts = {"counts": counts, "edges": edges, "times": times, "every": every, "tallest": tallest}
    return drawn("bars", title=title, desc=desc, **parts)


def scale(series: Iterable[Sequence[Dot]], more: Iterable[float] = ()) -> tuple[float, float]:
    """The smallest range within [0, 1] that holds all values and most intervals, with some padding.

    The widest twentieth of the intervals may go beyond it: those of the first and the last step have few scores.

    >>> scale([[Dot(at=0.0, mean=0.9)]])
    (0.84, 0.96)
    """
    dots = [dot for some in series for dot in some]
    lows = sorted(dot.low for dot in dots if dot.low is not None)
    highs = sorted(dot.high for dot in dots if dot.high is not None)
    edges = [lows[len(lows) // 20], highs[-1 - len(highs) // 20]] if lows and highs else []
    values = [*(dot.mean for dot in dots), *edges, *more]
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    room = max(0.1 * (high - low), 0.06 - (high - low) / 2.0, 0.01)
    return round(max(0.0, low - room), 3), round(min(1.0, high + room), 3)


def ticks(low: float, high: float) -> list[float]:
    """Three to seven round values within a range.

    >>> ticks(0.82, 0.97)
    [0.85, 0.9, 0.95]
    """
    step = next((width for width in (0.01, 0.02, 0.05, 0.1, 0.2, 0.25) if (high - low) / width <= INTERVALS), 0.5)
    first = math.ceil(round(low / step, 6))
    return [round(index * step, 4) for index in range(first, math.floor(round(high / step, 6)) + 1)]


def time_ticks(since: float, until: float) -> list[float]:
    """About seven times on full minutes, hours or days.

    >>> time_ticks(0.0, 7200.0)
    [0.0, 1800.0, 3600.0, 5400.0, 7200.0]
    """
    step = next((seconds for seconds in STEPS_S if (until - since) / seconds <= INTERVALS), STEPS_S[-1])
    first, last = math.ceil(since / step), math.floor(until / step)
    return [float(index * step) for index in range(first, last + 1)][:_TICKS]


_ROUND = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0)


class Effect(Struct, frozen=True, kw_only=True):
    """A gain of B over A, positive if B is better, with its interval if there is one."""

    gain: float
    low: float | None = None
    high: float | None = None


class Scale(NamedTuple):
    """The ends of the common scale of effects, below and above 0."""

    low: float
    high: float

    def x(self, value: float) -> float:
        """Where a value is drawn, in per cent of the width."""
        share = (min(self.high, max(self.low, value)) - self.low) / (self.high - self.low)
        return round(1.0 + 98.0 * share, 2)


def effect_of(difference: float, low: float | None, high: float | None, *, lower_is_better: bool) -> Effect:
    """The effect of a difference B - A on the metric's own scale.

    >>> effect_of(0.1, 0.05, 0.2, lower_is_better=True)
    Effect(gain=-0.1, low=-0.2, high=-0.05)
    """
    if not lower_is_better:
        return Effect(gain=difference, low=low, high=high)
    return Effect(gain=-difference, low=None if high is None else -high, high=None if low is None else -low)


def scale_of(effects: Iterable[Effect], margin: float) -> Scale:
    """The common scale: all effects, most ends of their intervals, and the margin lie within.

    >>> scale_of([Effect(gain=0.01, low=-0.02, high=0.08)], 0.02), scale_of([], 0.0)
    (Scale(low=-0.03, high=0.08), Scale(low=-0.01, high=0.01))
    """
    known = list(effects)
    below = _reach(
        [-effect.low for effect in known if effect.low is not None], [-effect.gain for effect in known], margin
    )
    above = _reach(
        [effect.high for effect in known if effect.high is not None], [effect.gain for effect in known], margin
    )
    return Scale(-below, above)


def _reach(ends: list[float], gains: list[float], margin: float) -> float:
    most = sorted(ends)[math.ceil(0.9 * len(ends)) - 1] if ends else 0.0
    wanted = max([most, 1.5 * margin, *gains])
    return next((bound for bound in _ROUND if bound >= wanted), _ROUND[-1])


def forest_row(effect: Effect, *, scale: Scale, margin: float, title: str) -> Markup:
    """The plot of one row: the margin as a band, no difference as a line, the interval and the effect.

    Its colour says on which side of the margin the interval lies. One that goes beyond the scale ends in an arrow.
    """
    kind = "open"
    if effect.low is not None and effect.high is not None:
        kind = "worse" if effect.high < -margin else "good" if effect.low > -margin else "open"
    return drawn("forest_row", effect=effect, scale=scale, margin=margin, title=title, kind=kind)


def forest_axis(scale: Scale, margin: float) -> Markup:
    """The scale, to stand above the rows."""
    return drawn("forest_axis", scale=scale, margin=margin)
