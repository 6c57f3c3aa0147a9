"""The HTML page, which has no scripts and escapes all data, and the Markdown report: what their templates show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from msgspec import Struct

from gaugeway.records import Evaluation, Failed, Score
from monitors.analysis.claim_highlight import Claim, Piece, claims_in, claims_of_reference, mark
from monitors.offline.reports import NONE, Extras, counted, effective, error_of, signed, summary_lines
from monitors.offline.results import Measure, MetricSummary, Row, Run

BINS = 20
WORST = 5
FAILURES = 20
_EXCERPT = 100
_SPECIAL = str.maketrans({character: f"\\{character}" for character in "\\`*_[]<>|#~&!"})


class Case(Struct, frozen=True, kw_only=True):
    """A sample on the page, its texts split into pieces; `nowhere` are claims that match no sentence."""

    row: Row
    value: float
    reason: str
    pieces: tuple[Piece, ...]
    reference: tuple[Piece, ...]
    nowhere: tuple[Claim, ...]
    evidence: tuple[dict[str, str], ...]

    @property
    def marked(self) -> bool:
        """Whether it has text with a verdict."""
        return bool(self.nowhere) or any(piece.verdict for piece in (*self.pieces, *self.reference))


class Section(Struct, frozen=True, kw_only=True):
    """One metric: its summary, the number of scores by bar of the histogram, and the worst rows."""

    measure: Measure
    summary: MetricSummary
    bars: Mapping[int, int]
    worst: tuple[Row, ...]

    @property
    def cases(self) -> tuple[Case, ...]:
        """The worst rows with their texts in pieces."""
        return tuple(_case(row, self.measure.name) for row in self.worst)


def render(suffix: str, run: Run, extras: Extras = NONE) -> str:
    """Return the report with the template of the suffix, ".html" or ".md"."""
    template = _environment(html=suffix == ".html").get_template(f"report{suffix}.j2")
    return template.render(
        run=run,
        extras=extras,
        sections=[_section(run, measure, summary) for measure, summary in zip(run.measures, run.summary, strict=True)],
        bins=BINS,
        failures=_failures(run),
        failures_shown=FAILURES,
        lines=summary_lines(run),
        created=datetime.fromtimestamp(run.created_at, UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


def markdown(name: str, **values: Any) -> str:
    """Return a Markdown document by the name of its template."""
    return _environment(html=False).get_template(name).render(values)


@cache
def _environment(*, html: bool) -> Environment:
    environment = Environment(
        loader=PackageLoader("monitors.offline"),
        autoescape=html,  # noqa: S701 - Markdown escapes by its filter `text`
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=not html,
    )
    environment.globals |= {"counted": counted, "effective": effective, "error_of": error_of, "signed": signed}
    environment.filters |= {"text": text_in_markdown, "excerpt": _excerpt}
    return environment


def text_in_markdown(words: str) -> str:
    """Return text of the data set on one line, with Markdown escaped."""
    return " ".join(words.split()).translate(_SPECIAL)


def _excerpt(words: str) -> str:
    words = " ".join(words.split())
    return text_in_markdown(words if len(words) <= _EXCERPT else words[: _EXCERPT - 1] + "…")


def _section(run: Run, measure: Measure, summary: MetricSummary) -> Section:
    worst = [row for row in run.worst(measure.name, WORST) if measure.badness(row.score(measure.name) or 0.0) > 0.0]
    # A score of 1 falls into the last bar.
    bars = Counter(min(BINS - 1, int(value * BINS)) for value in run.scores(measure.name))
    return Section(measure=measure, summary=summary, bars=bars, worst=tuple(worst))


def _case(row: Row, metric: str) -> Case:
    evaluation = row.evaluations[metric]
    outcome = evaluation.outcome
    # A metric without claims of its own shows those of the other metrics.
    pieces, nowhere = mark(row.sample.response, claims_in([evaluation, *row.evaluations.values()]))
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
    pairs = ((row, evaluation) for row in run.rows for evaluation in row.evaluations.values())
    return [(row, evaluation) for row, evaluation in pairs if isinstance(evaluation.outcome, Failed)]
