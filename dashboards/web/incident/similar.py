"""Other failures of the same metric whose questions are like that of an exchange."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.web.incident.examples import question_of
from dashboards.web.incident.links import exchange
from gaugeway.records import Evaluation, Sample, Score
from gaugeway.signals import SIGNALS
from gaugeway.storage.stores import Query, Store
from gaugeway.text.topics import most_alike
from monitors.analysis.human_labels import Passings

SIMILAR = 6
MAX_READ = 300
"""Failing evaluations of the app whose questions are compared: those with the worst scores."""
WITHIN_S = 7 * 86_400.0
"""Before and after the exchange."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """Another failure: its question, score, and how alike the questions are (cosine, 1 for the same words)."""

    question: str
    value: float
    likeness: float
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Similar:
    """Failures of one metric, the most alike first."""

    metric: str
    rows: Sequence[Alike] = ()


async def similar_failures(
    store: Store, sample: Sample, evaluations: Sequence[Evaluation], passing: Passings, *, metric: str = ""
) -> Similar | None:
    """Find similar failures of `metric`, or of the first metric that the exchange fails; None if it fails none."""
    failing = [
        evaluation
        for evaluation in evaluations
        if evaluation.metric not in SIGNALS
        and isinstance(evaluation.outcome, Score)
        and not passing(evaluation.metric).passes(evaluation.outcome.value)
    ]
    if not failing or not sample.question:
        return None
    metric = next((evaluation.metric for evaluation in failing if evaluation.metric == metric), failing[0].metric)
    rule = passing(metric)
    query = Query(
        since=sample.started_at - WITHIN_S,
        until=sample.started_at + WITHIN_S,
        metric=metric,
        app=sample.app,
        least=rule.threshold if rule.flipped else None,
        most=None if rule.flipped else rule.threshold,
        order="highest" if rule.flipped else "lowest",
        limit=MAX_READ,
    )
    points = [point for point in await store.series(query) if point.value is not None and not rule.passes(point.value)]
    values = {point.sample_id: point.value or 0.0 for point in points if point.sample_id != sample.id}
    questions = await store.questions(list(values))
    near = await asyncio.to_thread(most_alike, sample.question, questions, most=SIMILAR)
    fields = {"app": sample.app, "metric": metric, "order": query.order}
    return Similar(
        metric=metric,
        rows=[
            Alike(
                question=question_of(Sample(id=name, started_at=0.0, question=questions[name])) or name,
                value=values[name],
                likeness=likeness,
                url=exchange(name, fields),
            )
            for name, likeness in near
        ],
    )
