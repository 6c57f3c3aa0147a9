"""The table `templates` of the store's ClickHouse database.

It is made when it is first needed, not by a script of the schema: those shut out the release before, which may run
beside this one for a while.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gaugeway.storage.engines.clickhouse import schema as clickhouse_schema
from gaugeway.storage.engines.clickhouse.connection import Database, read_url
from gaugeway.storage.templates import ASKED, State, StoredTemplate, all_of, beyond_bounds, body_of, revision_of

_TABLE = """
    CREATE TABLE IF NOT EXISTS templates (
        app String,
        version String,
        state LowCardinality(String),
        learned_at Float64,
        payload String CODEC(ZSTD(3)),
        revision UInt64 DEFAULT toUnixTimestamp64Nano(now64(9))
    ) ENGINE = ReplacingMergeTree(revision) ORDER BY (app, version)
"""
_COLUMNS = {
    "app": "String",
    "version": "String",
    "state": "LowCardinality(String)",
    "learned_at": "Float64",
    "payload": "String",
}
_SELECT = "SELECT app, version, state, learned_at, payload FROM templates FINAL"
_ONE = f"{_SELECT} WHERE app = {{app:String}} AND version = {{version:String}}"
_SIZES = "SELECT app, version, state, length(payload) FROM templates FINAL"
_DROP = """
    ALTER TABLE templates DELETE WHERE (app, version) IN {names:Array(Tuple(String, String))}
    SETTINGS mutations_sync = 1
"""


class ClickHouseTemplates:
    """Templates for gateways on many machines. Operations raise `EngineError`.

    There is no transaction: a state that a person sets while a gateway writes the same template may be lost.
    """

    def __init__(self, url: str) -> None:
        self._database = Database(read_url(url), clickhouse_schema.SCRIPTS)
        self._there = False

    @classmethod
    def from_url(cls, url: str) -> ClickHouseTemplates:
        """Return those in the database that `url` names. Raises ValueError."""
        return cls(url)

    async def templates(self, app: str | None = None) -> Sequence[StoredTemplate]:
        await self._ensure()
        where = "" if app is None else " WHERE app = {app:String}"
        found = await self._database.query(_SELECT + where, {} if app is None else {"app": app})
        return await all_of((row[4], row[2]) for row in found)

    async def changed(self, revision: bytes | None) -> tuple[bytes, Sequence[StoredTemplate] | None]:
        await self._ensure()
        current = revision_of(await self._database.query(_SIZES))
        return current, None if current == revision else await self.templates()

    async def put_template(self, template: StoredTemplate) -> None:
        body = body_of(template)
        await self._ensure()
        named = {"app": template.app, "version": template.version}
        there = next((row[2] for row in await self._database.query(_ONE, named)), template.state)
        row = (template.app, template.version, there, template.learned_at, body)
        await self._database.insert("templates", _COLUMNS, [row])
        kept = await self._database.query("SELECT app, version, state, learned_at FROM templates FINAL")
        await self._drop(beyond_bounds((*record,) for record in kept))

    async def set_template_state(self, app: str, version: str, state: State) -> bool:
        await self._ensure()
        every = await self._database.query(_ONE, {"app": app, "version": version})
        found = [row for row in every if row[2] not in ASKED]
        await self._database.insert("templates", _COLUMNS, [(*row[:2], state, *row[3:]) for row in found])
        return bool(found)

    async def drop_templates(self, names: Iterable[tuple[str, str]], *, learned_only: bool = True) -> int:
        await self._ensure()
        wanted = set(names)
        kept = await self._database.query("SELECT app, version, state FROM templates FINAL")
        gone = [row[:2] for row in kept if row[:2] in wanted and (row[2] == "learned" or not learned_only)]
        await self._drop(gone)
        return len(gone)

    async def aclose(self) -> None:
        await self._database.aclose()

    async def _ensure(self) -> None:
        if not self._there:
            await self._database.command(_TABLE)
            self._there = True

    async def _drop(self, names: Sequence[tuple[str, ...]]) -> None:
        if names:
            await self._database.command(_DROP, {"names": names})
