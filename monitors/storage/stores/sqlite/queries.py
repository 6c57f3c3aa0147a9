"""SQL statements of the SQLite store."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from monitors.storage.stores import Query
from monitors.storage.stores.conditions import Conditions
from monitors.storage.stores.ratings import CORRECT, EARLY_S
from monitors.storage.stores.top_scores import ORDERS

_POINTS = """
    SELECT sample_id, started_at, app, model, metric, outcome, value, reason, rate, version, judge, prompt,
        weight, cluster, tags
    FROM evaluations
"""
_WILD = re.compile(r"[%_\\]")
_TAGGED = """
    CASE WHEN json_valid(tags) THEN EXISTS (SELECT 1 FROM json_each(tags) WHERE key = {name} AND value = {value}) END
"""
_TAG = """
    coalesce((SELECT value FROM json_each(CASE WHEN json_valid(tags) THEN tags ELSE '{{}}' END) WHERE key = {name}), '')
"""
_HOLDS = r"""
    EXISTS (
        SELECT 1 FROM samples WHERE id = sample_id AND CASE WHEN json_valid(payload) THEN
            json_extract(payload, '$.question') LIKE {pattern} ESCAPE '\'
            OR json_extract(payload, '$.response') LIKE {pattern} ESCAPE '\'
        END
    )
"""
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
_OUTCOMES = """
    SELECT app, metric, outcome, CASE WHEN outcome = 'score' THEN '' ELSE reason END AS why, count(*)
    FROM evaluations INDEXED BY {index} WHERE {conditions} GROUP BY app, metric, outcome, why
"""
_EXCHANGES = """
    SELECT app, '', outcome, CASE WHEN outcome = 'score' THEN '' ELSE coalesce(failure, skip, '') END AS why, count(*)
    FROM (
        SELECT app, failure, skip,
            CASE WHEN scores THEN 'score' WHEN failure IS NOT NULL THEN 'failed' WHEN skip IS NOT NULL THEN 'skipped'
                ELSE 'none' END AS outcome
        FROM (
            SELECT app, (
                SELECT count(*) FROM evaluations WHERE sample_id = samples.id AND outcome = 'score' AND {own}
            ) AS scores, (
                SELECT min(reason) FROM evaluations WHERE sample_id = samples.id AND outcome = 'failed' AND {own}
            ) AS failure, (
                SELECT min(reason) FROM evaluations WHERE sample_id = samples.id AND outcome = 'skipped' AND {own}
            ) AS skip
            FROM samples INDEXED BY samples_started_at WHERE {conditions} AND id NOT GLOB 'conversation-*'
        )
    ) GROUP BY app, outcome, why
"""
_PAIRED = """
    SELECT app, metric, outcome, rate, cheap_rate, count(*), total(value), total(cheap), total(value * value),
        total(value * cheap), total(cheap * cheap)
    FROM (
        SELECT app, metric, outcome, rate, value, (
            SELECT value FROM evaluations AS other
            WHERE other.sample_id = evaluations.sample_id AND metric = {cheap} AND outcome = 'score'
        ) AS cheap, (
            SELECT rate FROM evaluations AS other
            WHERE other.sample_id = evaluations.sample_id AND metric = {cheap} AND outcome = 'score'
        ) AS cheap_rate
        FROM evaluations WHERE metric <> {cheap} AND {conditions}
    ) GROUP BY app, metric, outcome, rate, cheap_rate
"""
_CHEAP = """
    SELECT app, count(*), total(value), total(value * value)
    FROM evaluations WHERE metric = {cheap} AND outcome = 'score' AND typeof(value) = 'real' AND {conditions}
    GROUP BY app
"""
_ORDERS = {
    "oldest": "ORDER BY started_at, rowid",
    "newest": "ORDER BY started_at DESC, rowid DESC",
    "lowest": "ORDER BY value, started_at, rowid",
    "highest": "ORDER BY value DESC, started_at, rowid",
}
_TOP = """
    SELECT value FROM evaluations INDEXED BY evaluations_value WHERE {conditions} ORDER BY value DESC
    LIMIT 1 OFFSET {place}
"""


# What concerns an exchange only after all the others of its trace or key is what people saw, and judged, last.
_LAST = """
    SELECT samples.id AS about, said.payload, said.received_at, said.id, said.refers
    FROM said JOIN samples ON samples.{column} = said.value
    WHERE said.kind = '{kind}' AND (said.app IS NULL OR said.app = samples.app)
"""
_LATER = """
    AND NOT EXISTS (
        SELECT 1 FROM samples AS later WHERE later.{column} = said.value AND later.started_at > samples.started_at
            AND (said.app IS NULL OR said.app = later.app)
    )
