"""SQL statements of the PostgreSQL store."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gaugeway.storage.engines.failures import encoded
from gaugeway.storage.engines.postgres.connection import plain
from gaugeway.storage.stores import Query
from gaugeway.storage.stores.conditions import DayConditions
from gaugeway.storage.stores.ratings import CORRECT, EARLY_S
from gaugeway.storage.stores.top_scores import ORDERS

_WILD = re.compile(r"[%_\\]")
CONVERSATION = """
    SELECT payload::text, conversation, turn, hop FROM samples WHERE conversation = $1
    ORDER BY started_at DESC, id DESC LIMIT $2
"""
ADDRESSED_BY = {
    by: f"""
        SELECT payload::text, conversation, turn, hop FROM samples
        WHERE {condition} AND started_at >= $2 AND started_at < $3 AND day BETWEEN $4 AND $5
        ORDER BY started_at DESC, id DESC LIMIT 100
    """  # noqa: S608 - constants
    for by, condition in {
        "trace_id": "trace_id = $1",
        "context_key": "context_key = $1",
        "session": "strpos(payload::text, $1) > 0",
        "response_id": "strpos(payload::text, $1) > 0",
    }.items()
}
SILENT = """
    SELECT DISTINCT conversation FROM samples AS last
    WHERE started_at >= $1 AND started_at < $2 AND day BETWEEN $3 AND $4 AND conversation IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM samples WHERE conversation = last.conversation AND started_at >= $2 AND day >= $4
    )
"""
_POINTS = """
    SELECT sample_id, started_at, app, model, metric, outcome, value, reason, rate, version, judge, prompt,
        weight, cluster, tags::text
    FROM evaluations
"""
_ORDERS = {
    "oldest": "ORDER BY started_at, position",
    "newest": "ORDER BY started_at DESC, position DESC",
    "lowest": "ORDER BY value, started_at, position",
    "highest": "ORDER BY value DESC, started_at, position",
}
_TOP = """
    SELECT value FROM evaluations WHERE outcome = 'score' AND {conditions} ORDER BY value DESC LIMIT 1 OFFSET {place}
"""
_METRICS = """
    WITH RECURSIVE known (metric) AS (
        SELECT (SELECT metric FROM evaluations WHERE {days} ORDER BY metric LIMIT 1)
        UNION ALL
        SELECT (SELECT metric FROM evaluations WHERE {days} AND metric > known.metric ORDER BY metric LIMIT 1)
        FROM known WHERE known.metric IS NOT NULL
    )
    SELECT metric FROM known WHERE metric IS NOT NULL
"""
_SUMMARY = """
    SELECT app, metric, {by} AS slice, outcome, rate, count(*), count(value), sum(value), sum(value * value)
    FROM evaluations WHERE {conditions} GROUP BY app, metric, slice, outcome, rate
"""
_SCORED = """
    SELECT app, metric, count(*), sum(value), sum(value * value), min(rate), max(rate)
    FROM (
        SELECT DISTINCT ON (sample_id, day, metric) app, metric, value, rate FROM evaluations
        WHERE outcome = 'score' AND rate > 0 AND rate <= 1 AND value >= 0 AND value <= 1 AND {conditions}
        ORDER BY sample_id, day, metric, position DESC
    ) AS last GROUP BY app, metric
"""
_SPREAD = """
    SELECT app, metric, {by} AS slice, version, judge, rate, least(floor(value * 100), 99)::integer AS k, count(*),
        sum(value), sum(value * value)
    FROM evaluations
    WHERE outcome = 'score' AND rate > 0 AND rate <= 1 AND value >= 0 AND value <= 1 AND {conditions}
    GROUP BY app, metric, slice, version, judge, rate, k
"""
_OUTCOMES = """
    SELECT app, metric, outcome, CASE WHEN outcome = 'score' THEN '' ELSE reason END AS why, count(*)
    FROM evaluations WHERE {conditions} GROUP BY app, metric, outcome, why
"""
_EXCHANGES = """
    SELECT app, '', outcome, CASE WHEN outcome = 'score' THEN '' ELSE coalesce(failure, skip, '') END AS why, count(*)
    FROM (
        SELECT app, failure, skip,
            CASE WHEN scores > 0 THEN 'score' WHEN failure IS NOT NULL THEN 'failed'
                WHEN skip IS NOT NULL THEN 'skipped' ELSE 'none' END AS outcome
        FROM (SELECT id, day, app FROM samples WHERE {conditions} AND id NOT LIKE 'conversation-%') AS one
        CROSS JOIN LATERAL (
            SELECT count(*) FILTER (WHERE outcome = 'score') AS scores,
                min(reason) FILTER (WHERE outcome = 'failed') AS failure,
                min(reason) FILTER (WHERE outcome = 'skipped') AS skip
            FROM evaluations WHERE sample_id = one.id AND evaluations.day = one.day AND metric NOT IN ({signals})
        ) AS of_one
    ) AS every GROUP BY app, outcome, why
