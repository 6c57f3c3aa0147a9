"""Reports of a simulation: a table in Markdown, HTML and JSON, and a chart in SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict

from monitors.analysis.simulate import LONGEST_SCORES, Found, Simulated

KINDS = (".md", ".html", ".svg", ".json")
NOT_FOUND = "not found"
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 760, 420, 80, 250, 40, 50
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b")
_TICKS = {60.0: "1 min", 600.0: "10 min", 3600.0: "1 h", 21_600.0: "6 h", 86_400.0: "1 d", 604_800.0: "7 d"}
_HOURS_FROM, _DAYS_FROM = 5400.0, 172_800.0
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:62rem;padding:0 1rem}"
    "table{border-collapse:collapse}td,th{border-bottom:1px solid #ccc;padding:.3rem .7rem;text-align:left}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The results of a simulation; `about` are sentences on the traffic and the meaning of the numbers."""

    title: str
    about: tuple[str, ...]
    rows: tuple[Simulated, ...]


def table(rows: Sequence[Simulated]) -> list[list[str]]:
    """Return the header and one line per setting."""
    drops = [f"drop {finding.drop:g}" for finding in rows[0].found] if rows else []
    lines = [["setting", "m0", "false alarms in 30 days", *drops]]
    for row in rows:
        alarms = f"{row.alarms / row.months:.2f}" if row.months else "-"
        of = f"{row.alarms} in {row.months:.1f} months; budget {row.promised:.3g}"
        m0 = "not learned" if row.m0 is None else f"{row.m0:.3f}"
        lines.append([row.setting.name, m0, f"{alarms} ({of})", *map(cell, row.found)])
    return lines


def cell(found: Found) -> str:
    """Format the median and the 90 % quantile of one drop, in scores and in time.

    >>> cell(Found(drop=0.1, scores=135, scores_90=235, seconds=810.0, seconds_90=7200.0))
    '135 (235) scores, 14 min (2.0 h)'
    >>> cell(Found(drop=0.1, scores=None, scores_90=None, seconds=None, seconds_90=None))
    'not found'
    """
    scores, time = delays(found)
    return f"{scores} scores, {time}" if time else scores


def delays(found: Found) -> tuple[str, str]:
    """Format the median and the 90 % quantile in scores, and in time; only "not found" for a drop that was not.

    >>> delays(Found(drop=0.1, scores=135, scores_90=None, seconds=810.0, seconds_90=None))
    ('135 (> 20,000)', '14 min (longer)')
    """
    if found.scores is None or found.seconds is None:
        return NOT_FOUND, ""
    scores = f"> {LONGEST_SCORES:,}" if found.scores_90 is None else f"{found.scores_90:,}"
    time = "longer" if found.seconds_90 is None else duration(found.seconds_90)
    return f"{found.scores:,} ({scores})", f"{duration(found.seconds)} ({time})"


def duration(seconds: float) -> str:
    """Format a duration.

    >>> duration(600.0), duration(7200.0), duration(400_000.0)
    ('10 min', '2.0 h', '4.6 d')
    """
    if seconds < _HOURS_FROM:
        return f"{max(1.0, seconds / 60.0):.0f} min"
    return f"{seconds / 3600.0:.1f} h" if seconds < _DAYS_FROM else f"{seconds / 86_400.0:.1f} d"


def markdown(report: Report) -> str:
    """Return the report as Markdown."""
    header, *lines = table(report.rows)
    body = [header, ["---"] * len(header), *lines]
    rows = ["| " + " | ".join(column.replace("|", "\\|") for column in line) + " |" for line in body]
    return "\n".join([f"# {report.title}", "", *report.about, "", *rows, ""])


def html(report: Report) -> str:
    """Return the report as an HTML page that includes the chart."""
    header, *lines = table(report.rows)
    head = "".join(f"<th>{escape(heading)}</th>" for heading in header)
    rows = "".join("<tr>" + "".join(f"<td>{escape(column)}</td>" for column in line) + "</tr>" for line in lines)
    about = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in report.about)
    title = escape(report.title)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f"</head><body><h1>{title}</h1>{about}{svg(report)}<table><tr>{head}</tr>{rows}</table></body></html>\n"
    )


def svg(report: Report) -> str:
    """Draw the median time to detection against the size of the drop, a line per setting."""
    drops = [finding.drop for finding in report.rows[0].found] if report.rows else []
    times = [finding.seconds for row in report.rows for finding in row.found if finding.seconds]
    low, high = math.log(min([60.0, *times])), math.log(max([86_400.0, *times]))
    across, up = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x(index: int) -> float:
        return _LEFT + across * (index + 0.5) / max(1, len(drops))

    def y(seconds: float) -> float:
        return _TOP + up * (1.0 - (math.log(seconds) - low) / (high - low))

    parts = [_text(_LEFT, _TOP - 18, "median time from the drop to the alarm", "start")]
    for seconds, word in _TICKS.items():
        if low <= math.log(seconds) <= high:
            parts.append(f'<path d="M{_LEFT} {y(seconds):.1f}h{across}" stroke="#ddd"/>')
            parts.append(_text(_LEFT - 8, y(seconds) + 4, word, "end"))
    parts += [_text(x(index), _HEIGHT - _BOTTOM + 22, f"drop {drop:g}", "middle") for index, drop in enumerate(drops)]
    for number, row in enumerate(report.rows):
        colour = _COLOURS[number % len(_COLOURS)]
        points = [(x(index), y(finding.seconds)) for index, finding in enumerate(row.found) if finding.seconds]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4" fill="{colour}"/>' for a, b in points]
        level = _TOP + 18 * number
        parts.append(f'<path d="M{_WIDTH - _RIGHT + 12} {level}h18" stroke="{colour}" stroke-width="3"/>')
        parts.append(_text(_WIDTH - _RIGHT + 36, level + 4, row.setting.name, "start"))
    size = f'width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><title>{escape(report.title)}</title>'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def plain(report: Report) -> dict[str, Any]:
    """Return the report as JSON-compatible values."""
    rows = []
    for row in report.rows:
        setting = {name: getattr(row.setting, name) for name in ("name", "tolerance", "budget_per_s", "rate")}
        numbers = {name: getattr(row, name) for name in ("m0", "alarms", "months", "promised")}
        rows.append({"setting": setting, **numbers, "found": [asdict(finding) for finding in row.found]})
    return {"title": report.title, "about": list(report.about), "rows": rows}


def check(path: Path) -> None:
    """Raise ValueError for a file suffix that is no report format."""
    if path.suffix not in KINDS:
        raise ValueError(f"--output: {path.name!r} must end in one of {', '.join(KINDS)}")


def write(path: Path, report: Report) -> None:
    """Write the report in the format of the suffix of `path`. Raises ValueError, OSError."""
    check(path)
    if path.suffix == ".json":
        text = msgspec.json.format(msgspec.json.encode(plain(report)), indent=2).decode() + "\n"
    else:
        text = {".md": markdown, ".html": html, ".svg": svg}[path.suffix](report)
    path.write_text(text, "utf-8")


def _text(x: float, y: float, words: str, anchor: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-family="sans-serif" font-size="12" fill="#333">{escape(words)}</text>'
