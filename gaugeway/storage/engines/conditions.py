"""The parts of an SQL statement that a query decides; a dialect adds how its engine writes them. Days are of UTC."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from gaugeway.signals import SIGNALS
from gaugeway.storage.engines.failures import RefusedError
from gaugeway.storage.stores import Query
from gaugeway.storage.stores.ratings import EARLY_S

DAY_S = 86_400.0
_MAX_DAY = 2**31 - 1  # internal bound: a number of the format or formula
BY_VALUE = ("lowest", "highest")
"""The orders of scores."""
_SLICES = {"": "''", "model": "model", "prompt": "coalesce(prompt, '')"}
_WILD = re.compile(r"[%_\\]")
_ORDER = {
    "oldest": "ORDER BY started_at, position",
    "newest": "ORDER BY started_at DESC, position DESC",
    "lowest": "ORDER BY value, started_at, position",
    "highest": "ORDER BY value DESC, started_at, position",
}


class Conditions(ABC):
    """Fills in a statement: `{part}` in its text is what the method `part` returns, and `values` are its parameters.

    Each part is made once, when the text names it. `by` is as in `Store.summary`, `cheap` as in `Store.paired`;
    `exactly` selects points of this value. `kind` is ClickHouse's type of a parameter; other engines ignore it.
    """

    sql: ClassVar[Mapping[str, str]]
    """The engine's statements."""

    def __init__(self, query: Query, *, by: str = "", cheap: str = "", exactly: float | None = None) -> None:
        self.values: list[Any] = []
        self.query = query
        self._by = by
        self._cheap = cheap
        self._exactly = exactly
        self._parts: dict[str, str] = {}

    def __getitem__(self, part: str) -> str:
        if part not in self._parts:
            self._parts[part] = getattr(self, part)()
        return self._parts[part]

    def statement(self, name: str) -> tuple[str, list[Any]]:
        """Return a statement with its parts, and its parameters."""
        return self.sql[name].format_map(self), self.values

    @abstractmethod
    def placeholder(self, number: int, kind: str) -> str:
        """Return the placeholder of a parameter; they are numbered from 1."""

    def value(self, value: Any, kind: str = "String") -> str:
        """Add a parameter; return its placeholder."""
        self.values.append(value)
        return self.placeholder(len(self.values), kind)

    def window(self) -> str:
        """The condition on time."""
        since, until = self.value(float(self.query.since), "Float64"), self.value(float(self.query.until), "Float64")
        return f"started_at >= {since} AND started_at < {until}"

    def conditions(self) -> str:
        """All conditions of the query."""
        query = self.query
        made = [self["window"]]
        equal = {"metric": query.metric, "app": query.app, "model": query.model}
        equal |= {"prompt": query.prompt, "outcome": query.outcome}
        made += [f"{name} = {self.value(wanted)}" for name, wanted in equal.items() if wanted is not None]
        if query.without:
            made.append(f"metric NOT IN ({', '.join(self.value(excluded) for excluded in query.without)})")
        if query.least is not None:
            made.append(f"value >= {self.value(float(query.least), 'Float64')}")
        if query.most is not None:
            made.append(f"value <= {self.value(float(query.most), 'Float64')}")
        if query.tag is not None:
            name, value = query.tag
            made.append(self.sql["tagged"].format(name=self.value(name), value=self.value(value)))
        if query.text is not None:
            made.append(self.contains(query.text))
        if query.source is not None:
            made.append(self.retrieved(query.source))
        if query.session is not None:
            made.append(self.in_session(query.session))
        return " AND ".join(made)

    def contains(self, text: str) -> str:
        """The condition that the question or the response contains a text, in any ASCII case."""
        return self.sql["contains"].format(name=self.value(self.searched(text)), window=self["window"])

    def searched(self, text: str) -> str:
        """Return what stands for a text in the condition on it: the pattern of LIKE for what contains it."""
        return "%" + _WILD.sub(r"\\\g<0>", text) + "%"

    def retrieved(self, source: str) -> str:
        """The condition that a passage has `source` as its id or source."""
        return self.sql["retrieved"].format(name=self.value(source), window=self["window"])

    def in_session(self, session: str) -> str:
        """The condition on the sample's session."""
        return self.sql["in_session"].format(name=self.value(session), window=self["window"])

    def points(self) -> str:
        """The conditions on points."""
        made = [self["conditions"]]
        if self.query.order in BY_VALUE:
            made.append("outcome = 'score'")
        if self._exactly is not None:
            made.append(f"value = {self.value(self._exactly, 'Float64')}")
        return " AND ".join(made)

    def within(self) -> str:
        """The conditions on time and app."""
        app = self.query.app
        return self["window"] if app is None else f"{self['window']} AND app = {self.value(app)}"

    def signals(self) -> str:
        """The names of all signals."""
        return ", ".join(self.value(signal) for signal in SIGNALS)

    def slice(self) -> str:
        """The expression for the slice: "model", "prompt", "tag:NAME", or '' for ""."""
        kind, _, name = self._by.partition(":")
        return _SLICES.get(kind) or self.sql["tag"].format(name=self.value(name))

    def cheap(self) -> str:
        """The name of the cheap metric."""
        return self.value(self._cheap)

    def earliest(self) -> str:
        """When what is said of the exchanges may have been received at the earliest."""
        return self.value(float(self.query.since) - EARLY_S, "Float64")

    def order(self) -> str:
        """The order of points."""
        return _ORDER[self.query.order]

    def limit(self) -> str:
        """How many rows there may be, if that is limited."""
        limit = self.query.limit
        return "" if limit is None else f"LIMIT {self.value(max(limit, 0), 'UInt64')}"

    def place(self) -> str:
        """How many rows stand before the last one within the limit."""
        return self.value(max((self.query.limit or 0) - 1, 0))


class DayConditions(Conditions):
    """For tables that are partitioned by UTC day: the time is given by day too, so that only those days are read."""

    def days(self) -> str:
        """The condition on the partitions."""
        first, last = days_between(self.query.since, self.query.until)
        return f"day >= {self.value(first, 'Int32')} AND day <= {self.value(last, 'Int32')}"

    def window(self) -> str:
        return f"{self['days']} AND {super().window()}"


def day_of(moment: float) -> int:
    """The UTC day of a time in Unix seconds, counted from 1970. Raises RefusedError for one out of range.

    >>> day_of(0.0), day_of(-1.0), day_of(86_400.0)
    (0, -1, 1)
    """
    if not abs(moment) / DAY_S < _MAX_DAY:
        raise RefusedError(f"{moment!r} is not a valid time")
    return math.floor(moment / DAY_S)


def days_between(since: float, until: float) -> tuple[int, int]:
    """The first and the last day of times in [since, until), clamped to what a table can hold.

    >>> days_between(0.0, 86_400.0), days_between(-math.inf, 86_401.0)[1]
    ((0, 1), 1)
    """
    furthest = DAY_S * (_MAX_DAY - 1)
    first, last = (min(max(moment, -furthest), furthest) for moment in (since, until))
    return day_of(first), day_of(last)
