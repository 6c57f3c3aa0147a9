"""Captured exchanges: iteration in the order of time, and export as records."""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from gaugeway.records import Context, Evaluation, Failed, Sample, Score, ToolCall
from gaugeway.settings.options import hint
from gaugeway.signals import SIGNALS
from gaugeway.storage.stores import Point, Query, Store
from monitors.metrics.registry import known, resolve, zero_is_best

SEPARATOR = "~"
"""Separates the name of a metric from the label of a replay; `@` and `:` occur in names (precision@5, geval:tone)."""
OF_TRIAL = f"{SEPARATOR}trial:"
"""Separates the name of a metric from trial and arm: the score is the candidate's, and none of the app's."""

MAX_RANGE_S = 3660 * 86_400.0
"""Longest time range of a view and of a series: ten years."""
_STEP_S, _DAY_S = 3600.0, 86_400.0
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def since(text: str, now: float) -> float:
    """Return the Unix time of a span before `now` (30m, 24h, 7d) or of an ISO date or time (UTC). Raises ValueError.

    >>> since("24h", 100_000.0), since("1970-01-02", 0.0)
    (13600.0, 86400.0)
    """
    if match := _SPAN.fullmatch(text.strip()):
        return now - float(match[1]) * _UNITS[match[2]]
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text!r}: expected a span (30m, 24h, 7d) or an ISO date or time") from None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def moment(text: str, now: float) -> float:
    """Return the Unix time of one end of a time range, at most a day ahead. Raises ValueError.

    >>> moment("1h", 7200.0)
    3600.0
    """
    try:
        found = since(text, now)
    except OverflowError:
        found = -math.inf
    if found < 0.0:
        raise ValueError(f"{text!r} is before 1970")
    return min(found, now + _DAY_S)


def check_length(begin: float, end: float) -> None:
    """Raise ValueError if a time range is longer than `MAX_RANGE_S`."""
    if end - begin > MAX_RANGE_S:
        raise ValueError(f"a time range has at most {MAX_RANGE_S / _DAY_S:,.0f} days (10 years)")


def plain_name(metric: str) -> str:
    """Return the metric's name without the label of a replay."""
    return metric.partition(SEPARATOR)[0]


def lowest_is_best(metric: str) -> bool:
    """Return whether 0 is the best value of a stored metric, replayed or not."""
    return zero_is_best(plain_name(metric))


async def points(store: Store, start: float, end: float, metric: str | None = None) -> AsyncIterator[Point]:
    """Yield all points, reading an hour at a time to bound memory."""
    at = start
    while at < end:
        until = min(at + _STEP_S, end)
        for point in await store.series(Query(since=at, until=until, metric=metric)):
            yield point
        at = until


async def ids(
    store: Store, start: float, end: float, *, limit: int | None = None, metric: str | None = None
) -> list[str]:
    """Return the ids of samples with an evaluation (of `metric`), oldest first."""
    found: dict[str, None] = {}
    async for point in points(store, start, end, metric):
        if limit is not None and len(found) >= limit:
            break
        found[point.sample_id] = None
    return list(found)


async def by_badness(store: Store, start: float, end: float, metric: str | None = None) -> list[str]:
    """Return the ids of samples with scores, the worst first; without a metric, ranked by each one's worst score.

    Signals count only if `metric` names one: one rare property is no measure of an answer.
    """
    lowest: dict[str, float] = {}
    async for point in points(store, start, end, metric):
        if point.value is not None and (metric is not None or point.metric not in SIGNALS):
            quality = 1.0 - point.value if lowest_is_best(point.metric) else point.value
            lowest[point.sample_id] = min(quality, lowest.get(point.sample_id, math.inf))
    return sorted(lowest, key=lowest.__getitem__)


def as_record(sample: Sample, evaluations: Mapping[str, Evaluation]) -> dict[str, Any]:
    """Return a sample in the format of `gaugeway evaluate`, with its scores."""
    contexts = sample.contexts
    all_ids = [context.id for context in contexts if context.id is not None]
    record = {
        "id": sample.id,
        "user_input": sample.question,
        "response": sample.response,
        "retrieved_contexts": _passages(contexts) if sample.context_source != "none" else None,
        "retrieved_context_ids": all_ids if contexts and len(all_ids) == len(contexts) else None,
        "reference": sample.reference,
        "reference_contexts": list(sample.reference_contexts) or None,
        "reference_context_ids": list(sample.reference_context_ids) or None,
        "tags": sample.tags or None,
        "app": sample.app,
        "model": sample.model,
        "started_at": sample.started_at,
        "duration_s": sample.duration_s,
        "retrieval_s": sample.retrieval_s,
        "session": sample.session,
        "conversation_id": sample.conversation,
        "turn": sample.turn,
        "hop": sample.hop,
        "history": [{"role": message.role, "content": message.text} for message in sample.history] or None,
        "tool_calls": [_call(call) for call in sample.calls] or None,
        "cluster": sample.cluster,
        "only_metrics": None if sample.only_metrics is None else list(sample.only_metrics),
        "capture": None if sample.capture is None else asdict(sample.capture),
        "scores": {name: _record(evaluation) for name, evaluation in evaluations.items()} or None,
    }
    return {name: value for name, value in record.items() if value is not None}


def _passages(contexts: Sequence[Context]) -> list[Any]:
    """Return texts if the passages have nothing else, or only ids, which all have; else objects.

    An object has the text, and what is known of id, score and source. Ids that all passages have are also in the
    record's `retrieved_context_ids`.
    """
    with_id = sum(context.id is not None for context in contexts)
    if with_id in (0, len(contexts)) and all(context.score is None and context.source is None for context in contexts):
        return [context.text for context in contexts]
    objects = (
        {"text": context.text, "id": context.id, "score": context.score, "source": context.source}
        for context in contexts
    )
    return [{name: value for name, value in passage.items() if value is not None} for passage in objects]


def _call(call: ToolCall) -> dict[str, Any]:
    said = {"name": call.name, "arguments": call.arguments}
    return said if call.hop is None else said | {"hop": call.hop}


def _record(evaluation: Evaluation) -> dict[str, Any]:
    outcome = evaluation.outcome
    facts: dict[str, Any] = {"version": evaluation.version, "judge": evaluation.judge, "rate": evaluation.rate}
    if isinstance(outcome, Score):
        return {"value": outcome.value, "reason": outcome.reason, **facts}
    if isinstance(outcome, Failed):
        return {"failed": outcome.error, "detail": outcome.detail, **facts}
    return {"skipped": outcome.reason, **facts}


class UnknownMetricError(ValueError):
    """Nothing has this name; the message names what there is."""


async def check_metric(store: Store, name: str, *, since: float, until: float, enabled: Collection[str] = ()) -> None:
    """Raise UnknownMetricError for a name of no metric, no signal and nothing stored from `since` to `until`.

    `enabled` are the names of the metrics that run here. Of a replay's name ("faithfulness~other") the metric's counts.
    """
    plain = name.partition("~")[0]
    named = resolve(plain)
    if plain in enabled or plain in SIGNALS or (named is not None and named.target != plain):
        return
    if not await store.series(Query(since=since, until=until, metric=name, limit=1)):
        raise UnknownMetricError(f"unknown metric {name!r}{hint(name, [*enabled, *known(), *SIGNALS])}")
