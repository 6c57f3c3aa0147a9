"""templates.db in the directory of the embedded store: a file of its own, so no gateway waits for an evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from sqlite3 import Connection

from gaugeway.storage.engines.sqlite.connection import Database, Schema, path_from_url
from gaugeway.storage.templates import State, StoredTemplate, all_of, beyond_bounds, body_of, revision_of

FILE = "templates.db"
SCHEMA = Schema(
    kind="template file",
    application_id=0x6777746D,  # "gwtm"
    migrations=(
        """
        CREATE TABLE templates (
            app TEXT NOT NULL,
            version TEXT NOT NULL,
            state TEXT NOT NULL,
            learned_at REAL NOT NULL,
            payload TEXT NOT NULL,
            PRIMARY KEY (app, version)
        );
        """,
    ),
)
_PUT = """
    INSERT INTO templates (app, version, state, learned_at, payload) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (app, version) DO UPDATE SET payload = excluded.payload
"""
_SET = "UPDATE templates SET state = ? WHERE app = ? AND version = ? AND state NOT IN ('asked', 'marked')"
_DROP = "DELETE FROM templates WHERE app = ? AND version = ? AND (state = 'learned' OR NOT ?)"


class SQLiteTemplates:
    """Templates in one file. Operations raise `EngineError`."""

    def __init__(self, path: Path, *, busy_timeout_s: float = 5.0) -> None:
        self._path = path
        self._database = Database(path, schema=SCHEMA, busy_timeout_s=busy_timeout_s)

    @classmethod
    def from_url(cls, url: str) -> SQLiteTemplates:
        """Return those beside the store in the file that `url` names. Raises ValueError."""
        return cls(path_from_url(url).parent / FILE)

    async def templates(self, app: str | None = None) -> Sequence[StoredTemplate]:
        if not self._path.exists():  # who looks only need not make it
            return []
        found = await self._database.fetch("SELECT payload, state FROM templates WHERE ?1 IS NULL OR app = ?1", (app,))
        return await all_of((row[0], row[1]) for row in found)

    async def changed(self, revision: bytes | None) -> tuple[bytes, Sequence[StoredTemplate] | None]:
        if not self._path.exists():
            return b"", None if revision == b"" else []
        rows = await self._database.fetch("SELECT app, version, state, length(payload) FROM templates")
        current = revision_of((*row,) for row in rows)
        return current, None if current == revision else await self.templates()

    async def put_template(self, template: StoredTemplate) -> None:
        row = (template.app, template.version, template.state, template.learned_at, body_of(template))

        def put(connection: Connection) -> None:
            connection.execute(_PUT, row)
            kept = connection.execute("SELECT app, version, state, learned_at FROM templates").fetchall()
            _drop(beyond_bounds((*record,) for record in kept), connection, learned_only=False)

        await self._database.write(put)

    async def set_template_state(self, app: str, version: str, state: State) -> bool:
        return await self._database.change(_SET, (state, app, version)) > 0

    async def drop_templates(self, names: Iterable[tuple[str, str]], *, learned_only: bool = True) -> int:
        return await self._database.write(partial(_drop, list(names), learned_only=learned_only))

    async def aclose(self) -> None:
        await self._database.aclose()


def _drop(names: Iterable[tuple[str, str]], connection: Connection, *, learned_only: bool) -> int:
    connection.execute("PRAGMA secure_delete = ON")  # else the text stays in the file's free pages
    gone = 0
    for name in names:
        gone += connection.execute(_DROP, (*name, learned_only)).rowcount
    return gone
