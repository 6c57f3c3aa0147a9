"""Parts of statements as ClickHouse writes them."""

from __future__ import annotations

from gaugeway.storage.engines.conditions import DayConditions, days_between
from gaugeway.storage.engines.scripts import statements
from gaugeway.storage.stores.ratings import EARLY_S


class ClickHouseConditions(DayConditions):
    """Parts with the placeholders {v1:String}, {v2:Float64} ..."""

    sql = statements("clickhouse/store.sql")

    def placeholder(self, number: int, kind: str) -> str:
        return f"{{v{number}:{kind}}}"

    def searched(self, text: str) -> str:
        return text

    def earliest_day(self) -> str:
        """The day of `earliest`."""
        earliest = float(self.query.since) - EARLY_S
        return self.value(days_between(earliest, earliest)[0], "Int32")
