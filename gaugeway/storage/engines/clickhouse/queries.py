"""SQL statements of the ClickHouse store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from gaugeway.storage.stores import Query
from gaugeway.storage.stores.calendar import days_between
from gaugeway.storage.stores.conditions import DayConditions
from gaugeway.storage.stores.ratings import CORRECT, EARLY_S

T = TypeVar("T")
# A server takes 128 KiB for one parameter; what is quoted in it may take twice its length.
_MOST_BYTES = 50_000  # internal bound: size of a batch
# Both tables have a row and all that replace it within one partition, so that each can be read by itself.
APART = "SETTINGS do_not_merge_across_partitions_select_final = 1"
CONVERSATION = f"""
    SELECT payload, conversation, turn, hop FROM samples FINAL WHERE conversation = {{v1:String}}
    ORDER BY started_at DESC, id DESC LIMIT {{v2:UInt64}} {APART}
"""  # noqa: S608 - put together from constants
ADDRESSED_BY = {
    by: f"""
        SELECT payload, conversation, turn, hop FROM samples FINAL
        WHERE {condition} AND day BETWEEN {{v4:Int32}} AND {{v5:Int32}}
            AND started_at >= {{v2:Float64}} AND started_at < {{v3:Float64}}
        ORDER BY started_at DESC, id DESC LIMIT 100 {APART}
    """  # noqa: S608 - put together from constants
    for by, condition in {
        "trace_id": "trace_id = {v1:String}",
        "context_key": "context_key = {v1:String}",
        "session": "position(payload, {v1:String}) > 0",
        "response_id": "position(payload, {v1:String}) > 0",
    }.items()
}
SILENT = f"""
    SELECT conversation FROM samples FINAL
    WHERE day >= {{v3:Int32}} AND started_at >= {{v1:Float64}} AND conversation IS NOT NULL
    GROUP BY conversation HAVING max(started_at) < {{v2:Float64}} {APART}
"""  # noqa: S608 - put together from constants
_POINTS = """
    SELECT sample_id, started_at, app, model, metric, outcome, value, reason, rate, version, judge, prompt,
        weight, cluster, toJSONString(tags)
    FROM evaluations FINAL
"""
_ORDERS = {
    "oldest": "ORDER BY started_at, position",
    "newest": "ORDER BY started_at DESC, position DESC",
    "lowest": "ORDER BY value, started_at, position",
    "highest": "ORDER BY value DESC, started_at, position",
}
_SUMMARY = """
    SELECT app, metric, {by} AS slice, outcome, rate, count(), count(value), sum(value), sum(value * value)
    FROM evaluations FINAL WHERE {conditions} GROUP BY app, metric, slice, outcome, rate
"""
_OUTCOMES = """
    SELECT app, metric, outcome, if(outcome = 'score', '', reason) AS why, count()
    FROM evaluations FINAL WHERE {conditions} GROUP BY app, metric, outcome, why
"""
_EXCHANGES = """
    SELECT app, '', multiIf(scores > 0, 'score', failures > 0, 'failed', skips > 0, 'skipped', 'none') AS ended,
        multiIf(scores > 0, '', failures > 0, failure, skips > 0, skip, '') AS why, count()
    FROM (
        SELECT id, started_at, app FROM samples FINAL WHERE {conditions} AND NOT startsWith(id, 'conversation-')
    ) AS one LEFT JOIN (
        SELECT sample_id, started_at, countIf(outcome = 'score') AS scores, countIf(outcome = 'failed') AS failures,
            countIf(outcome = 'skipped') AS skips, minIf(reason, outcome = 'failed') AS failure,
            minIf(reason, outcome = 'skipped') AS skip
        FROM evaluations FINAL WHERE {conditions} AND metric NOT IN ({signals}) GROUP BY sample_id, started_at
    ) AS of_one ON of_one.sample_id = one.id AND of_one.started_at = one.started_at
    GROUP BY app, ended, why
