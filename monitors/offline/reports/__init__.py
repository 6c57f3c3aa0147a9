"""Reports on a run: HTML, Markdown, JSON, JUnit XML, and rows as CSV and JSONL. `write(run, path)` writes one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from monitors.offline import results_codec as codec

if TYPE_CHECKING:
    from monitors.offline.comparison import Comparison, Floor
    from monitors.offline.results import MetricSummary, Run

SUFFIXES = (".html", ".md", ".json", ".xml", ".csv", ".jsonl")


class Extras(Struct, frozen=True, kw_only=True):
    """What a report shows in addition to the run: the floors, and the comparison with the run `against`."""

    floors: Sequence[Floor] = ()
    comparisons: Sequence[Comparison] = ()
    against: str = ""


NONE = Extras()


def signed(value: float) -> str:
    """Return a difference with its sign; one that rounds to 0 has none.

    >>> signed(0.25), signed(-0.0004), signed(0.0)
    ('+0.250', '0.000', '0.000')
    """
    text = f"{value:+.3f}"
    return text[1:] if float(text) == 0.0 else text


def counted(number: int, word: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "sample"), counted(1200, "sample")
    ('1 sample', '1,200 samples')
    """
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def effective(summary: MetricSummary) -> tuple[str, str]:
    """Return the effective sample size and the design effect as a report shows them."""
    effect = "-" if summary.design_effect is None else f"{summary.design_effect:.2f}"
    return "-" if summary.n_eff is None else f"{summary.n_eff:.1f}", effect


def latency_lines(run: Run) -> list[str]:
    """Return the durations of the answers in one line, and where they are known those of the retrieval and of both."""
    names = {"generation": "Answer latency", "retrieval": "Retrieval latency", "total": "Both together"}
    known = names if run.latencies["retrieval"] is not None else ["generation"]
    found = [(names[name], latency) for name in known if (latency := run.latencies[name]) is not None]
    return [
        f"{name}: mean {latency.mean:.2f} s, p50 {latency.p50:.2f} s, p95 {latency.p95:.2f} s, "
        f"p99 {latency.p99:.2f} s ({latency.n} answers)"
        for name, latency in found
    ]


def repeat_lines(run: Run) -> list[str]:
    """Return how far two judgements of the same answer differ, a line for each metric, and why some have no second."""
    lines = [f"{metric}: {found}" for metric, found in run.judge_repeats.items()]
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(run.unrepeated.items()))
    return [*lines, *([f"second judgements without a score: {reasons}"] if reasons else [])]


def evidence_lines(run: Run) -> list[str]:
    """Return how much of the judge's evidence could be verified, a line for each metric."""
    return [f"{share.metric}: evidence of {share.judge}: {share}" for share in run.judge_evidence]


def error_of(run: Run, metric: str) -> str:
    """Return the error of a single score, as " ± 0.12"; "" unless enough samples were judged twice."""
    found = run.judge_repeats.get(metric)
    return "" if found is None or found.half_width is None else f" ± {found.half_width:.2f}"


def summary_lines(run: Run) -> list[str]:
    """Return what a report says under the table of the metrics."""
    lines = []
    if run.clustered:
        most = max(summary.clusters or 0 for summary in run.summary)
        named = f"{most} sessions or single samples: samples of one session count as alike"
        unnamed = "samples that follow each other have similar scores (name their sessions)"
        lines.append(f"{named if most else unnamed}, n_eff = n / design effect")
    if run.abstained:  # metrics of claims skip these as abstained
        share = run.abstained / len(run.rows)
        lines.append(f"{run.abstained} of {len(run.rows)} answers ({share:.1%}) decline to answer")
    return [*lines, *latency_lines(run), *repeat_lines(run), *evidence_lines(run)]


def write(run: Run, path: Path, extras: Extras = NONE) -> None:
    """Write a report in the format of the path's suffix. Raises ValueError for another suffix, OSError."""
    check(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(path.suffix.lower(), run, extras), "utf-8", errors="replace", newline="")


def check(path: Path) -> None:
    """Raise ValueError for a path whose suffix is no report format."""
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{path}: expected a file name ending in {', '.join(SUFFIXES)}")


def render(suffix: str, run: Run, extras: Extras = NONE) -> str:
    """Return the report in the format of `suffix`, as text."""
    match suffix:
        case ".html" | ".md":
            from monitors.offline.reports import documents  # noqa: PLC0415 - jinja2 only where a page is wanted

            return documents.render(suffix, run, extras)
        case ".xml":
            from monitors.offline.reports import junit  # noqa: PLC0415 - one format at a time

            return junit.render(run, extras)
        case ".csv" | ".jsonl":
            from monitors.offline.reports import rows  # noqa: PLC0415

            return rows.as_csv(run) if suffix == ".csv" else rows.jsonl(run)
        case _:
            more = {"floors": codec.plain(extras.floors), "comparisons": codec.plain(extras.comparisons)}
            return codec.encode(run.to_dict() | {key: value for key, value in more.items() if value}).decode()
