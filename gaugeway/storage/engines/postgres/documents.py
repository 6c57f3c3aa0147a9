"""The table `templates` of the store's PostgreSQL database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gaugeway.storage.engines.postgres.connection import Database, count_of, plain
from gaugeway.storage.templates import State, StoredTemplate, all_of, beyond_bounds, body_of, revision_of

if TYPE_CHECKING:
    from gaugeway.storage.engines.postgres.connection import Connection

_PUT = """
    INSERT INTO templates (app, version, state, learned_at, payload) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (app, version) DO UPDATE SET payload = excluded.payload
"""
_DROP = """
    DELETE FROM templates WHERE (app, version) IN (SELECT * FROM unnest($1::text[], $2::text[]))
    AND (state = 'learned' OR NOT $3)
"""
_SET = "UPDATE templates SET state = $3 WHERE app = $1 AND version = $2 AND state NOT IN ('asked', 'marked')"


class PostgresTemplates:
    """Templates for gateways on many machines. Operations raise `EngineError`."""

    def __init__(self, url: str) -> None:
        self._database = Database(url, size=1)

    @classmethod
    def from_url(cls, url: str) -> PostgresTemplates:
        """Return those in the database that `url` names. Raises ValueError."""
        return cls(url)

    async def templates(self, app: str | None = None) -> Sequence[StoredTemplate]:
        async with self._database.connection() as connection:
            found = await connection.fetch(
                "SELECT payload, state FROM templates WHERE $1::text IS NULL OR app = $1",
                None if app is None else plain(app),
            )
        return await all_of((row[0], row[1]) for row in found)

    async def changed(self, revision: bytes | None) -> tuple[bytes, Sequence[StoredTemplate] | None]:
        async with self._database.connection() as connection:
            rows = await connection.fetch("SELECT app, version, state, octet_length(payload) FROM templates")
        current = revision_of(tuple(row) for row in rows)
        return current, None if current == revision else await self.templates()

    async def put_template(self, template: StoredTemplate) -> None:
        # The columns name what JSON may write as an escape: the payload is text, not json, which refuses \u0000.
        row = (plain(template.app), plain(template.version), template.state, template.learned_at, body_of(template))
        async with self._database.transaction() as connection:
            await connection.execute(_PUT, *row)
            kept = await connection.fetch("SELECT app, version, state, learned_at FROM templates ORDER BY app, version")
            await _drop(connection, beyond_bounds(tuple(record) for record in kept), learned_only=False)

    async def set_template_state(self, app: str, version: str, state: State) -> bool:
        async with self._database.connection() as connection:
            changed = await connection.execute(_SET, plain(app), plain(version), state)
        return count_of(changed) > 0

    async def drop_templates(self, names: Iterable[tuple[str, str]], *, learned_only: bool = True) -> int:
        async with self._database.connection() as connection:
            return await _drop(
                connection, [(plain(app), plain(version)) for app, version in names], learned_only=learned_only
            )

    async def aclose(self) -> None:
        await self._database.aclose()


async def _drop(connection: Connection, names: Sequence[tuple[str, str]], *, learned_only: bool) -> int:
    if not names:
        return 0
    apps, versions = zip(*names, strict=True)
    return count_of(await connection.execute(_DROP, apps, versions, learned_only))
