"""The answers behind an alert: means, worst and good examples, what the bad ones have in common."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from markupsafe import Markup
from msgspec import Struct

from dashboards.web.addresses import alert_fields, bad_fields, exchange, explore, topic_words, trait_fields
from dashboards.web.charts import Frame, drawn, ticks
from dashboards.web.incident.exchange_summary import question_of
from dashboards.web.incident.explore_search import search
from gaugeway.records import Alert, Evaluation, Sample
from gaugeway.storage.stores import Point, Query, Store
from gaugeway.storage.sums import WeightedSums
from monitors.alerting.stored_exchanges import faults_of
from monitors.analysis.claim_highlight import Piece, claims_in, mark
from monitors.analysis.incident.differences import Trait
from monitors.analysis.incident.reading import IncidentReport, incident_query, incident_span
from monitors.analysis.prompt_text import HASHED
from monitors.statistics.confidence_sequence import Level, level_of
from monitors.statistics.weighted_mean import hajek_from_sums

NOW_S, LEAST_NOW_S = 3600.0, 300.0
"""The mean "now" is of the last hour; of the last half of the time since the onset, where that is shorter."""
SHOWN_RECOVERY = 0.5
"""From this share of the evidence for a recovery on it is shown although the mean "now" has scores from before it."""


class Levels(Struct, frozen=True, kw_only=True):
    """The means of an alert. `now` is None once it ended; `now_s` is how many seconds it covers."""

    before: Level | None
    since: Level | None
    now: Level | None
    now_s: float
    before_s: float

    def current(self, alert: Alert) -> Alert:
        """The alert with these means, so that a page shows one mean since the onset, not the one last described too."""
        if self.before is None or self.since is None:
            return alert
        return replace(alert, mean_before=self.before.mean, mean_since=self.since.mean)


async def levels_of(store: Store, alert: Alert, now: float) -> Levels:
    """Read the means of an alert's app, metric and slice from sums in the store."""
    before, onset, until = incident_span(alert, now)
    now_s = max(LEAST_NOW_S, min(NOW_S, (until - onset) / 2.0))
    query = incident_query(alert, before, onset)
    over = alert.state == "resolved"
    return Levels(
        before=await mean_of(store, query),
        since=await mean_of(store, replace(query, since=onset, until=until)),
        now=None if over else await mean_of(store, replace(query, since=max(onset, now - now_s), until=now)),
        now_s=now_s,
        before_s=onset - before,
    )


def is_recovering(alert: Alert, levels: Levels, target: float | None, now: float) -> bool:
    """Whether there is a sign of a recovery that is worth showing.

    That is some evidence while the mean "now" is on the good side of the baseline or SLO (`target`), or half of the
    evidence while that mean still has scores from before the recovery began. Without scores of the last minutes, or
    with a mean on the bad side, the little evidence that chance gives would look like good news.
    """
    if alert.state != "firing" or not alert.recovery or alert.recovering_since is None or levels.now is None:
        return False
    mean = levels.now.mean
    if target is not None and (mean <= target if alert.direction == "rise" else mean >= target):
        return True
    return alert.recovery >= SHOWN_RECOVERY and now - levels.now_s < alert.recovering_since


async def mean_of(store: Store, query: Query) -> Level | None:
    """The weighted mean of a query's scores; without an interval for too few of them."""
    return level_of(hajek_from_sums(sum(await store.summary(query), WeightedSums())))


WORST, GOOD = 5, 2
BUDGET_S = 0.05
ANSWER, SENTENCES = 4000, 4
"""Characters of an answer that are split into sentences, and sentences shown, from before the first fault on."""


class Example(Struct, frozen=True, kw_only=True):
    """One answer of an alert: its score, question, sentences, and the address of its page.

    `pieces` are sentences with their verdicts, `cut` says that others are left out before and after them. `faults` are
    what is wrong with the answer besides the marked sentences.
    """

    id: str
    point: Point
    question: str
    url: str
    pieces: tuple[Piece, ...] = ()
    cut: tuple[bool, bool] = (False, False)
    faults: tuple[str, ...] = ()


