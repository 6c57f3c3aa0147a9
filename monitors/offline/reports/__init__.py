"""Reports on a run: a page, a text for a pull request, a machine's JSON, a test runner's XML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from monitors.offline import results_codec as wire

if TYPE_CHECKING:
    from monitors.metrics.latency import Latency
    from monitors.offline.comparison import Comparison
    from monitors.offline.results import Run
    from monitors.offline.thresholds import Floor

SUFFIXES = (".html", ".md", ".json", ".xml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What a report says beside the run: how the floors went, and how it compares with `against`."""

    floors: Sequence[Floor] = ()
    comparisons: Sequence[Comparison] = ()
    against: str = ""


NONE = Extras()


def taken(latency: Latency) -> str:
    """How long the answers took, in a line."""
    return (
        f"{latency.n} answers took {latency.mean:.2f} s on average: half of them up to "
        f"{latency.p50:.2f} s, 95 % up to {latency.p95:.2f} s, 99 % up to {latency.p99:.2f} s"
    )


def write(path: Path, run: Run, extras: Extras = NONE) -> None:
    """Write the report that the name asks for. Raises ValueError for another name, OSError for a place that is none."""
    check(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(path.suffix.lower(), run, extras), "utf-8", errors="replace")


def check(path: Path) -> None:
    """Raise ValueError for a name that asks for no report."""
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{path}: expected a name that ends in {', '.join(SUFFIXES)}")


def render(suffix: str, run: Run, extras: Extras = NONE) -> str:
    """The report as text."""
    match suffix:
        case ".html":
            from monitors.offline.reports import html  # noqa: PLC0415 - jinja2 only where a page is wanted

            return html.render(run, extras)
        case ".md":
            from monitors.offline.reports import markdown  # noqa: PLC0415 - one format at a time

            return markdown.render(run, extras)
        case ".xml":
            from monitors.offline.reports import junit  # noqa: PLC0415

            return junit.render(run, extras)
        case _:
            more = {"floors": wire.plain(extras.floors), "comparisons": wire.plain(extras.comparisons)}
            return wire.encode(run.to_dict() | {key: value for key, value in more.items() if value}).decode()