"""
_PAIRED = """
    SELECT app, metric, outcome, rate, cheap_rate, count(), coalesce(sum(value), 0), coalesce(sum(cheap_value), 0),
        coalesce(sum(value * value), 0), coalesce(sum(value * cheap_value), 0),
        coalesce(sum(cheap_value * cheap_value), 0)
    FROM (
        SELECT sample_id, started_at, app, metric, outcome, rate, value
        FROM evaluations FINAL WHERE metric <> {cheap} AND {conditions}
    ) AS dear LEFT JOIN (
        SELECT sample_id, started_at, argMin(value, position) AS cheap_value,
            argMin(toNullable(rate), position) AS cheap_rate
        FROM evaluations FINAL WHERE metric = {cheap} AND outcome = 'score' AND {window}
        GROUP BY sample_id, started_at
    ) AS cheap USING (sample_id, started_at)
    GROUP BY app, metric, outcome, rate, cheap_rate
"""
_CHEAP = """
    SELECT app, count(), sum(value), sum(value * value)
    FROM evaluations FINAL WHERE metric = {cheap} AND outcome = 'score' AND {conditions} GROUP BY app
"""
# What concerns an exchange only after all the others of its trace or key is what people saw, and judged, last.
_LAST = """
    SELECT about, moment, payload, received_at, said.id AS said_id
    FROM (SELECT * FROM said WHERE kind = '{kind}') AS said JOIN (
        SELECT id AS about, started_at AS moment, {column} AS named, app AS its_app,
            max(started_at) OVER (PARTITION BY {column}) AS latest,
            max(started_at) OVER (PARTITION BY {column}, app) AS latest_of_app
        FROM samples FINAL WHERE {column} IN (SELECT value FROM said WHERE kind = '{kind}')
    ) AS last ON last.named = said.value
    WHERE if(said.by = '', moment = latest, its_app = said.by AND moment = latest_of_app)
"""
_RATINGS = f"""
    WITH said AS (
        SELECT id, received_at, kind, value, payload, JSONExtractString(payload, 'app') AS by FROM supplements FINAL
        WHERE says AND day >= {{day}} AND received_at >= {{early}}
    ), labelled AS (
        {_LAST.format(kind="exchange", column="id")}
        UNION ALL {_LAST.format(kind="key", column="context_key")}
        UNION ALL {_LAST.format(kind="trace", column="trace_id")}
    )
    SELECT sample_id, app, metric, value, rate, received_at, payload, correct
    FROM (
        SELECT sample_id, started_at, app, metric, value, rate, position FROM evaluations FINAL
        WHERE outcome = 'score' AND {{conditions}} AND sample_id IN (SELECT about FROM labelled)
    ) AS scored
    JOIN labelled ON scored.sample_id = labelled.about AND scored.started_at = labelled.moment
    LEFT JOIN (
        SELECT sample_id AS known, started_at AS known_at, argMax(value, position) AS correct FROM evaluations FINAL
        WHERE metric = '{CORRECT}' AND outcome = 'score' AND {{window}} AND sample_id IN (SELECT about FROM labelled)
        GROUP BY known, known_at
    ) AS verdicts ON verdicts.known = scored.sample_id AND verdicts.known_at = scored.started_at
    ORDER BY received_at, said_id, position
"""  # noqa: S608 - put together from constants
_HOLDS = """
    sample_id IN (
        SELECT id FROM samples FINAL WHERE {window} AND (
            positionCaseInsensitive(JSONExtractString(payload, 'question'), {text}) > 0
            OR positionCaseInsensitive(JSONExtractString(payload, 'response'), {text}) > 0
        )
    )
"""
_RETRIEVED = """
    sample_id IN (
        SELECT id FROM samples FINAL WHERE {window} AND arrayExists(
            one -> trimBoth(JSONExtractString(one, 'id')) = {name}
                OR trimBoth(JSONExtractString(one, 'source')) = {name},
            JSONExtractArrayRaw(payload, 'contexts')
        )
    )
