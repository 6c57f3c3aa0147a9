"""Signals in the embedded store: those of an exchange share one row, because a row for each costs a multiple of it.

Readers see an evaluation for each value, like those in the table `evaluations`. Signals that a release before this
table stored are still there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from sqlite3 import Connection
from typing import Any

from gaugeway.records import Evaluation, Sample, Score
from gaugeway.storage.engines.failures import encoded
from gaugeway.storage.stores import Query

NAMES = (
    *("abstained", "no_contexts", "contexts_per_answer", "retriever_score", "language_mismatch", "truncated"),
    *("tool_invalid", "tool_unknown", "tool_repeated", "tool_empty", "slow", "expensive", "addresses_judge"),
)
"""The signals with a column in the table `signals`. Others, and what has no column there, have rows of their own."""
_PLACES = {name: place for place, name in enumerate(NAMES)}
_RANKS = frozenset({"contexts_per_answer", "retriever_score"})
"""Signals that are seldom 0. The others have an index of the values above 0, which costs nothing for most exchanges."""
_COLUMNS = ", ".join(NAMES)
_ADD = f"""
    INSERT INTO signals (
        started_at, sample_id, version, app, model, rate, weight, prompt, cluster, tags, {_COLUMNS}
    ) VALUES ({", ".join("?" * (10 + len(NAMES)))})
    ON CONFLICT (started_at, sample_id) DO UPDATE SET
        {", ".join(f"{name} = coalesce({name}, excluded.{name})" for name in NAMES)}
"""  # noqa: S608 - constants
_STORED = f"""
    SELECT version, rate, weight, {_COLUMNS} FROM signals
    WHERE sample_id = ?1 AND started_at = (SELECT started_at FROM samples WHERE id = ?1)