"""
_PAIRED = """
    WITH cheap AS MATERIALIZED (
        SELECT DISTINCT ON (sample_id, day) sample_id, day, value, rate FROM evaluations
        WHERE metric = {cheap} AND outcome = 'score' AND {window} ORDER BY sample_id, day, position
    )
    SELECT app, metric, outcome, dear.rate, cheap.rate, count(*),
        coalesce(sum(dear.value), 0), coalesce(sum(cheap.value), 0), coalesce(sum(dear.value * dear.value), 0),
        coalesce(sum(dear.value * cheap.value), 0), coalesce(sum(cheap.value * cheap.value), 0)
    FROM (SELECT * FROM evaluations WHERE metric <> {cheap} AND {conditions}) AS dear
    LEFT JOIN cheap USING (sample_id, day)
    GROUP BY app, metric, outcome, dear.rate, cheap.rate
"""
_CHEAP = """
    SELECT app, count(*), sum(value), sum(value * value) FROM evaluations
    WHERE metric = {cheap} AND outcome = 'score' AND {conditions} GROUP BY app
"""
# What concerns an exchange only after all the others of its trace or key is what people saw, and judged, last.
_LAST = """
    SELECT last.id AS about, last.day AS about_day, said.payload, said.received_at, said.id, said.refers
    FROM said CROSS JOIN LATERAL (
        SELECT samples.id, day FROM samples
        WHERE samples.{column} = said.value AND (said.app IS NULL OR said.app = samples.app)
        ORDER BY started_at DESC FETCH FIRST 1 ROW WITH TIES
    ) AS last WHERE said.kind = '{kind}'
"""
_RATINGS = f"""
    WITH said AS (
        SELECT id, received_at, kind, value, app, payload, strpos(payload::text, '"reference":"') > 0 AS refers,
            greatest(0, least(1e9, floor(received_at / 86400)))::integer AS received_day
        FROM supplements
        WHERE says AND received_at >= {{since}}::float8 - {EARLY_S:g}
    ), near AS MATERIALIZED (
        -- most is said of an exchange on its day or the next one: no other day needs to be looked at
        SELECT samples.id AS about, day AS about_day, said.payload, said.received_at, said.id, said.refers
        FROM said JOIN samples ON samples.id = said.value AND day IN (received_day, received_day - 1)
        WHERE said.kind = 'exchange' AND (said.app IS NULL OR said.app = samples.app)
    ), labelled AS MATERIALIZED (
        SELECT * FROM near
        UNION ALL {_LAST.format(kind="exchange", column="id")} AND said.id NOT IN (SELECT id FROM near)
        UNION ALL {_LAST.format(kind="key", column="context_key")}
        UNION ALL {_LAST.format(kind="trace", column="trace_id")}
    )
    SELECT sample_id, app, metric, value, rate, received_at, payload::text, CASE WHEN refers THEN (
        SELECT value FROM evaluations AS other
        WHERE other.sample_id = about AND other.day = about_day AND metric = '{CORRECT}' AND outcome = 'score'
        ORDER BY position DESC LIMIT 1
    ) END
    FROM labelled JOIN evaluations ON sample_id = about AND day = about_day
    WHERE outcome = 'score' AND {{conditions}} ORDER BY received_at, labelled.id, position LIMIT {{limit}}
"""  # noqa: S608 - put together from constants

_HOLDS = r"""
    EXISTS (
        SELECT 1 FROM samples WHERE samples.id = sample_id AND samples.day = evaluations.day
            AND CASE WHEN strpos(payload::text, '\u0000') > 0 THEN payload::text ILIKE {pattern}
            ELSE (payload -> 'question')::text ILIKE {pattern} OR (payload -> 'response')::text ILIKE {pattern} END
    )
"""


# A payload with \u0000 cannot be taken apart, and is searched for the name as it is written there.
_RETRIEVED = r"""
    EXISTS (
        SELECT 1 FROM samples WHERE samples.id = sample_id AND samples.day = evaluations.day
            AND CASE WHEN strpos(payload::text, '\u0000') > 0 THEN strpos(payload::text, {written}) > 0
            ELSE EXISTS (
                SELECT 1 FROM json_array_elements(payload -> 'contexts') AS one
                WHERE btrim(one ->> 'id') = {name} OR btrim(one ->> 'source') = {name}
            ) END
    )
"""
_IN_SESSION = r"""
    EXISTS (
        SELECT 1 FROM samples WHERE samples.id = sample_id AND samples.day = evaluations.day
            AND CASE WHEN strpos(payload::text, '\u0000') > 0 THEN strpos(payload::text, {written}) > 0
            ELSE payload ->> 'session' = {name} END
    )
