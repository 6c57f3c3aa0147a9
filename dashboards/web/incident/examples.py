"""The worst answers of an alert beside good ones, with what is wrong with each."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dashboards.web.format import shortened
from dashboards.web.incident import links
from dashboards.web.incident.explore_search import search
from gaugeway.records import Alert, Sample
from gaugeway.storage.stores import Point, Query, Store
from monitors.alerting.stored_exchanges import faults_of
from monitors.analysis.incident.reading import incident_query, incident_span

WORST, GOOD = 20, 5
BUDGET_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One answer of an alert: its score, question, faults, and the address of its page."""

    id: str
    value: float
    question: str
    url: str
    faults: tuple[str, ...] = ()


async def examples_of(store: Store, alert: Alert, now: float) -> tuple[list[Example], list[Example]]:
    """The worst answers since the onset, and the best ones, found within a time limit."""
    _, onset, until = incident_span(alert, now)
    rises = alert.direction == "rise"
    fields = links.alert_fields(alert, onset, until if alert.state == "resolved" else None)
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
        example = Example(
            id=point.sample_id,
            value=point.value or 0.0,
            question=question_of(stored[0]) if stored is not None else "",
            url=links.exchange(point.sample_id, {**fields, "order": query.order}),
            faults=faults_of(stored[1], point.metric) if stored is not None else (),
        )
        examples.append(example)
    return examples


def question_of(sample: Sample) -> str:
    """The question on one line, truncated; of a conversation its first message."""
    opening = next((message.text for message in sample.transcript if message.role == "user"), "")
    return shortened(sample.question or opening)
