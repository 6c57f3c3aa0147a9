"""The Markdown report: tables, and the worst samples by id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from monitors.offline.comparison import Comparison
from monitors.offline.reports import (
    NONE,
    Extras,
    abstained_line,
    clusters_line,
    counted,
    effective,
    latency_lines,
    signed,
)
from monitors.offline.results import MetricSummary, Run

WORST = 3
_EXCERPT = 100
_ALIKE = ("n_eff", "design effect")
_SPECIAL = str.maketrans({character: f"\\{character}" for character in "\\`*_[]<>|#~&!"})


def render(run: Run, extras: Extras = NONE) -> str:
    """Return the report."""
    blocks = [
        f"## Evaluation of {text(run.source)}",
        f"{counted(len(run.rows), 'sample')}, {run.seconds:.1f} s, {run.paid_usd:.4f} USD paid"
        + (f", {counted(run.reused, 'evaluation')} reused from earlier runs" if run.reused else "")
        + ".",
        table(
            ["metric", "n", *(_ALIKE if run.clustered else ()), "mean", "95 % interval", "skipped", "failed", "USD"],
            [
                _cells(summary, lower=run.measure(summary.metric).lower_is_better, alike=run.clustered)
                for summary in run.summary
            ],
        ),
        *([f"{clusters_line(run)}."] if run.clustered else []),
        *([f"{abstained_line(run)}."] if run.abstained else []),
        *(f"{line}." for line in latency_lines(run)),
        *(f"Note: {text(note)}" for note in run.notes),
        *_floors(extras),
        *_comparisons(extras),
        *_worst(run),
    ]
    return "\n\n".join(blocks) + "\n"


def compared(comparisons: Sequence[Comparison]) -> str:
    """Return the table of a comparison."""
    rows = [
        [
            text(comparison.metric),
            str(comparison.pairs),
            _number(comparison.old_mean),
            _number(comparison.new_mean),
            *_change(comparison),
            verdict(comparison),
        ]
        for comparison in comparisons
    ]
    return table(["metric", "pairs", "before", "after", "difference", "95 % interval", "verdict"], rows)


def verdict(comparison: Comparison) -> str:
    """Return the verdict as text."""
    words = f"{comparison.verdict}: {comparison.reason}" if comparison.reason else comparison.verdict
    return text(words) + (f"; needs about {comparison.more} more" if comparison.more else "")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are already escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def text(words: str) -> str:
    """Return text of the data set on one line, with Markdown escaped."""
    return " ".join(words.split()).translate(_SPECIAL)


def _cells(summary: MetricSummary, *, lower: bool, alike: bool) -> list[str]:
    interval = f"{_number(summary.low)} to {_number(summary.high)}" if summary.n else "-"
    name = text(summary.metric) + (" (0 is best)" if lower else "")
    return [
        *(name, str(summary.n), *(effective(summary) if alike else ()), _number(summary.mean), interval),
        *(_counts(summary.skipped), _counts(summary.failed), f"{summary.usd:.4f}"),
    ]


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {text(reason)}" for reason, count in sorted(counts.items())) or "0"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _change(comparison: Comparison) -> list[str]:
    if comparison.difference is None or comparison.low is None or comparison.high is None:
        return ["-", "-"]
    return [signed(comparison.difference), f"{signed(comparison.low)} to {signed(comparison.high)}"]


def _floors(extras: Extras) -> list[str]:
    rows = [
        [text(floor.metric), f"{floor.limit:g}", "met" if floor.met else "**missed**", text(floor.reason)]
        for floor in extras.floors
    ]
    return ["### Floors", table(["metric", "limit", "", "because"], rows)] if rows else []


def _comparisons(extras: Extras) -> list[str]:
    return [f"### Compared with {text(extras.against)}", compared(extras.comparisons)] if extras.comparisons else []


def _worst(run: Run) -> list[str]:
    rows = [
        [text(measure.name), _number(row.score(measure.name)), text(row.sample.id), _excerpt(row.sample.question or "")]
        for measure in run.measures
        for row in run.worst(measure.name, WORST)
        if measure.badness(row.score(measure.name) or 0.0) > 0.0
    ]
    return ["### Worst samples", table(["metric", "score", "sample", "question"], rows)] if rows else []


def _excerpt(words: str) -> str:
    words = " ".join(words.split())
    return text(words if len(words) <= _EXCERPT else words[: _EXCERPT - 1] + "…")
