"""SVG charts. Pure; every chart has a title and a description as its text alternative.

Colours come from the style sheet by class, so that charts follow the page's light or dark scheme.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from dashboards.web.format import iso
from monitors.statistics.levels import Level

INTERVALS = 6
"""Largest number of intervals between the ticks of an axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A series; `kind` (1 or 2) selects colour and dashes. Dots more than `gap_s` apart are not connected."""

    dots: Sequence[Dot]
    label: str = ""
    kind: int = 1
    gap_s: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A labelled vertical line."""

    at: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Maps times and values to coordinates of the plot area."""

    since: float
    until: float
    low: float
    high: float
    left: float
    top: float
    width: float
    height: float

    def x(self, at: float) -> float:
        """Horizontal coordinate of a time, clamped to the frame."""
        span = max(1e-9, self.until - self.since)
        return round(self.left + self.width * min(1.0, max(0.0, (at - self.since) / span)), 1)

    def y(self, value: float) -> float:
        """Vertical coordinate of a value, clamped to the frame."""
        span = max(1e-9, self.high - self.low)
        return round(self.top + self.height * (1.0 - min(1.0, max(0.0, (value - self.low) / span))), 1)


def sparkline(
    dots: Sequence[Dot],
    *,
    title: str,
    desc: str = "",
    baseline: float | None = None,
    since: float | None = None,
    until: float | None = None,
    gap_s: float = math.inf,
) -> Markup:
    """Small chart without axes: means, confidence band, dashed baseline."""
    if not dots:
        return Markup("")
    low, high = scale([dots], () if baseline is None else (baseline,))
    frame = Frame(
        since=dots[0].at if since is None else since,
        until=dots[-1].at if until is None else until,
        low=low,
        high=high,
        left=2.0,
        top=3.0,
        width=156.0,
        height=34.0,
    )
    parts = [_baseline(frame, baseline)] if baseline is not None else []
    parts += _series(frame, Line(dots=dots, gap_s=gap_s))
    return _svg("spark", (160, 40), title, desc, parts)


def trend_line(
    dots: Sequence[Dot],
    *,
    title: str,
    since: float,
    until: float,
    baseline: float | None = None,
    gap_s: float = math.inf,
) -> Markup:
    """Small chart without axes: means and dashed baseline; the table it stands in has the interval."""
    if not dots:
        return Markup("")
    low, high = scale([dots], () if baseline is None else (baseline,))
    frame = Frame(since=since, until=until, low=low, high=high, left=2.0, top=3.0, width=96.0, height=20.0)
    parts = [_baseline(frame, baseline)] if baseline is not None else []
    parts += _series(frame, Line(dots=dots, gap_s=gap_s))
    drawn = Markup(
        '<svg class="trend" viewBox="0 0 100 26" width="100" height="26" role="img" aria-label="{}">{}</svg>'
    )
    return drawn.format(title, Markup("").join(parts))


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
    parts = [_value_tick(frame, value, minor=index % 2 == 1) for index, value in enumerate(ticks(low, high))]
    parts += [_time_tick(frame, at) for at in time_ticks(since, until)]
    if baseline is not None:
        parts.append(_baseline(frame, baseline))
    parts += [part for line in lines for part in _series(frame, line)]
    parts += [_mark(frame, mark) for mark in marks]
    return _svg("chart", (1010, 236), title, desc, parts)


def bars(
    counts: Sequence[int], *, title: str, desc: str = "", edges: Sequence[str] = (), times: Sequence[str] = ()
) -> Markup:
    """Histogram; each bar has its range and count as a tooltip.

    `edges` name the bounds of the bins, one more than there are bins; five of them are written below the axis.
    `times` are the same bounds as ISO times, where they are times: the browser shows them in local time if asked.
    """
    tallest, width = max([1, *counts]), 332.0 / max(1, len(counts))
    named = list(edges) if len(edges) == len(counts) + 1 else []
    parts = []
    for index, count in enumerate(counts):
        height = 90.0 * count / tallest
        label = f"{named[index]} to {named[index + 1]}" if named else str(index + 1)
        parts.append(
            Markup('<rect class="bar" x="{}" y="{}" width="{}" height="{}"><title>{}: {}</title></rect>').format(
                *(round(4 + width * index, 1), round(96 - height, 1), round(max(1.0, width - 1.5), 1)),
                *(round(height, 1), label, count),
            )
        )
    parts.append(Markup('<line class="axis" x1="4" y1="96" x2="336" y2="96"/>'))
    every = max(1, math.ceil(len(counts) / 4))
    for index in range(0, len(named), every):
        side = "start" if index == 0 else "end" if index == len(counts) else "mid"
        at = Markup(' data-at="{}"').format(times[index]) if times else ""
        text = Markup('<text x="{}" y="111" class="{}"{}>{}</text>')
        parts.append(text.format(round(4 + width * index, 1), side, at, named[index]))
    return _svg("histogram", (340, 116 if named else 100), title, desc, parts)


def meter(share: float, *, title: str) -> Markup:
    """Horizontal bar filled to `share` (0 to 1)."""
    filled = round(200.0 * min(1.0, max(0.0, share)), 1)
    parts = [
        Markup('<rect class="rest" width="200" height="10" rx="3"/>'),
        Markup('<rect class="bar" width="{}" height="10" rx="3"/>').format(filled),
    ]
    return _svg("meter", (200, 10), title, "", parts)


def scale(series: Iterable[Sequence[Dot]], more: Iterable[float] = ()) -> tuple[float, float]:
    """The smallest range within [0, 1] that holds all values and intervals, with some padding.

    >>> scale([[Dot(at=0.0, mean=0.9)]])
    (0.84, 0.96)
    """
    values = [value for dots in series for dot in dots for value in (dot.mean, dot.low, dot.high) if value is not None]
    values += more
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
    steps = (60, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000)
    step = next((seconds for seconds in steps if (until - since) / seconds <= INTERVALS), steps[-1])
    return [float(index * step) for index in range(math.ceil(since / step), math.floor(until / step) + 1)][:40]


def _series(frame: Frame, line: Line) -> list[Markup]:
    parts = []
    for run in _runs(line.dots, line.gap_s):
        banded = [dot for dot in run if dot.low is not None and dot.high is not None]
        if len(banded) > 1:
            upper = [f"{frame.x(dot.at)},{frame.y(dot.high or 0.0)}" for dot in banded]
            lower = [f"{frame.x(dot.at)},{frame.y(dot.low or 0.0)}" for dot in reversed(banded)]
            parts.append(Markup('<polygon class="band k{}" points="{}"/>').format(line.kind, " ".join(upper + lower)))
        points = " ".join(f"{frame.x(dot.at)},{frame.y(dot.mean)}" for dot in run)
        if len(run) > 1:
            parts.append(Markup('<polyline class="line k{}" points="{}"/>').format(line.kind, points))
        parts += [_dot(frame, dot, line.kind) for dot in ((run[-1],) if len(run) > 1 else run)]
    return parts


def _runs(dots: Sequence[Dot], gap_s: float) -> list[list[Dot]]:
    """Split a series at gaps longer than `gap_s`, so that no line is drawn across missing data."""
    runs: list[list[Dot]] = []
    for dot in dots:
        if runs and dot.at - runs[-1][-1].at <= gap_s:
            runs[-1].append(dot)
        else:
            runs.append([dot])
    return runs


def _dot(frame: Frame, dot: Dot, kind: int) -> Markup:
    return Markup('<circle class="dot k{}" cx="{}" cy="{}" r="2.5"/>').format(kind, frame.x(dot.at), frame.y(dot.mean))


def _baseline(frame: Frame, value: float) -> Markup:
    y, right = frame.y(value), frame.left + frame.width
    return Markup('<line class="baseline" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(frame.left, y, right, y)


def _value_tick(frame: Frame, value: float, *, minor: bool) -> Markup:
    """A grid line with its value; narrow screens hide the text of `minor` ones."""
    y = frame.y(value)
    tick = Markup('<line class="grid" x1="{}" y1="{}" x2="{}" y2="{}"/><text x="{}" y="{}" class="value{}">{}</text>')
    right, minor_class = frame.left + frame.width, " minor" if minor else ""
    return tick.format(frame.left, y, right, y, frame.left - 6, y, minor_class, f"{value:.2f}")


def _time_tick(frame: Frame, at: float) -> Markup:
    x, bottom = frame.x(at), frame.top + frame.height
    text = iso(at)
    label = text[5:10] if frame.until - frame.since > 4 * 86_400 or text[11:16] == "00:00" else text[11:16]
    line = Markup('<line class="axis" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(x, bottom, x, bottom + 4)
    return line + Markup('<text x="{}" y="{}" class="mid" data-at="{}">{}</text>').format(x, bottom + 18, text, label)


def _mark(frame: Frame, mark: Mark) -> Markup:
    x = frame.x(mark.at)
    side = "end" if x > frame.left + frame.width / 2 else "start"
    line = Markup('<line class="mark" x1="{}" y1="{}" x2="{}" y2="{}"/><text x="{}" y="{}" class="mark {}">{}</text>')
    return line.format(
        *(x, frame.top - 6, x, frame.top + frame.height, x + (-5 if side == "end" else 5), frame.top - 8),
        *(side, mark.label),
    )


def _svg(kind: str, size: tuple[int, int], title: str, desc: str, parts: Iterable[Markup]) -> Markup:
    description = Markup("<desc>{}</desc>").format(desc) if desc else Markup("")
    return Markup(
        '<svg class="{}" viewBox="0 0 {} {}" width="{}" height="{}" role="img" aria-label="{}">'
        "<title>{}</title>{}{}</svg>"
    ).format(
        *(kind, *size, *size, f"{title}. {desc}" if desc else title, title, description),
        Markup("").join(parts),
    )
