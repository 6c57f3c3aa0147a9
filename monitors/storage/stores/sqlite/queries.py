"""What the embedded store asks its file: the conditions of a query, and the statements around them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from monitors.storage.stores import Query
from monitors.storage.stores.top_scores import ORDERS

_POINTS = """
    SELECT sample_id, started_at, app, model, metric, outcome, value, reason, rate, version, judge, prompt,
        cluster, tags
    FROM evaluations
"""
_WILD = re.compile(r"[%_\\]")
_CONDITIONS = {
    "metric": "metric = :metric",
    "app": "app = :app",
    "model": "model = :model",
    "prompt": "prompt = :prompt",
    "outcome": "outcome = :outcome",
    "least": "value >= :least",
    "most": "value <= :most",
    "tag": "CASE WHEN json_valid(tags) THEN EXISTS "
    "(SELECT 1 FROM json_each(tags) WHERE key = :tag_name AND value = :tag_value) END",
    "text": "EXISTS (SELECT 1 FROM samples WHERE id = sample_id AND CASE WHEN json_valid(payload) THEN "
    "json_extract(payload, '$.question') LIKE :pattern ESCAPE '\\' "
    "OR json_extract(payload, '$.response') LIKE :pattern ESCAPE '\\' END)",
}
# A numpy number that slips through becomes a BLOB: such a row is no point, and must not take a place in a page of them.
READABLE = "typeof(rate) = 'real' AND (outcome <> 'score' OR typeof(value) = 'real')"
# There are few rates, so that their weights can be worked out here: that takes SQLite four times as long.
_SUMMARY = """
    SELECT app, metric, {by} AS slice, outcome, rate, count(*), count(*) FILTER (WHERE typeof(value) = 'real'),
        total(value) FILTER (WHERE typeof(value) = 'real'), total(value * value) FILTER (WHERE typeof(value) = 'real')
    FROM evaluations {index} WHERE {conditions} GROUP BY app, metric, slice, outcome, rate
"""
_SCORED = """
    SELECT app, metric, count(*), total(value), total(value * value), min(rate), max(rate)
    FROM (
        SELECT app, metric, value, rate, max(rowid) FROM evaluations {index}
        WHERE outcome = 'score' AND typeof(rate) = 'real' AND rate > 0.0 AND rate <= 1.0
            AND typeof(value) = 'real' AND value >= 0.0 AND value <= 1.0 AND {conditions}
        GROUP BY sample_id, metric
    ) GROUP BY app, metric
"""
_SPREAD = """
    SELECT app, metric, {by} AS slice, version, judge, rate, min(CAST(value * 100.0 AS INTEGER), 99) AS k, count(*),
        sum(value), sum(value * value)
    FROM evaluations {index}
    WHERE outcome = 'score' AND typeof(rate) = 'real' AND rate > 0.0 AND rate <= 1.0
        AND typeof(value) = 'real' AND value >= 0.0 AND value <= 1.0 AND {conditions}
    GROUP BY app, metric, slice, version, judge, rate, k
"""
_PAIRED = """
    SELECT app, metric, outcome, rate, cheap_rate, count(*), total(value), total(cheap), total(value * value),
        total(value * cheap), total(cheap * cheap)
    FROM (
        SELECT app, metric, outcome, rate, value, (
            SELECT value FROM evaluations AS other
            WHERE other.sample_id = evaluations.sample_id AND metric = :cheap AND outcome = 'score'
        ) AS cheap, (
            SELECT rate FROM evaluations AS other
            WHERE other.sample_id = evaluations.sample_id AND metric = :cheap AND outcome = 'score'
        ) AS cheap_rate
        FROM evaluations WHERE metric <> :cheap AND {conditions}
    ) GROUP BY app, metric, outcome, rate, cheap_rate
"""
_CHEAP = """
    SELECT app, count(*), total(value), total(value * value)
    FROM evaluations WHERE metric = :cheap AND outcome = 'score' AND typeof(value) = 'real' AND {conditions}
    GROUP BY app