"""
RATINGS = f"""
    WITH said AS (
        SELECT id, received_at, kind, value, app, payload, json_extract(payload, '$.reference') IS NOT NULL AS refers
        FROM supplements WHERE received_at >= {{since}} - {EARLY_S:g} AND CASE WHEN json_valid(payload) THEN
            coalesce(json_extract(payload, '$.rating'), json_extract(payload, '$.label')) IS NOT NULL
            OR (json_extract(payload, '$.source') = 'feedback' AND json_extract(payload, '$.reference') IS NOT NULL)
        END
    ), labelled AS MATERIALIZED (
        {_LAST.format(kind="exchange", column="id")}
        UNION ALL {(_LAST + _LATER).format(kind="key", column="context_key")}
        UNION ALL {(_LAST + _LATER).format(kind="trace", column="trace_id")}
    )
    SELECT sample_id, app, metric, value, rate, received_at, payload, CASE WHEN refers THEN (
        SELECT value FROM evaluations
        WHERE sample_id = about AND metric = '{CORRECT}' AND outcome = 'score' AND typeof(value) = 'real'
        ORDER BY rowid DESC LIMIT 1
    ) END
    FROM labelled CROSS JOIN evaluations
        INDEXED BY sqlite_autoindex_evaluations_1 ON sample_id = about  -- far fewer than a metric's or an app's
    WHERE outcome = 'score' AND {{conditions}} ORDER BY received_at, labelled.id, evaluations.rowid LIMIT {{limit}}
"""  # noqa: S608 - constants

Statement = tuple[str, Mapping[str, Any]]


class SQLiteConditions(Conditions):
    """Conditions of a statement with the placeholders :p0, :p1 ... for `values`."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def value(self, one: Any, _: str = "String") -> str:
        name = f"p{len(self.values)}"
        self.values[name] = one
        return f":{name}"

    def tagged(self, name: str, value: str) -> str:
        return _TAGGED.format(name=self.value(name), value=self.value(value))

    def tag(self, name: str) -> str:
        return _TAG.format(name=self.value(name))

    def holds(self, query: Query) -> str:
        return _HOLDS.format(pattern=self.value("%" + _WILD.sub(r"\\\g<0>", query.text or "") + "%"))

    def limit(self, query: Query) -> str:
        """What follows LIMIT; -1 is no limit."""
        return self.value(-1 if query.limit is None else max(query.limit, 0))


def points(query: Query, index: str | None = None, exactly: float | None = None) -> Statement:
    """The points of a query; with `exactly`, those of this value."""
    given = SQLiteConditions()
    conditions = f"{given.where(query)} AND {READABLE}"
    if query.order in ORDERS:
        conditions += " AND outcome = 'score'"
    if exactly is not None:
        conditions += f" AND value = {given.value(exactly)}"
    parts = [_POINTS, index or index_of(query), "WHERE", conditions, _ORDERS[query.order], "LIMIT", given.limit(query)]
    return " ".join(parts), given.values


def top(query: Query) -> Statement:
    """The lowest of the `limit` highest scores of a query with one metric."""
    given = SQLiteConditions()
    conditions = f"{given.where(query)} AND {READABLE} AND outcome = 'score'"
    return _TOP.format(conditions=conditions, place=given.value(max((query.limit or 0) - 1, 0))), given.values


def summary(query: Query, by: str) -> Statement:
    """Groups of equal outcome and rate."""
    return _sliced(_SUMMARY, query, by)


def spread(query: Query, by: str) -> Statement:
    """Numbers of scores by hundredth."""
    return _sliced(_SPREAD, query, by)


def _sliced(statement: str, query: Query, by: str) -> Statement:
    given = SQLiteConditions()
    named = {"index": index_of(query), "conditions": given.where(query), "by": given.slice(by)}
    return statement.format(**named), given.values


def scored(query: Query) -> Statement:
    """Sums of the last score of each answer."""
    given = SQLiteConditions()
    return _SCORED.format(index=index_of(query), conditions=given.where(query)), given.values


def outcomes(query: Query) -> Statement:
    """Evaluations by metric, outcome and reason."""
    given = SQLiteConditions()
    index = "evaluations_started_at"  # of an app, the metric stands before the time
    return _OUTCOMES.format(index=index, **given.outcomes(query, exchanges=False)), given.values


def exchanges(query: Query) -> Statement:
    """Exchanges by how their evaluations ended together."""
    given = SQLiteConditions()
    parts = given.outcomes(query, exchanges=True)
    own = f"metric NOT IN ({parts['signals']})"
    return _EXCHANGES.format(conditions=parts["conditions"], own=own), given.values


def paired(query: Query, cheap: str) -> Statement:
    """Groups of equal outcome and rates, beside the cheap metric."""
    given = SQLiteConditions()
    return _PAIRED.format(cheap=given.value(cheap), conditions=given.where(query)), given.values


def cheap(query: Query, metric: str) -> Statement:
    """Sums of the cheap metric over everything that the query selects, of any metric."""
    given = SQLiteConditions()
    return _CHEAP.format(cheap=given.value(metric), conditions=given.where(query, metric=False)), given.values


def ratings(query: Query) -> Statement:
    """Scores, and the human labels of the same answers."""
    given = SQLiteConditions()
    conditions = f"{given.where(query)} AND {READABLE}"
    since = given.value(float(query.since))
    return RATINGS.format(conditions=conditions, since=since, limit=given.limit(query)), given.values


def index_of(query: Query) -> str:
    """The index to use for the query's time. SQLite cannot estimate it, and would read all of an app for some hours."""
    if query.metric is None:
        return "INDEXED BY evaluations_started_at"
    return "INDEXED BY evaluations_metric" if query.app is None else "INDEXED BY evaluations_app"
