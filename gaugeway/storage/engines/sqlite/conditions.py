"""Parts of statements as SQLite writes them: scores are in the table `evaluations`, and signals in `signals`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gaugeway.storage.engines.conditions import Conditions
from gaugeway.storage.engines.scripts import statements
from gaugeway.storage.engines.sqlite import signal_rows
from gaugeway.storage.stores import Query

VALUE_INDEX = "INDEXED BY evaluations_value"
_POINT = (
    "sample_id, started_at, app, model, metric, outcome, value, reason, rate, version, judge, prompt, weight, cluster, "
    "tags"
)
_GROUPED = "app, metric, outcome, value, rate, version, judge, model, prompt, tags"
"""What sums may be grouped by."""
# A numpy number that slips through becomes a BLOB: such a row is no point, and must not take a place in a page of them.
_READABLE = "typeof(rate) = 'real' AND (outcome <> 'score' OR typeof(value) = 'real')"
_RATED = "sample_id, app, metric, outcome, value, rate, received_at, payload, refers, about, id, place"
# The keys of the tables: an exchange has far fewer evaluations than a metric or an app.
_LABELLED = (
    "labelled CROSS JOIN evaluations INDEXED BY sqlite_autoindex_evaluations_1 ON sample_id = about",
    f"labelled CROSS JOIN signals INDEXED BY {signal_rows.KEY} ON started_at = about_since AND sample_id = about",
)
_OF_CHEAP = """(
    SELECT {column} FROM evaluations AS other
    WHERE other.sample_id = one.sample_id AND metric = {cheap} AND outcome = 'score'
)"""
_OF_CHEAP_SIGNAL = """(
    SELECT {column} FROM signals
    WHERE signals.started_at = one.started_at AND signals.sample_id = one.sample_id AND {cheap} IS NOT NULL
)"""

Statement = tuple[str, list[object]]


class SQLiteConditions(Conditions):
    """Parts with the placeholders ?1, ?2 ..."""

    sql = statements("sqlite/store.sql")

    def __init__(self, query: Query, *, by: str = "", cheap: str = "", exactly: float | None = None) -> None:
        super().__init__(query, by=by, cheap=cheap, exactly=exactly)
        self.summed_signals = summed_signals(query)
        """The signals that `signal_summary` adds up."""

    def placeholder(self, number: int, kind: str) -> str:  # noqa: ARG002 - types are ClickHouse's
        return f"?{number}"

    def readable(self) -> str:
        """The conditions on points, of those that can be read."""
        return f"{self['points']} AND {_READABLE}"

    def summed_rows(self) -> str:
        """What `summary` adds up: not the signals where `signal_summary` does."""
        return self._evaluations(_GROUPED) if self.summed_signals else self._rows(_GROUPED)

    def sums_of_signals(self) -> str:
        """What `signal_summary` adds up, all in one row: four times as fast as a row for each value."""
        return signal_rows.sums(self.summed_signals)

    def index_of_signals(self) -> str:
        """The index of signals for the time of the query."""
        return signal_rows.index_of(self.query)

    def grouped_rows(self) -> str:
        """What is grouped by hundredths."""
        return self._rows(_GROUPED)

    def answered_rows(self) -> str:
        """Scores with the answers they are about, in the order of writing."""
        return self._rows("sample_id, app, metric, outcome, value, rate, place")

    def paired_rows(self) -> str:
        """Scores with the exchanges they are about."""
        return self._rows("sample_id, started_at, app, metric, outcome, value, rate", index="")

    def cheap_rows(self) -> str:
        """Scores of the cheap metric."""
        return self._rows("app, metric, outcome, value", index="")

    def cheap_value(self) -> str:
        """The cheap metric's score of the same exchange."""
        return self._of_cheap("value", self._cheap)

    def cheap_rate(self) -> str:
        """The rate of that score."""
        return self._of_cheap("rate", "rate")

    def labelled_rows(self) -> str:
        """Scores of answers that somebody labelled."""
        conditions = f"outcome = 'score' AND {self['conditions']} AND {_READABLE}"
        of_evaluations, of_signals = _LABELLED
        listed = _RATED.replace("place", "evaluations.rowid AS place")
        rows = f"SELECT {listed} FROM {of_evaluations} WHERE {conditions}"  # noqa: S608 - conditions have placeholders
        if names := signal_rows.selected(self.query):
            selected = signal_rows.select(_RATED, names, of_signals)
            rows += f" UNION ALL {selected} WHERE value IS NOT NULL AND {conditions}"
        return rows

    def evaluation_points(self, index: str | None) -> Statement:
        """The statement for those of the query's points that are in the table `evaluations`, in its order."""
        order = self["order"].replace("position", "rowid")
        return f"{self._evaluations(_POINT, self['readable'], index)} {order} {self['limit']}", self.values

    def signal_points(self, index: str | None) -> list[Statement]:
        """The statements for the query's points that are signals, one after the other."""
        names = signal_rows.selected(self.query)
        places: Sequence[tuple[str, str]] = []
        if names and self.query.metric is not None and index == VALUE_INDEX:
            places = signal_rows.in_order(self.query, self.query.metric)
        elif names:
            places = [(signal_rows.index_of(self.query), "value IS NOT NULL")]
        readable = self["readable"]
        end = f"{self['order'].replace('position', 'sample_id')} {self['limit']}"
        return [
            (f"{_signals(_POINT, names, f'{extra} AND {readable}', using)} {end}", self.values)
            for using, extra in places
        ]

    def _of_cheap(self, column: str, signal: str) -> str:
        score = _OF_CHEAP.format(column=column, cheap=self["cheap"])
        if self._cheap not in signal_rows.NAMES:
            return score
        return f"coalesce({score}, {_OF_CHEAP_SIGNAL.format(column=signal, cheap=self._cheap)})"

    def _rows(self, columns: str, index: str | None = None) -> str:
        """What the query selects, whichever table it is in."""
        found = self._evaluations(columns, index=index)
        if names := signal_rows.selected(self.query):
            conditions = f"value IS NOT NULL AND {self['conditions']}"
            found += f" UNION ALL {_signals(columns, names, conditions, signal_rows.index_of(self.query))}"
        return found

    def _evaluations(self, columns: str, conditions: str | None = None, index: str | None = None) -> str:
        listed = columns.replace("place", "rowid AS place")
        using = index_of(self.query) if index is None else index
        return f"SELECT {listed} FROM evaluations {using} WHERE {conditions or self['conditions']}"  # noqa: S608 - conditions have placeholders


def summed_signals(query: Query) -> Sequence[str]:
    """Return the signals whose sums are read from their rows: none where only some of the values count."""
    return signal_rows.selected(query) if query.least is None and query.most is None else ()


def signal_summary(query: Query, by: str) -> Statement:
    """The statement for sums of the signals that a query selects."""
    given = SQLiteConditions(replace(query, metric=None, without=(), outcome=None), by=by)
    given.summed_signals = summed_signals(query)
    return given.statement("signal_summary")


def _signals(columns: str, names: Sequence[str], conditions: str, index: str) -> str:
    return f"{signal_rows.select(columns, names, f'signals {index}')} WHERE {conditions}"


def index_of(query: Query) -> str:
    """The index to use for the query's time. SQLite cannot estimate it, and would read all of an app for some hours."""
    if query.metric is None:
        return "INDEXED BY evaluations_started_at"
    return "INDEXED BY evaluations_metric" if query.app is None else "INDEXED BY evaluations_app"
