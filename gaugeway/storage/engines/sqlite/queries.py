"""SQL statements of the SQLite store."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gaugeway.storage.engines.sqlite import signal_rows
from gaugeway.storage.stores import Query
from gaugeway.storage.stores.conditions import Conditions
from gaugeway.storage.stores.ratings import CORRECT, EARLY_S
from gaugeway.storage.stores.top_scores import ORDERS

VALUE_INDEX = "INDEXED BY evaluations_value"
CONVERSATION = """
    SELECT payload, conversation, turn, hop FROM samples WHERE conversation = :v1
    ORDER BY started_at DESC, id DESC LIMIT :v2
"""
ADDRESSED_BY = {
    by: f"""
        SELECT payload, conversation, turn, hop FROM samples
        WHERE {condition} AND started_at >= :v2 AND started_at < :v3 ORDER BY started_at DESC, id DESC LIMIT 100
    """  # noqa: S608 - constants
    for by, condition in {
        "trace_id": "trace_id = :v1",
        "context_key": "context_key = :v1",
        "session": "instr(payload, :v1) > 0",
        "response_id": "instr(payload, :v1) > 0",
    }.items()
}
SILENT = """
    SELECT DISTINCT conversation FROM samples AS last
    WHERE started_at >= :v1 AND started_at < :v2 AND conversation IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM samples WHERE conversation = last.conversation AND started_at >= :v2
    )
"""
_POINT = (
    "sample_id, started_at, app, model, metric, outcome, value, reason, rate, version, judge, prompt, weight, cluster, "
    "tags"
)
_GROUPED = "app, metric, outcome, value, rate, version, judge, model, prompt, tags"
"""What sums may be grouped by."""
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
_RETRIEVED = """
    EXISTS (
        SELECT 1 FROM samples,
            json_each(CASE WHEN json_valid(payload) THEN payload ELSE '{{}}' END, '$.contexts') AS one
        WHERE samples.id = sample_id AND (
            trim(json_extract(one.value, '$.id')) = {name} OR trim(json_extract(one.value, '$.source')) = {name}
        )
    )
"""
_IN_SESSION = """
    EXISTS (
        SELECT 1 FROM samples WHERE id = sample_id
            AND CASE WHEN json_valid(payload) THEN json_extract(payload, '$.session') = {name} END
    )
"""
# A numpy number that slips through becomes a BLOB: such a row is no point, and must not take a place in a page of them.
READABLE = "typeof(rate) = 'real' AND (outcome <> 'score' OR typeof(value) = 'real')"
# There are few rates, so that their weights can be worked out here: that takes SQLite four times as long.
_SUMMARY = """
    SELECT app, metric, {by} AS slice, outcome, rate, count(*), count(*) FILTER (WHERE typeof(value) = 'real'),
        total(value) FILTER (WHERE typeof(value) = 'real'), total(value * value) FILTER (WHERE typeof(value) = 'real')
    FROM ({rows}) GROUP BY app, metric, slice, outcome, rate
"""
_SIGNAL_SUMMARY = """
    SELECT app, {by} AS slice, rate, {sums} FROM signals {index} WHERE {conditions} GROUP BY app, slice, rate
"""
_SCORED = """
    SELECT app, metric, count(*), total(value), total(value * value), min(rate), max(rate)
    FROM (
        SELECT app, metric, value, rate, max(place) FROM ({rows})
        WHERE outcome = 'score' AND typeof(rate) = 'real' AND rate > 0.0 AND rate <= 1.0
            AND typeof(value) = 'real' AND value >= 0.0 AND value <= 1.0
        GROUP BY sample_id, metric
    ) GROUP BY app, metric
"""
_SPREAD = """
    SELECT app, metric, {by} AS slice, version, judge, rate, min(CAST(value * 100.0 AS INTEGER), 99) AS k, count(*),
        sum(value), sum(value * value)
    FROM ({rows})
    WHERE outcome = 'score' AND typeof(rate) = 'real' AND rate > 0.0 AND rate <= 1.0
        AND typeof(value) = 'real' AND value >= 0.0 AND value <= 1.0
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
        SELECT app, metric, outcome, rate, value, {cheap_value} AS cheap, {cheap_rate} AS cheap_rate
        FROM ({rows}) AS one WHERE metric <> {cheap}
    ) GROUP BY app, metric, outcome, rate, cheap_rate
