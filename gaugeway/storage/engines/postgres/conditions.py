"""Parts of statements as PostgreSQL writes them."""

from __future__ import annotations

from typing import Any

from gaugeway.storage.engines.conditions import DayConditions
from gaugeway.storage.engines.failures import encoded
from gaugeway.storage.engines.postgres.connection import plain
from gaugeway.storage.engines.scripts import statements
from gaugeway.storage.stores.rows import field_text


class PostgresConditions(DayConditions):
    """Parts with the placeholders $1, $2 ..."""

    sql = statements("postgres/store.sql")

    def placeholder(self, number: int, kind: str) -> str:  # noqa: ARG002 - types are ClickHouse's
        return f"${number}"

    def value(self, value: Any, kind: str = "String") -> str:
        return super().value(plain(value) if isinstance(value, str) else value, kind)

    def searched(self, text: str) -> str:
        return super().searched(encoded(text).decode()[1:-1])

    def retrieved(self, source: str) -> str:
        """Such a payload as `contains` cannot take apart is searched for the name as it is written there."""
        written = self.value(encoded(source).decode())
        return self.sql["retrieved"].format(name=self.value(source), written=written)

    def in_session(self, session: str) -> str:
        written = self.value(field_text("session", session))
        return self.sql["in_session"].format(name=self.value(session), written=written)