"""  # noqa: S608 - constants; the row has the time of the sample that is stored
_STARTED_AT = "SELECT started_at FROM samples WHERE id = ?"
_NUMBERED = ", ".join(f"({place}, '{name}')" for name, place in _PLACES.items())
_VALUE = f"CASE column1 {' '.join(f'WHEN {place} THEN {name}' for name, place in _PLACES.items())} END"
KEY = "sqlite_autoindex_signals_1"
COUNT = " + ".join(f"count({name})" for name in NAMES)
"""An expression for how many values some rows hold."""


def add(
    connection: Connection,
    sample: Sample,
    new: Iterable[Evaluation],
    there: Collection[tuple[str, str]],
    *,
    fresh: bool,
) -> list[Evaluation]:
    """Store the signals among new evaluations of a sample; return the evaluations that need rows of their own.

    The sample is stored; `fresh` says that it was not there before. `there` are the metrics and versions that it has a
    row for, or a value. The values of a row have one version, rate and weight.
    """
    values: dict[str, float] = {}
    others: list[Evaluation] = []
    shared: tuple[Any, ...] | None = None
    started_at = sample.started_at
    if not fresh:
        ((started_at,),) = connection.execute(_STARTED_AT, (sample.id,))
        row = connection.execute(_STORED, (sample.id,)).fetchone()
        shared = None if row is None else tuple(row[:3])
    for evaluation in new:
        value = _plain_value(evaluation)
        if value is None or evaluation.metric in values or (evaluation.metric, evaluation.version) in there:
            others.append(evaluation)
            continue
        own = (
            evaluation.version,
            float(evaluation.rate),
            None if evaluation.weight is None else float(evaluation.weight),
        )
        if shared not in (None, own):
            others.append(evaluation)
        else:
            shared, values[evaluation.metric] = own, value
    if values and shared is not None:
        version, rate, weight = shared
        tags = encoded(sample.tags).decode() if sample.tags else None
        about = (started_at, sample.id, version, sample.app, sample.model, rate, weight, sample.prompt, sample.cluster)
        connection.execute(_ADD, (*about, tags, *map(values.get, NAMES)))
    return others


def _plain_value(evaluation: Evaluation) -> float | None:
    """Return the value of a signal with a column; None for other evaluations, and for those that hold more."""
    found = evaluation.outcome
    if evaluation.metric not in _PLACES or not isinstance(found, Score):
        return None
    more = found.reason or found.evidence or evaluation.judge is not None or evaluation.seconds or evaluation.cost_usd
    return None if more else float(found.value)


def outcomes(connection: Connection, sample_id: str) -> list[tuple[str, str, str]]:
    """Return metric, version and outcome of each stored value of a sample."""
    row = connection.execute(_STORED, (sample_id,)).fetchone()
    return [] if row is None else [(name, row[0], "score") for name, _ in _values(row)]


def rows(connection: Connection, sample_id: str) -> list[tuple[Any, ...]]:
    """Return the stored values of a sample as rows for `stores.rows.evaluation`."""
    if (row := connection.execute(_STORED, (sample_id,)).fetchone()) is None:
        return []
    version, rate, weight = row[:3]
    return [(name, version, "score", value, "", "", "[]", None, 0.0, 0.0, rate, weight) for name, value in _values(row)]


def _values(row: Sequence[Any]) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in zip(NAMES, row[3:], strict=True) if value is not None]


def selected(query: Query) -> Sequence[str]:
    """Return the signals with columns that a query may select."""
    if query.outcome not in (None, "score"):
        return ()
    names = NAMES if query.metric is None else (query.metric,)
    return [name for name in names if name in NAMES and name not in query.without]


def select(columns: str, names: Sequence[str], tables: str) -> str:
    """A SELECT of values of these signals from `tables`, of which the last is `signals`; WHERE may follow.

    `columns` are names of columns of `evaluations`, and `place` for the order of writing; metric, outcome and value are
    among them. Conditions name these too, SQLite looks for a name among the columns of the result. With several names
    there are rows without a value.
    """
    single = names[0] if len(names) == 1 else None
    own: Mapping[str, str] = {
        "metric": f"'{single}'" if single else "column2",
        "value": single or _VALUE,
        "outcome": "'score'",
        "reason": "''",
        "judge": "NULL",
        "place": "0",
    }
    listed = [name.strip() for name in columns.split(",")]
    chosen = ", ".join(f"{own[name]} AS {name}" if name in own else name for name in listed)
    joined = tables if single else f"{tables} CROSS JOIN (VALUES {_NUMBERED})"
    return f"SELECT {chosen} FROM {joined}"  # noqa: S608 - constants


def sums(names: Sequence[str]) -> str:
    """Expressions for what `groups` reads, of each signal: how many values, how many numbers, and their sums."""
    real = "FILTER (WHERE typeof({0}) = 'real')"
    expressions = f"count({{0}}), count({{0}}) {real}, total({{0}}) {real}, total({{0}} * {{0}}) {real}"
    return ", ".join(expressions.format(name) for name in names)


def groups(names: Sequence[str], found: Iterable[Sequence[Any]]) -> Iterator[tuple[Any, ...]]:
    """Yield rows of app, slice, rate and `sums` as groups of a summary, one for each signal that has values."""
    for app, part, rate, *numbers in found:
        for place, name in enumerate(names):
            rows, *others = numbers[4 * place : 4 * place + 4]
            if rows:
                yield (app, name, part, "score", rate, rows, *others)


def index_of(query: Query) -> str:
    """The index for the time of a query."""
    return f"INDEXED BY {KEY if query.app is None else 'signals_app'}"


def in_order(query: Query, name: str) -> Sequence[tuple[str, str]]:
    """Where the values of a signal are, the lowest or highest first: indexes, and conditions on what they give."""
    if name in _RANKS:
        return [(index_of(query), f"{name} IS NOT NULL")]
    zeros, others = (index_of(query), f"{name} = 0.0"), (f"INDEXED BY signals_{name}", f"{name} > 0.0")
    return [zeros, others] if query.order == "lowest" else [others, zeros]
