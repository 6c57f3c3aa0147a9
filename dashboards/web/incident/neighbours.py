"""The exchanges beside one: before and after in the list one comes from, and similar failures."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import parse_qsl

from msgspec import Struct

from dashboards.web.addresses import exchange, explore, fields_without
from dashboards.web.incident.exchange_summary import question_of
from dashboards.web.incident.explore_search import BY_VALUE, same_words
from gaugeway.records import Evaluation, Sample, Score, grouped
from gaugeway.signals import SIGNALS
from gaugeway.storage.stores import Point, Query, Store
from gaugeway.text.topics import most_alike
from monitors.analysis.human_labels import Passings

MAX_LIST = 2_000
"""Characters of the list's address in that of an exchange."""
MAX_ALIKE = 200
"""Evaluations with the same time or score that are looked through for the exchange."""
_MOST_FIELDS = 40
BUDGET_S = 0.03
_FIRST_S, _GROWTH = 900.0, 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Addresses of the list, and of the exchanges before and after in it ("" where there is none)."""

    list_url: str
    previous_url: str = ""
    next_url: str = ""


def list_fields(text: str) -> dict[str, str]:
    """The fields of the list's address; none for one that is too long, or has too many fields."""
    try:
        return dict(parse_qsl(text, max_num_fields=_MOST_FIELDS)) if len(text) <= MAX_LIST else {}
    except ValueError:
        return {}


async def place_of(
    store: Store, fields: Mapping[str, str], query: Query | None, sample: Sample, evaluations: Sequence[Evaluation]
) -> Place:
    """Find the neighbours of an exchange in a list, within a time limit for each direction.

    Without a `query` the list is one that no store can order by itself, and only its address is given.
    """
    kept = fields_without(fields, "after", "thorough", "group")
    place = Place(list_url=explore(kept))
    if query is None:
        return place
    value = _value(evaluations, query)
    if query.order in BY_VALUE and value is None:
        return place
    found = [await _neighbour(store, query, sample, value, onward=onward) for onward in (False, True)]
    return replace(
        place,
        previous_url=exchange(found[0], kept) if found[0] else "",
        next_url=exchange(found[1], kept) if found[1] else "",
    )


def _value(evaluations: Sequence[Evaluation], query: Query) -> float | None:
    """The score that the exchange has in the list."""
    scores = [
        evaluation.outcome.value
        for evaluation in evaluations
        if isinstance(evaluation.outcome, Score)
        and query.metric in (None, evaluation.metric)
        and evaluation.metric not in SIGNALS
    ] or [
        evaluation.outcome.value
        for evaluation in evaluations
        if isinstance(evaluation.outcome, Score) and query.metric == evaluation.metric
    ]
    return scores[-1] if scores else None


async def _neighbour(store: Store, query: Query, sample: Sample, value: float | None, *, onward: bool) -> str:
    """The id of the exchange before or after one; "" for none, or none within the time limit."""
    deadline = time.monotonic() + BUDGET_S

    def over() -> bool:
        return time.monotonic() > deadline

    if query.order not in BY_VALUE or value is None:
        other = await _in_time(store, query, sample.started_at, sample.id, over, earlier=onward)
    else:
        other = await _of_same_value(store, query, sample, value, over, onward=onward)
        other = other or await _beyond(store, query, sample, value, over, onward=onward)
    return "" if other is None else other.sample_id


async def _in_time(
    store: Store, query: Query, at: float, sample_id: str, over: Callable[[], bool], *, earlier: bool
) -> Point | None:
    """The nearest other exchange in time, looked for in growing steps."""
    length, begin = _FIRST_S, at
    while True:
        if earlier:
            since, until = max(query.since, begin - length), min(query.until, math.nextafter(begin, math.inf))
        else:
            since, until = max(query.since, begin), min(query.until, begin + length)
        if since >= until:
            return None
        order: Literal["newest", "oldest"] = "newest" if earlier else "oldest"
        points = await store.series(replace(query, since=since, until=until, order=order, limit=MAX_ALIKE))
        if (other := _first_other(points, sample_id)) is not None:
            return other
        begin = since if earlier else until
        length *= _GROWTH
        if over():
            return None


async def _of_same_value(
    store: Store, query: Query, sample: Sample, value: float, over: Callable[[], bool], *, onward: bool
) -> Point | None:
    """The neighbour among those with the same score, which a list has in the order of time."""
    same = replace(query, least=value, most=value)
    if not onward:
        return await _in_time(store, same, sample.started_at, sample.id, over, earlier=True)
    later = replace(same, since=max(query.since, sample.started_at), order="lowest", limit=MAX_ALIKE)
    return _first_other(await store.series(later), sample.id)


async def _beyond(
    store: Store, query: Query, sample: Sample, value: float, over: Callable[[], bool], *, onward: bool
) -> Point | None:
    """The neighbour among those with the next score; going back, the last one of that score."""
    upwards = (query.order == "lowest") == onward
    edge = math.nextafter(value, math.inf if upwards else -math.inf)
    least = max(query.least or 0.0, edge) if upwards else query.least
    most = query.most if upwards else min(1.0 if query.most is None else query.most, edge)
    order: Literal["lowest", "highest"] = "lowest" if upwards else "highest"
    points = await store.series(replace(query, least=least, most=most, order=order, limit=MAX_ALIKE))
    first = next((point for point in points if point.sample_id != sample.id), None)
    if first is None or onward:
        return first
    ties = replace(query, least=first.value, most=first.value)
    return await _in_time(store, ties, query.until, "", over, earlier=True) or first


def _first_other(points: Sequence[Point], sample_id: str) -> Point | None:
    """The first point after the exchange itself, or the first of all where it is not among them."""
    at = max((index for index, point in enumerate(points) if point.sample_id == sample_id), default=-1)
    return next((point for point in points[at + 1 :] if point.sample_id != sample_id), None)


SIMILAR = 6
MAX_READ = 300
"""Failing evaluations of the app whose questions are compared: those with the worst scores."""
WITHIN_S = 7 * 86_400.0
"""Before and after the exchange."""


class Alike(Struct, frozen=True, kw_only=True):
    """Failures of a question: how alike it is (cosine, 1 for the same words), and address and score of each."""

    question: str
    likeness: float
    failures: Sequence[tuple[str, float]]


class Similar(Struct, frozen=True, kw_only=True):
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
    near = await asyncio.to_thread(most_alike, sample.question, questions, most=MAX_READ)
    by_question = grouped((same_words(questions[name]), (name, likeness)) for name, likeness in near)
    fields = {"app": sample.app, "metric": metric, "order": query.order}
    rows = []
    for some in [*by_question.values()][:SIMILAR]:
        worst_first = sorted((name for name, _ in some), key=values.__getitem__, reverse=rule.flipped)
        first = Sample(id=worst_first[0], started_at=0.0, question=questions[worst_first[0]])
        failures = [(exchange(name, fields), values[name]) for name in worst_first]
        rows.append(Alike(question=question_of(first) or first.id, likeness=some[0][1], failures=failures))
    return Similar(metric=metric, rows=rows)
