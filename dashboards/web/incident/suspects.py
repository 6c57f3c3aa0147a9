"""What the bad answers of an alert have in common, as rows with links, and their means on one chart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from dashboards.web.charts import ticks
from dashboards.web.format import number
from dashboards.web.incident.links import alert_fields, bad_fields, explore, topic_words, trait_fields
from gaugeway.records import Alert
from monitors.analysis.incident.differences import Change, Comparison, Difference, Trait
from monitors.analysis.incident.reading import IncidentReport
from monitors.statistics.confidence_sequence import Level

ROWS, SUSPECTS = 30, 6
_SHOWN_LABEL = 60
_LEFT, _WIDTH, _TOP, _ROW = 10.0, 990.0, 10.0, 66.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A value that bad answers have more often, with links to the bad answers and to all answers that have it."""

    difference: Difference
    words: str
    bad_url: str
    all_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRow:
    """A value that more answers have since the onset, with the same links."""

    change: Change
    words: str
    bad_url: str
    all_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A row of the chart: means before and since, and a link to the bad answers ("" for none)."""

    label: str
    before: Level | None
    since: Level | None
    url: str = ""


def words_of(trait: Trait) -> str:
    """A value in words.

    >>> words_of(Trait("tag:release", "42")), words_of(Trait("topic", "topic:refund, order"))
    ('tag release = 42', 'topic refund, order')
    """
    if trait.field.startswith("tag:"):
        return f"tag {trait.field.removeprefix('tag:')} = {trait.value}"
    return f"{trait.field} {topic_words(trait.value) if trait.field == 'topic' else trait.value}"


def rows_of(alert: Alert, report: IncidentReport) -> list[Row]:
    """The values that the bad answers of an alert have more often, those that stand for themselves first."""
    return [
        Row(
            difference=difference,
            words=words_of(difference.trait),
            bad_url=answers_url(alert, report, difference.trait),
            all_url=answers_url(alert, report, difference.trait, bad=False),
        )
        for difference in report.comparison.differences[:ROWS]
    ]


def changes_of(alert: Alert, report: IncidentReport) -> list[ChangedRow]:
    """The values that more answers have since the onset."""
    return [
        ChangedRow(
            change=change,
            words=words_of(change.trait),
            bad_url=answers_url(alert, report, change.trait),
            all_url=answers_url(alert, report, change.trait, bad=False),
        )
        for change in report.comparison.changes[:ROWS]
    ]


def answers_url(alert: Alert, report: IncidentReport, trait: Trait | None = None, *, bad: bool = True) -> str:
    """The list of an alert's bad answers since the onset, or of all; of those that have a value.

    Topics are found in the exchanges of a time, so their lists end where the comparison did.
    """
    ended = alert.state == "resolved" or (trait is not None and trait.field == "topic")
    fields = alert_fields(alert, report.onset, report.until if ended else None)
    fields |= trait_fields(trait) if trait is not None else {}
    if bad:
        fields |= bad_fields(report.comparison.cutoff)
        if trait is None and not alert.slice:  # the store's index has these, worst first
            fields["order"] = "highest" if report.comparison.cutoff.flipped else "lowest"
    return explore(fields)


def suspects_of(alert: Alert, report: IncidentReport) -> list[Suspect]:
    """The rows of the chart: all answers, those that have each suspect value, and those that have none of them."""
    found: Comparison = report.comparison
    before, since = found.everything
    shown = found.differences[:SUSPECTS]
    rows = [Suspect(label="all answers", before=before, since=since, url=answers_url(alert, report))]
    rows += [
        Suspect(
            label=words_of(difference.trait),
            before=difference.before,
            since=difference.since,
            url=answers_url(alert, report, difference.trait),
        )
        for difference in shown
    ]
    if shown:
        rows.append(Suspect(label="none of the values found", before=found.others[0], since=found.others[1]))
    return rows


def chart_of(suspects: Sequence[Suspect], metric: str) -> Markup:
    """Means before (upper) and since (lower) of each suspect with their intervals, on one scale."""
    levels = [level for row in suspects for level in (row.before, row.since) if level is not None]
    if not levels:
        return Markup("")
    ends = [value for level in levels for value in (level.mean, level.low, level.high) if value is not None]
    low, high = max(0.0, min(ends) - 0.03), min(1.0, max(ends) + 0.03)
    height = _TOP + _ROW * len(suspects) + 24

    def x(value: float) -> float:
        return round(_LEFT + _WIDTH * (value - low) / max(high - low, 1e-9), 1)

    parts = [_tick(x(value), value, height) for value in ticks(low, high)]
    for at, suspect in enumerate(suspects):
        y = _TOP + _ROW * at
        parts.append(_label(suspect, y))
        parts += [
            _level(level, x, y + shift, kind)
            for level, shift, kind in ((suspect.before, 34.0, 1), (suspect.since, 50.0, 2))
            if level is not None
        ]
    said = f"Mean {metric} before and since the onset, by suspect. The table has the numbers."
    return Markup(
        '<svg class="chart suspects" viewBox="0 0 1010 {0}" width="1010" height="{0}" role="img" aria-label="{1}">'
        "<title>{1}</title>{2}</svg>"
    ).format(round(height), said, Markup("").join(parts))


def _tick(x: float, value: float, height: float) -> Markup:
    return Markup(
        '<line class="grid" x1="{0}" y1="{1}" x2="{0}" y2="{2}"/><text class="mid" x="{0}" y="{3}">{4}</text>'
    ).format(x, _TOP - 4, round(height - 20), round(height - 4), f"{value:.2f}")


def _label(suspect: Suspect, y: float) -> Markup:
    label = suspect.label if len(suspect.label) <= _SHOWN_LABEL else suspect.label[: _SHOWN_LABEL - 1] + "…"
    return Markup('<text class="start" x="0" y="{}">{}</text>').format(y + 20, label)


def _level(level: Level, x: Callable[[float], float], y: float, kind: int) -> Markup:
    line = Markup("")
    if level.low is not None and level.high is not None:
        line = Markup('<line class="line k{}" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(
            kind, x(level.low), y, x(level.high), y
        )
    said = f"{number(level.mean)}, n = {level.n}"
    dot = Markup('<circle class="dot k{}" cx="{}" cy="{}" r="5"><title>{}</title></circle>')
    return line + dot.format(kind, x(level.mean), y, said)
