"""The WHERE clause of a query, the same for every SQL engine; a dialect adds how the engine writes its parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from gaugeway.signals import SIGNALS
from gaugeway.storage.stores import Query
from gaugeway.storage.stores.calendar import days_between

_SLICES = {"": "''", "model": "model", "prompt": "coalesce(prompt, '')"}


class Conditions(ABC):
    """Builds the conditions of one statement and collects its parameters.

    `kind` is ClickHouse's type of a parameter; the other engines ignore it.
    """

    @abstractmethod
    def value(self, one: Any, kind: str = "String") -> str:
        """Add a parameter; return its placeholder."""

    @abstractmethod
    def tagged(self, name: str, value: str) -> str:
        """The condition that the tag `name` has this value."""

    @abstractmethod
    def tag(self, name: str) -> str:
        """The expression for the value of the tag `name`, '' without one."""

    @abstractmethod
    def holds(self, query: Query) -> str:
        """The condition that the question or the response contains `query.text`, in any ASCII case."""

    @abstractmethod
    def retrieved(self, query: Query) -> str:
        """The condition that a passage has `query.source` as its id or source."""

    @abstractmethod
    def in_session(self, query: Query) -> str:
        """The condition that the sample's session is `query.session`."""

    def window(self, query: Query) -> str:
        """The condition on time."""
        since, until = self.value(float(query.since), "Float64"), self.value(float(query.until), "Float64")
        return f"started_at >= {since} AND started_at < {until}"

    def where(self, query: Query, *, metric: bool = True) -> str:
        """All conditions of a query; without `metric` those of every metric."""
        conditions = [self.window(query)]
        equal = {"metric": query.metric if metric else None, "app": query.app, "model": query.model}
        equal |= {"prompt": query.prompt, "outcome": query.outcome}
        conditions += [f"{name} = {self.value(wanted)}" for name, wanted in equal.items() if wanted is not None]
        if metric and query.without:
            conditions.append(f"metric NOT IN ({', '.join(self.value(excluded) for excluded in query.without)})")
        if query.least is not None:
            conditions.append(f"value >= {self.value(float(query.least), 'Float64')}")
        if query.most is not None:
            conditions.append(f"value <= {self.value(float(query.most), 'Float64')}")
        if query.tag is not None:
            conditions.append(self.tagged(*query.tag))
        if query.text is not None:
            conditions.append(self.holds(query))
        if query.source is not None:
            conditions.append(self.retrieved(query))
        if query.session is not None:
            conditions.append(self.in_session(query))
        return " AND ".join(conditions)

    def outcomes(self, query: Query, *, exchanges: bool) -> dict[str, str]:
        """The parts of the statements of `Store.outcomes`: conditions on the rows that are read, and the signals."""
        conditions = [self.window(query)]
        if query.app is not None:
            conditions.append(f"app = {self.value(query.app)}")
        signals = ", ".join(self.value(signal) for signal in SIGNALS)
        if not exchanges:
            conditions.append(f"metric NOT IN ({signals})")
        return {"conditions": " AND ".join(conditions), "signals": signals}

    def slice(self, by: str) -> str:
        """The expression for the slice of `Store.summary`: "model", "prompt", "tag:NAME", or '' for ""."""
        kind, _, name = by.partition(":")
        return _SLICES.get(kind) or self.tag(name)


class DayConditions(Conditions):
    """For tables that are partitioned by UTC day: the time is given by day too, so that only those days are read."""

    def days(self, query: Query) -> str:
        """The condition on the partitions."""
        first, last = days_between(query.since, query.until)
        return f"day >= {self.value(first, 'Int32')} AND day <= {self.value(last, 'Int32')}"

    def window(self, query: Query) -> str:
        """The condition on partitions and time."""
        return f"{self.days(query)} AND {super().window(query)}"
