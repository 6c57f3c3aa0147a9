"""The table `templates` of the store's ClickHouse database.

It is made when it is first needed, not by a script of the schema: those shut out the release before, which may run
beside this one for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gaugeway.storage.documents import Changes, Collection, Documents, Row
from gaugeway.storage.engines.clickhouse import schema
from gaugeway.storage.engines.clickhouse.connection import Database, read_url
from gaugeway.storage.engines.document_rows import revision_of, select, sizes
from gaugeway.storage.engines.failures import Unsupported
from gaugeway.storage.engines.scripts import statements

_SQL = statements("clickhouse/documents.sql")


class ClickHouseDocuments(Documents):
    """Templates for gateways on many machines. Operations raise `EngineError`.

    There is no transaction: a state that a person sets while a gateway writes the same template may be lost.
    """

    def __init__(self, url: str) -> None:
        self._database = Database(read_url(url), schema.SCRIPTS)
        self._is_there = False

    @classmethod
    def from_url(cls, url: str) -> ClickHouseDocuments:
        """Return those in the database that `url` names. Raises ValueError."""
        return cls(url)

    async def changed(self, collection: Collection, revision: bytes | None) -> tuple[bytes, Sequence[Row] | None]:
        if collection.name != "templates":  # none of these can be kept
            return b"", []
        await self._ensure(collection)
        if (current := revision_of(await self._database.query(f"{sizes(collection)} FINAL"))) == revision:
            return current, None
        return current, await self._database.query(f"{select(collection, collection.columns)} FINAL")

    async def update(self, collection: Collection, change: Callable[[Sequence[Row]], Changes]) -> None:
        await self._ensure(collection)
        changes = change(await self._database.query(f"{select(collection, collection.head)} FINAL"))
        rows = list(changes.put)
        for head in changes.revise:
            found = await self._database.query(_SQL["payload"], {"app": head[0], "version": head[1]})
            rows += [(*head, payload) for (payload,) in found]
        await self._database.insert("templates", schema.TEMPLATES, rows)
        if changes.delete:
            await self._database.command(_SQL["delete"], {"names": list(changes.delete)})

    async def aclose(self) -> None:
        await self._database.aclose()

    async def _ensure(self, collection: Collection) -> None:
        if collection.name != "templates":
            raise Unsupported(collection.name)
        if not self._is_there:
            await self._database.command(_SQL["table"])
            self._is_there = True