"""


class PostgresConditions(DayConditions):
    """Conditions of a statement with the placeholders $1, $2 ... for `values`."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def value(self, one: Any, _: str = "String") -> str:
        self.values.append(plain(one) if isinstance(one, str) else one)
        return f"${len(self.values)}"

    def tagged(self, name: str, value: str) -> str:
        return f"tags ->> {self.value(name)} = {self.value(value)}"

    def tag(self, name: str) -> str:
        return f"coalesce(tags ->> {self.value(name)}, '')"

    def holds(self, query: Query) -> str:
        # The text is searched for in its JSON form: PostgreSQL's text type cannot hold NUL. A payload with \u0000
        # cannot be taken apart there, and is searched as a whole.
        written = encoded(query.text).decode()[1:-1]
        return _HOLDS.format(pattern=self.value("%" + _WILD.sub(r"\\\g<0>", written) + "%"))

    def retrieved(self, query: Query) -> str:
        written = encoded(query.source).decode()
        return _RETRIEVED.format(name=self.value(query.source), written=self.value(written))

    def in_session(self, query: Query) -> str:
        written = f'"session":{encoded(query.session).decode()}'
        return _IN_SESSION.format(name=self.value(query.session), written=self.value(written))

    def limit(self, query: Query) -> str:
        """What follows LIMIT."""
        return "ALL" if query.limit is None else self.value(max(query.limit, 0))


def series(query: Query, exactly: float | None = None) -> tuple[str, Sequence[Any]]:
    """The points of a query; with `exactly`, those of this value."""
    given = PostgresConditions()
    conditions = given.where(query)
    if query.order in ORDERS:
        conditions += " AND outcome = 'score'"
    if exactly is not None:
        conditions += f" AND value = {given.value(exactly)}"
    return " ".join([_POINTS, "WHERE", conditions, _ORDERS[query.order], "LIMIT", given.limit(query)]), given.values


def top(query: Query) -> tuple[str, Sequence[Any]]:
    """The value at the last place of the highest scores that a query of one metric asks for."""
    given = PostgresConditions()
    conditions = given.where(query)
    place = given.value(max((query.limit or 0) - 1, 0))
    return _TOP.format(conditions=conditions, place=place), given.values


def metrics(query: Query) -> tuple[str, Sequence[Any]]:
    """The metrics of a query's days, one probe of the index after the other."""
    given = PostgresConditions()
    return _METRICS.format(days=given.days(query)), given.values


def summary(query: Query, by: str) -> tuple[str, Sequence[Any]]:
    """Groups of equal outcome and rate."""
    return _sliced(_SUMMARY, query, by)


def spread(query: Query, by: str) -> tuple[str, Sequence[Any]]:
    """Scores counted by hundredths."""
    return _sliced(_SPREAD, query, by)


def _sliced(statement: str, query: Query, by: str) -> tuple[str, Sequence[Any]]:
    given = PostgresConditions()
    return statement.format(conditions=given.where(query), by=given.slice(by)), given.values


def scored(query: Query) -> tuple[str, Sequence[Any]]:
    """The last scores of each answer, added up."""
    given = PostgresConditions()
    return _SCORED.format(conditions=given.where(query)), given.values


def outcomes(query: Query) -> tuple[str, Sequence[Any]]:
    """Evaluations by metric, outcome and reason."""
    given = PostgresConditions()
    return _OUTCOMES.format(**given.outcomes(query, exchanges=False)), given.values


def exchanges(query: Query) -> tuple[str, Sequence[Any]]:
    """Exchanges by how their evaluations ended together."""
    given = PostgresConditions()
    return _EXCHANGES.format(**given.outcomes(query, exchanges=True)), given.values


def paired(query: Query, cheap: str) -> tuple[str, Sequence[Any]]:
    """Groups of equal outcome and rates, beside the cheap metric."""
    given = PostgresConditions()
    named = given.value(cheap)
    return _PAIRED.format(cheap=named, window=given.window(query), conditions=given.where(query)), given.values


def cheap(query: Query, metric: str) -> tuple[str, Sequence[Any]]:
    """The sums of the cheap metric over everything that the query asks for, whatever its metric."""
    given = PostgresConditions()
    return _CHEAP.format(cheap=given.value(metric), conditions=given.where(query, metric=False)), given.values


def ratings(query: Query) -> tuple[str, Sequence[Any]]:
    """Scores, and what people said of the same answers."""
    given = PostgresConditions()
    conditions = given.where(query)
    since, limit = given.value(float(query.since)), given.limit(query)
    return _RATINGS.format(conditions=conditions, since=since, limit=limit), given.values
