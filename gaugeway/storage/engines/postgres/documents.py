"""Documents in PostgreSQL, for gateways on several machines: a table for each collection."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Mapping, Sequence

from gaugeway.storage import documents
from gaugeway.storage.engines.document_rows import delete, put, revise, revision_of, select, sizes
from gaugeway.storage.engines.failures import EngineError
from gaugeway.storage.engines.postgres.connection import Database, plain_values
from gaugeway.storage.engines.scripts import statements
from gaugeway.storage.keys import stored_name

_SQL = statements("postgres/documents.sql")
_TIDY_EVERY_S = 60.0


class PostgresDocuments(documents.Documents):
    """Keys, templates, data sets, trials, spending and levels of limits in tables. Operations raise `EngineError`.

    The tables are made at first use, never again: tables that vanish under a running gateway are a failure, no empty
    list of keys. When the answer to `spend` is lost, what it was about may be counted twice.
    """

    def __init__(self, url: str) -> None:
        self._database = Database(url, size=2)
        self._process = secrets.token_hex(8)
        self._shares_limits = False
        self._tidied_at = time.monotonic()
        self._odd_names: dict[str, str] = {}
        self._forgotten = -1

    @classmethod
    def from_url(cls, url: str) -> PostgresDocuments:
        """Return those in the database that `url` names. Raises ValueError."""
        return cls(url)

    async def changed(
        self, collection: documents.Collection, revision: bytes | None
    ) -> tuple[bytes, Sequence[documents.Row] | None]:
        async with self._database.transaction(reading=True) as connection:
            if collection.name == "keys":
                current = bytes((await connection.fetchval(_SQL["key_revision"])).bytes)
            else:
                current = revision_of(tuple(row) for row in await connection.fetch(sizes(collection)))
            if current == revision:
                return current, None
            return current, [tuple(row) for row in await connection.fetch(select(collection, collection.columns))]

    async def update(
        self, collection: documents.Collection, change: Callable[[Sequence[documents.Row]], documents.Changes]
    ) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(_SQL["lock"].format(table=collection.name))
            changes = change([tuple(row) for row in await connection.fetch(select(collection, collection.head))])
            for statement, rows in ((put, changes.put), (revise, changes.revise), (delete, changes.delete)):
                await connection.executemany(statement(collection, "$"), map(plain_values, rows))

    async def spend(self, spending: Mapping[tuple[int, str], float], today: int) -> documents.Spending:
        spent: dict[tuple[int, str], float] = {}
        for (day, subject), usd in spending.items():
            if (name := stored_name(subject)) != subject:
                self._odd_names[name] = subject
            spent[day, name] = usd
        async with self._database.transaction() as connection:
            if spent:
                days, names = zip(*spent, strict=True)
                await connection.execute(_SQL["spend"], days, names, list(spent.values()))
                if self._forgotten != today:
                    await connection.execute(_SQL["forget_spending"], today - documents.SPENDING_DAYS)
            rows = await connection.fetch(_SQL["spent"], today)
        self._forgotten = today if spent else self._forgotten
        return {(today, self._odd_names.get(name, name)): usd for name, usd in rows}

    async def exchange(self, draws: Sequence[documents.Draw]) -> documents.SharedLevels:
        """Do what `Documents.exchange` does, on unlogged tables: no write-ahead log for what lasts a minute."""
        self._shares_limits = True
        places = [(draw.kind, stored_name(draw.subject)) for draw in draws]
        readings = [
            (*place, draw.per_min, draw.burst, draw.used, draw.level) for place, draw in zip(places, draws, strict=True)
        ]
        async with self._database.transaction() as connection:
            rows = await connection.fetch(_SQL["exchange"], *map(list, zip(*readings, strict=True))) if readings else []
            processes = await connection.fetchval(_SQL["see_processes"], self._process, documents.SEEN_S)
        await self._tidy()
        levels = {(row["kind"], row["subject"]): row["level"] for row in rows}
        return documents.SharedLevels(processes=processes, levels=[levels[place] for place in places])

    async def aclose(self) -> None:
        if self._shares_limits:
            self._shares_limits = False
            with contextlib.suppress(EngineError):  # who does not say goodbye is forgotten all the same
                async with self._database.connection() as connection:
                    await connection.execute(_SQL["leave"], self._process)
        await self._database.aclose()

    async def _tidy(self) -> None:
        if time.monotonic() - self._tidied_at < _TIDY_EVERY_S:
            return
        self._tidied_at = time.monotonic()
        with contextlib.suppress(EngineError):  # what was exchanged is exchanged
            async with self._database.connection() as connection:
                await connection.execute(_SQL["tidy_levels"], _TIDY_EVERY_S)
                await connection.execute(_SQL["tidy_processes"], documents.SEEN_S)