"""
_SLICES = {
    "": "''",
    "model": "model",
    "prompt": "coalesce(prompt, '')",
    "tag": "coalesce((SELECT value FROM json_each(CASE WHEN json_valid(tags) THEN tags ELSE '{}' END) "
    "WHERE key = :by), '')",
}
_ORDERS = {
    "oldest": "ORDER BY started_at, rowid",
    "newest": "ORDER BY started_at DESC, rowid DESC",
    "lowest": "ORDER BY value, started_at, rowid",
    "highest": "ORDER BY value DESC, started_at, rowid",
}
_TOP = """
    SELECT value FROM evaluations INDEXED BY evaluations_value WHERE {conditions} ORDER BY value DESC
    LIMIT 1 OFFSET :place
"""


def points(query: Query, index: str | None = None, exactly: float | None = None) -> tuple[str, Mapping[str, Any]]:
    """The points of a query; with `exactly`, those of this value."""
    conditions, parameters = where(query)
    conditions += f" AND {READABLE}"
    if query.order in ORDERS:
        conditions += " AND outcome = 'score'"
    if exactly is not None:
        conditions += " AND value = :exactly"
    limit = -1 if query.limit is None else max(query.limit, 0)
    parts = [_POINTS, index or index_of(query), "WHERE", conditions, _ORDERS[query.order], "LIMIT :limit"]
    return " ".join(parts), {**parameters, "limit": limit, "exactly": exactly}


def top(query: Query) -> tuple[str, Mapping[str, Any]]:
    """The value at the last place of the highest scores that a query of one metric asks for."""
    conditions, parameters = where(query)
    conditions += f" AND {READABLE} AND outcome = 'score'"
    return _TOP.format(conditions=conditions), {**parameters, "place": max((query.limit or 0) - 1, 0)}


def summary(query: Query, by: str) -> tuple[str, Mapping[str, Any]]:
    """Groups of equal outcome and rate."""
    return _sliced(_SUMMARY, query, by)


def spread(query: Query, by: str) -> tuple[str, Mapping[str, Any]]:
    """Scores counted by hundredths."""
    return _sliced(_SPREAD, query, by)


def scored(query: Query) -> tuple[str, Mapping[str, Any]]:
    """The last scores of each answer, added up."""
    conditions, parameters = where(query)
    return _SCORED.format(index=index_of(query), conditions=conditions), parameters


def paired(query: Query, cheap: str) -> tuple[str, Mapping[str, Any]]:
    """Groups of equal outcome and rates, beside the cheap metric."""
    conditions, parameters = where(query)
    return _PAIRED.format(conditions=conditions), {**parameters, "cheap": cheap}


def cheap_alone(query: Query, cheap: str) -> tuple[str, Mapping[str, Any]]:
    """The sums of the cheap metric over everything that the query asks for, whatever its metric."""
    conditions, parameters = where(replace(query, metric=None))
    return _CHEAP.format(conditions=conditions), {**parameters, "cheap": cheap}


def _sliced(statement: str, query: Query, by: str) -> tuple[str, Mapping[str, Any]]:
    conditions, parameters = where(query)
    kind, _, name = by.partition(":")
    return statement.format(index=index_of(query), conditions=conditions, by=_SLICES[kind]), {**parameters, "by": name}


def index_of(query: Query) -> str:
    """The index that leads to the query's time. SQLite, which does not know it, prefers all of an app to some hours."""
    if query.metric is None:
        return "INDEXED BY evaluations_started_at"
    return "INDEXED BY evaluations_metric" if query.app is None else "INDEXED BY evaluations_app"


def where(query: Query) -> tuple[str, dict[str, Any]]:
    """The conditions of a query in SQL, and their parameters."""
    given = asdict(query)
    conditions = ["started_at >= :since", "started_at < :until"]
    conditions += [condition for name, condition in _CONDITIONS.items() if given[name] is not None]
    parameters: dict[str, Any] = {name: given[name] for name in given if name != "tag"}
    parameters["tag_name"], parameters["tag_value"] = query.tag or ("", "")
    parameters["pattern"] = "%" + _WILD.sub(r"\\\g<0>", query.text or "") + "%"
    return " AND ".join(conditions), parameters