def example_of(point: Point, url: str, sample: Sample, evaluations: Sequence[Evaluation]) -> Example:
    """An answer with the claims that the alert's metric found at fault."""
    own = [evaluation for evaluation in evaluations if evaluation.metric == point.metric]
    text = "" if sample.response.startswith(HASHED) else sample.response[:ANSWER]
    pieces, nowhere = mark(text, claims_in(own))
    first = next((at for at, piece in enumerate(pieces) if piece.verdict not in (None, "supported")), None)
    start = max(0, (first or 0) - 1)
    faults = () if first is not None else faults_of(evaluations, point.metric)
    return Example(
        id=point.sample_id,
        point=point,
        question=question_of(sample),
        url=url,
        pieces=pieces[start : start + SENTENCES],
        cut=(start > 0, start + SENTENCES < len(pieces) or len(sample.response) > ANSWER),
        faults=(*(claim.text for claim in nowhere if claim.verdict != "supported"), *faults)[:SENTENCES],
    )


async def examples_of(store: Store, alert: Alert, now: float) -> tuple[list[Example], list[Example]]:
    """The worst answers since the onset, and the best ones, found within a time limit."""
    _, onset, until = incident_span(alert, now)
    rises = alert.direction == "rise"
    fields = alert_fields(alert, onset, until if alert.state == "resolved" else None)
    query = incident_query(alert, onset, until)
    worst = await _found(store, replace(query, order="highest" if rises else "lowest"), WORST, fields)
    good = await _found(store, replace(query, order="lowest" if rises else "highest"), GOOD, fields)
    shown = {example.id for example in worst}
    return worst, [example for example in good if example.id not in shown]


async def _found(store: Store, query: Query, most: int, fields: Mapping[str, str]) -> list[Example]:
    found = await search(store, query, after=None, wanted=most, budget_s=BUDGET_S, clock=time.monotonic)
    first: dict[str, Point] = {}
    for point in found.points:
        first.setdefault(point.sample_id, point)
    examples = []
    for point in list(first.values())[:most]:
        stored = await store.sample(point.sample_id)
        url = exchange(point.sample_id, {**fields, "order": query.order})
        deleted = Example(id=point.sample_id, point=point, question="", url=url)
        examples.append(deleted if stored is None else example_of(point, url, *stored))
    return examples


SUSPECTS = 6
"""Values on the chart, those that stand for themselves first."""


class Suspect(Struct, frozen=True, kw_only=True):
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
    found = report.comparison
    shown = [
        Suspect(
            label=words_of(difference.trait),
            before=difference.before,
            since=difference.since,
            url=answers_url(alert, report, difference.trait),
        )
        for difference in found.differences[:SUSPECTS]
    ]
    before, since = found.everything
    every = Suspect(label="all answers", before=before, since=since, url=answers_url(alert, report))
    before, since = found.others
    others = [Suspect(label="none of the values found", before=before, since=since)] if shown else []
    return [every, *shown, *others]


def chart_of(suspects: Sequence[Suspect], metric: str) -> Markup:
    """Means before (upper) and since (lower) of each suspect with their intervals, on one scale."""
    levels = [level for row in suspects for level in (row.before, row.since) if level is not None]
    if not levels:
        return Markup("")
    ends = [value for level in levels for value in (level.mean, level.low, level.high) if value is not None]
    low, high = max(0.0, min(ends) - 0.03), min(1.0, max(ends) + 0.03)
    frame = Frame(since=low, until=high, left=10.0, top=0.0, width=990.0, height=0.0)
    title = f"Mean {metric} before and since the onset, by suspect. The table has the numbers."
    return drawn("suspects", suspects=suspects, frame=frame, ticks=ticks(low, high), title=title)
