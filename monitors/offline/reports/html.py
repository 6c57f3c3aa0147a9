"""The HTML report: one self-contained page without scripts; all data is escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from gaugeway.records import Evaluation, Failed, Score
from monitors.analysis.claim_highlight import Claim, Piece, claims_in, claims_of_reference, mark
from monitors.offline.reports import NONE, Extras, abstained_line, clusters_line, effective, latency_lines
from monitors.offline.results import Measure, MetricSummary, Row, Run

BINS = 20
WORST = 5
FAILURES = 20
_WIDTH, _HEIGHT = 320.0, 72.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar of a histogram, in SVG units."""

    x: float
    y: float
    width: float
    height: float
    count: int
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A sample on the page, its texts split into pieces; `nowhere` are claims that match no sentence."""

    row: Row
    value: float
    reason: str
    pieces: tuple[Piece, ...]
    reference: tuple[Piece, ...]
    nowhere: tuple[Claim, ...]
    evidence: tuple[dict[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One metric on the page: summary, histogram, worst cases."""

    measure: Measure
    summary: MetricSummary
    bars: tuple[Bar, ...]
    cases: tuple[Case, ...]

    @property
    def tallest(self) -> int:
        """The number of scores in the tallest bar."""
        return max((bar.count for bar in self.bars), default=0)

    @property
    def marked(self) -> bool:
        """Whether any case has text with a verdict."""
        pieces = [piece for case in self.cases for piece in (*case.pieces, *case.reference)]
        return any(piece.verdict for piece in pieces) or any(case.nowhere for case in self.cases)


def render(run: Run, extras: Extras = NONE) -> str:
    """Return the report."""
    sections = [_section(run, measure, summary) for measure, summary in zip(run.measures, run.summary, strict=True)]
    return _template().render(
        run=run,
        extras=extras,
        sections=sections,
        failures=_failures(run),
        failures_shown=FAILURES,
        effective=effective,
        alike=f"{clusters_line(run)}." if run.clustered else "",
        declined=abstained_line(run) if run.abstained else "",
        taken=". ".join(latency_lines(run)),
        created=datetime.fromtimestamp(run.created_at, UTC).strftime("%Y-%m-%d %H:%M UTC"),
        width=_WIDTH,
        height=_HEIGHT,
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("monitors.offline"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2")


def _section(run: Run, measure: Measure, summary: MetricSummary) -> Section:
    worst = [row for row in run.worst(measure.name, WORST) if measure.badness(row.score(measure.name) or 0.0) > 0.0]
    return Section(
        measure=measure,
        summary=summary,
        bars=bars(run.scores(measure.name)),
        cases=tuple(_case(row, measure.name) for row in worst),
    )


def bars(values: Sequence[float]) -> tuple[Bar, ...]:
    """Return the histogram of scores in [0, 1]; a score of 1 falls into the last bar."""
    counts = Counter(min(BINS - 1, int(value * BINS)) for value in values)
    tallest = max(counts.values(), default=0)
    step = _WIDTH / BINS
    return tuple(
        Bar(
            x=round(at * step + 1.0, 2),
            y=round(_HEIGHT * (1.0 - count / tallest), 2),
            width=round(step - 2.0, 2),
            height=round(_HEIGHT * count / tallest, 2),
            count=count,
            label=f"{at / BINS:.2f} to {(at + 1) / BINS:.2f}: {count}",
        )
        for at, count in sorted(counts.items())
    )


def _case(row: Row, metric: str) -> Case:
    evaluation = row.evaluations[metric]
    outcome = evaluation.outcome
    # A metric without claims of its own shows those of the other metrics.
    claims = claims_in([evaluation, *row.evaluations.values()])
    pieces, nowhere = mark(row.sample.response, claims)
    reference, elsewhere = mark(row.sample.reference or "", claims_of_reference(evaluation))
    return Case(
        row=row,
        value=row.score(metric) or 0.0,
        reason=outcome.reason if isinstance(outcome, Score) else "",
        pieces=pieces,
        reference=reference,
        nowhere=nowhere + elsewhere,
        evidence=tuple(_facts(item) for item in outcome.evidence) if isinstance(outcome, Score) else (),
    )


def _facts(item: Mapping[str, Any]) -> dict[str, str]:
    """Return a piece of evidence as text by key, without empty values."""
    return {str(key).replace("_", " "): words for key, value in item.items() if (words := _words(value))}


def _words(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4g}"
        case Mapping():
            return ", ".join(f"{key}: {words}" for key, words in _facts(value).items())
        case list() | tuple():
            return "; ".join(words for item in value if (words := _words(item)))
        case _:
            return "not mentioned" if value == "not_mentioned" else str(value)


def _failures(run: Run) -> list[tuple[Row, Evaluation]]:
    return [
        (row, evaluation)
        for row in run.rows
        for evaluation in row.evaluations.values()
        if isinstance(evaluation.outcome, Failed)
    ]