"""
_OF_CHEAP = """
    SELECT {column} FROM evaluations AS other
    WHERE other.sample_id = one.sample_id AND metric = {cheap} AND outcome = 'score'
"""
_CHEAP = """
    SELECT app, count(*), total(value), total(value * value)
    FROM ({rows}) WHERE outcome = 'score' AND typeof(value) = 'real'
    GROUP BY app
"""
_ORDERS = {
    "oldest": "ORDER BY started_at, {key}",
    "newest": "ORDER BY started_at DESC, {key} DESC",
    "lowest": "ORDER BY value, started_at, {key}",
    "highest": "ORDER BY value DESC, started_at, {key}",
}
_TOP = """
    SELECT value FROM evaluations INDEXED BY evaluations_value WHERE {conditions} ORDER BY value DESC
    LIMIT 1 OFFSET {place}
"""


# What concerns an exchange only after all the others of its trace or key is what people saw, and judged, last.
_LAST = """
    SELECT samples.id AS about, samples.started_at AS about_since, said.payload, said.received_at, said.id, said.refers
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
    FROM ({{rows}}) ORDER BY received_at, id, place LIMIT {{limit}}
"""  # noqa: S608 - constants
_RATED = "sample_id, app, metric, outcome, value, rate, received_at, payload, refers, about, id, place"
# The keys of the tables: an exchange has far fewer evaluations than a metric or an app.
_LABELLED = (
    "labelled CROSS JOIN evaluations INDEXED BY sqlite_autoindex_evaluations_1 ON sample_id = about",
    f"labelled CROSS JOIN signals INDEXED BY {signal_rows.KEY} ON started_at = about_since AND sample_id = about",
)

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

    def retrieved(self, query: Query) -> str:
        return _RETRIEVED.format(name=self.value(query.source))

    def in_session(self, query: Query) -> str:
        return _IN_SESSION.format(name=self.value(query.session))

    def limit(self, query: Query) -> str:
        """What follows LIMIT; -1 is no limit."""
        return self.value(-1 if query.limit is None else max(query.limit, 0))


def points(query: Query, index: str | None = None, exactly: float | None = None) -> tuple[Statement, list[Statement]]:
    """The points of a query in its order; with `exactly`, those of this value.

    The first statement reads evaluations, the others signals, one after the other.
    """
    given = SQLiteConditions()
    conditions = f"{given.where(query)} AND {READABLE}"
    if query.order in ORDERS:
        conditions += " AND outcome = 'score'"
    if exactly is not None:
        conditions += f" AND value = {given.value(exactly)}"
    limit = f"LIMIT {given.limit(query)}"
    places: Sequence[tuple[str, str]] = []
    names = signal_rows.selected(query)
    if names and query.metric is not None and index == VALUE_INDEX:
        places = signal_rows.in_order(query, query.metric)
    elif names:
        places = [(signal_rows.index_of(query), "value IS NOT NULL")]
    order = _ORDERS[query.order]
    found = [_signals(_POINT, names, f"{extra} AND {conditions}", using) for using, extra in places]
    return (
        (f"{_evaluations(query, _POINT, conditions, index)} {order.format(key='rowid')} {limit}", given.values),
        [(f"{statement} {order.format(key='sample_id')} {limit}", given.values) for statement in found],
    )


def top(query: Query) -> Statement:
    """The lowest of the `limit` highest scores of a query with one metric that is no signal."""
    given = SQLiteConditions()
    conditions = f"{given.where(query)} AND {READABLE} AND outcome = 'score'"
    return _TOP.format(conditions=conditions, place=given.value(max((query.limit or 0) - 1, 0))), given.values


def summary(query: Query, by: str) -> Statement:
    """Groups of equal outcome and rate, without the signals where `signal_summary` has them."""
    given = SQLiteConditions()
    read = _evaluations if signal_sums(query) else _rows
    rows = read(query, _GROUPED, given.where(query))
    return _SUMMARY.format(rows=rows, by=given.slice(by)), given.values


def signal_sums(query: Query) -> Sequence[str]:
    """The signals whose values `signal_summary` adds up: none where only some of the values count."""
    return signal_rows.selected(query) if query.least is None and query.most is None else ()


def signal_summary(query: Query, by: str) -> Statement:
    """Sums of the signals, all in one row for each app, slice and rate: four times as fast as a row for each value."""
    given = SQLiteConditions()
    conditions = given.where(replace(query, metric=None, without=(), outcome=None))
    named = {"by": given.slice(by), "sums": signal_rows.sums(signal_sums(query)), "index": signal_rows.index_of(query)}
    return _SIGNAL_SUMMARY.format(conditions=conditions, **named), given.values


def spread(query: Query, by: str) -> Statement:
    """Numbers of scores by hundredth."""
    given = SQLiteConditions()
    rows = _rows(query, _GROUPED, given.where(query))
    return _SPREAD.format(rows=rows, by=given.slice(by)), given.values


def scored(query: Query) -> Statement:
    """Sums of the last score of each answer."""
    given = SQLiteConditions()
    rows = _rows(query, "sample_id, app, metric, outcome, value, rate, place", given.where(query))
    return _SCORED.format(rows=rows), given.values


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
    rows = _rows(query, "sample_id, started_at, app, metric, outcome, value, rate", given.where(query), index="")
    name = given.value(cheap)
    value, rate = (f"({_OF_CHEAP.format(column=column, cheap=name)})" for column in ("value", "rate"))
    if cheap in signal_rows.NAMES:
        of_one = "signals.started_at = one.started_at AND signals.sample_id = one.sample_id"
        of_signals = f"FROM signals WHERE {of_one} AND {cheap} IS NOT NULL"
        value, rate = (
            f"coalesce({value}, (SELECT {cheap} {of_signals}))",
            f"coalesce({rate}, (SELECT rate {of_signals}))",
        )
    return _PAIRED.format(rows=rows, cheap=name, cheap_value=value, cheap_rate=rate), given.values


def cheap(query: Query, metric: str) -> Statement:
    """Sums of the cheap metric over everything that the query selects, of any metric."""
    given = SQLiteConditions()
    of_cheap = replace(query, metric=metric, without=())
    return _CHEAP.format(
        rows=_rows(of_cheap, "app, metric, outcome, value", given.where(of_cheap), index="")
    ), given.values


def ratings(query: Query) -> Statement:
    """Scores, and the human labels of the same answers."""
    given = SQLiteConditions()
    conditions = f"outcome = 'score' AND {given.where(query)} AND {READABLE}"
    of_evaluations, of_signals = _LABELLED
    listed = _RATED.replace("place", "evaluations.rowid AS place")
    rows = f"SELECT {listed} FROM {of_evaluations} WHERE {conditions}"  # noqa: S608 - conditions have placeholders
    if names := signal_rows.selected(query):
        selected = signal_rows.select(_RATED, names, of_signals)
        rows += f" UNION ALL {selected} WHERE value IS NOT NULL AND {conditions}"
    since = given.value(float(query.since))
    return RATINGS.format(rows=rows, since=since, limit=given.limit(query)), given.values


def _rows(query: Query, columns: str, conditions: str, index: str | None = None) -> str:
    """What a query selects, whichever table it is in."""
    found = _evaluations(query, columns, conditions, index)
    if names := signal_rows.selected(query):
        index = signal_rows.index_of(query)
        found += f" UNION ALL {_signals(columns, names, f'value IS NOT NULL AND {conditions}', index)}"
    return found


def _evaluations(query: Query, columns: str, conditions: str, index: str | None = None) -> str:
    listed = columns.replace("place", "rowid AS place")
    using = index_of(query) if index is None else index
    return f"SELECT {listed} FROM evaluations {using} WHERE {conditions}"  # noqa: S608 - conditions have placeholders


def _signals(columns: str, names: Sequence[str], conditions: str, index: str) -> str:
    return f"{signal_rows.select(columns, names, f'signals {index}')} WHERE {conditions}"


def index_of(query: Query) -> str:
    """The index to use for the query's time. SQLite cannot estimate it, and would read all of an app for some hours."""
    if query.metric is None:
        return "INDEXED BY evaluations_started_at"
    return "INDEXED BY evaluations_metric" if query.app is None else "INDEXED BY evaluations_app"