"""
_IN_SESSION = """
    sample_id IN (
        SELECT id FROM samples FINAL WHERE {window} AND JSONExtractString(payload, 'session') = {name}
    )
"""

Statement = tuple[str, Mapping[str, Any]]


class ClickHouseConditions(DayConditions):
    """Conditions of a statement with the placeholders {p0:String}, {p1:Float64} ... for `values`."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def value(self, one: Any, kind: str = "String") -> str:
        name = f"p{len(self.values)}"
        self.values[name] = one
        return f"{{{name}:{kind}}}"

    def tagged(self, name: str, value: str) -> str:
        named = self.value(name)
        return f"mapContains(tags, {named}) AND tags[{named}] = {self.value(value)}"

    def tag(self, name: str) -> str:
        return f"tags[{self.value(name)}]"

    def holds(self, query: Query) -> str:
        return _HOLDS.format(window=self.window(query), text=self.value(query.text))

    def retrieved(self, query: Query) -> str:
        return _RETRIEVED.format(window=self.window(query), name=self.value(query.source))

    def in_session(self, query: Query) -> str:
        return _IN_SESSION.format(window=self.window(query), name=self.value(query.session))

    def limit(self, query: Query) -> str:
        """What ends the statement."""
        return "" if query.limit is None else f"LIMIT {self.value(max(query.limit, 0), 'UInt64')}"


def series(query: Query) -> Statement:
    """The points of a query."""
    given = ClickHouseConditions()
    conditions = given.where(query)
    if query.order in ("lowest", "highest"):
        conditions += " AND outcome = 'score'"
    order = _ORDERS[query.order]
    return " ".join([_POINTS, "WHERE", conditions, order, given.limit(query), APART]), given.values


def summary(query: Query, by: str) -> Statement:
    """Groups of equal outcome and rate."""
    given = ClickHouseConditions()
    return _SUMMARY.format(conditions=given.where(query), by=given.slice(by)) + APART, given.values


def outcomes(query: Query) -> Statement:
    """Evaluations by metric, outcome and reason."""
    given = ClickHouseConditions()
    return _OUTCOMES.format(**given.outcomes(query, exchanges=False)) + APART, given.values


def exchanges(query: Query) -> Statement:
    """Exchanges by how their evaluations ended together."""
    given = ClickHouseConditions()
    return _EXCHANGES.format(**given.outcomes(query, exchanges=True)) + APART, given.values


def paired(query: Query, cheap: str) -> Statement:
    """Groups of equal outcome and rates, beside the cheap metric."""
    given = ClickHouseConditions()
    named = given.value(cheap)
    statement = _PAIRED.format(cheap=named, window=given.window(query), conditions=given.where(query))
    return statement + APART, given.values


def cheap(query: Query, metric: str) -> Statement:
    """The sums of the cheap metric over everything that the query asks for, whatever its metric."""
    given = ClickHouseConditions()
    statement = _CHEAP.format(cheap=given.value(metric), conditions=given.where(query, metric=False))
    return statement + APART, given.values


def ratings(query: Query) -> Statement:
    """Scores, and what people said of the same answers."""
    given = ClickHouseConditions()
    early = float(query.since) - EARLY_S
    fields = {
        "conditions": given.where(query),
        "window": given.window(query),
        "early": given.value(early, "Float64"),
        "day": given.value(days_between(early, early)[0], "Int32"),
    }
    return _RATINGS.format(**fields) + given.limit(query), given.values


def pages(items: Iterable[T]) -> Iterator[list[T]]:
    """Cut a list into pieces that fit into a parameter.

    >>> [len(page) for page in pages(["x" * 20_000] * 5)]
    [2, 2, 1]
    """
    page: list[T] = []
    length = 0
    for item in items:
        size = 8 + len(str(item).encode())
        if page and length + size > _MOST_BYTES:
            yield page
            page, length = [], 0
        page.append(item)
        length += size
    if page:
        yield page
