"""What the PostgreSQL store asks its database: the conditions of a query, and the statements around them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from monitors.storage.engines.failures import encoded
from monitors.storage.engines.postgres import plain
from monitors.storage.stores import Query
from monitors.storage.stores.calendar import days_between
from monitors.storage.stores.ratings import CORRECT, EARLY_S
from monitors.storage.stores.top_scores import ORDERS

_WILD = re.compile(r"[%_\\]")
_POINTS = """
    SELECT sample_id, started_at, app, model, metric, outcome, value, reason, rate, version, judge, prompt,
        cluster, tags::text
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


class Asked:
    """A statement under way: what stands in it as $1, $2 ... is in `values`."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def value(self, one: Any) -> str:
        """Take in a parameter; return what stands for it in the statement."""
        self.values.append(plain(one) if isinstance(one, str) else one)
        return f"${len(self.values)}"

    def window(self, query: Query) -> str:
        """The condition on time, told twice: by day too, so that only the days in question are looked at."""
        first, last = days_between(query.since, query.until)
        since, until = self.value(float(query.since)), self.value(float(query.until))
        days = f"day >= {self.value(first)} AND day <= {self.value(last)}"
        return f"{days} AND started_at >= {since} AND started_at < {until}"

    def where(self, query: Query, *, metric: bool = True) -> str:
        """All conditions of a query."""
        conditions = [self.window(query)]
        equal = {"metric": query.metric if metric else None, "app": query.app, "model": query.model}
        equal |= {"prompt": query.prompt, "outcome": query.outcome}
        conditions += [f"{name} = {self.value(one)}" for name, one in equal.items() if one is not None]
        if query.least is not None:
            conditions.append(f"value >= {self.value(float(query.least))}")
        if query.most is not None:
            conditions.append(f"value <= {self.value(float(query.most))}")
        if query.tag is not None:
            name, value = query.tag
            conditions.append(f"tags ->> {self.value(name)} = {self.value(value)}")
        if query.text is not None:
            conditions.append(self._holds(query.text))
        return " AND ".join(conditions)

    def limit(self, query: Query) -> str:
        """What follows LIMIT."""
        return "ALL" if query.limit is None else self.value(max(query.limit, 0))

    def _holds(self, text: str) -> str:
        """The condition that `text` stands in the question or the response.

        It is looked for as JSON has it, because what JSON can hold (NUL) no text of PostgreSQL can; a sample with such
        a thing in it cannot be taken apart there, and is searched as a whole.
        """
        written = encoded(text).decode()[1:-1]
        pattern = self.value("%" + _WILD.sub(r"\\\g<0>", written) + "%")
        return _HOLDS.format(pattern=pattern)


def series(query: Query, exactly: float | None = None) -> tuple[str, Sequence[Any]]:
    """The points of a query; with `exactly`, those of this value."""
    asked = Asked()
    conditions = asked.where(query)
    if query.order in ORDERS:
        conditions += " AND outcome = 'score'"
    if exactly is not None:
        conditions += f" AND value = {asked.value(exactly)}"
    return " ".join([_POINTS, "WHERE", conditions, _ORDERS[query.order], "LIMIT", asked.limit(query)]), asked.values


def top(query: Query) -> tuple[str, Sequence[Any]]:
    """The value at the last place of the highest scores that a query of one metric asks for."""
    asked = Asked()
    conditions = asked.where(query)
    place = asked.value(max((query.limit or 0) - 1, 0))
    return _TOP.format(conditions=conditions, place=place), asked.values


def metrics(query: Query) -> tuple[str, Sequence[Any]]:
    """The metrics of a query's days, one probe of the index after the other."""
    asked = Asked()
    first, last = days_between(query.since, query.until)
    return _METRICS.format(days=f"day >= {asked.value(first)} AND day <= {asked.value(last)}"), asked.values


def summary(query: Query, by: str) -> tuple[str, Sequence[Any]]:
    """Groups of equal outcome and rate."""
    return _sliced(_SUMMARY, query, by)


def spread(query: Query, by: str) -> tuple[str, Sequence[Any]]:
    """Scores counted by hundredths."""
    return _sliced(_SPREAD, query, by)


def _sliced(statement: str, query: Query, by: str) -> tuple[str, Sequence[Any]]:
    asked = Asked()
    conditions = asked.where(query)
    kind, _, name = by.partition(":")
    cut = {"": "''", "model": "model", "prompt": "coalesce(prompt, '')"}.get(kind)
    return statement.format(
        conditions=conditions, by=cut or f"coalesce(tags ->> {asked.value(name)}, '')"
    ), asked.values


def scored(query: Query) -> tuple[str, Sequence[Any]]:
    """The last scores of each answer, added up."""
    asked = Asked()
    return _SCORED.format(conditions=asked.where(query)), asked.values


def paired(query: Query, cheap: str) -> tuple[str, Sequence[Any]]:
    """Groups of equal outcome and rates, beside the cheap metric."""
    asked = Asked()
    named = asked.value(cheap)
    return _PAIRED.format(cheap=named, window=asked.window(query), conditions=asked.where(query)), asked.values


def cheap(query: Query, metric: str) -> tuple[str, Sequence[Any]]:
    """The sums of the cheap metric over everything that the query asks for, whatever its metric."""
    asked = Asked()
    return _CHEAP.format(cheap=asked.value(metric), conditions=asked.where(query, metric=False)), asked.values


def ratings(query: Query) -> tuple[str, Sequence[Any]]:
    """Scores, and what people said of the same answers."""
    asked = Asked()
    conditions = asked.where(query)
    since, limit = asked.value(float(query.since)), asked.limit(query)
    return _RATINGS.format(conditions=conditions, since=since, limit=limit), asked.values
