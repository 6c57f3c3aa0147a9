"""Documents in SQLite: a file for each collection, so that no gateway waits for an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from gaugeway.storage.documents import SPENDING_DAYS, Changes, Collection, Documents, Row, Spending
from gaugeway.storage.engines.document_rows import delete, put, revise, revision_of, select, sizes
from gaugeway.storage.engines.failures import EngineError
from gaugeway.storage.engines.sqlite.connection import DATASETS, KEYS, TEMPLATES, TRIALS, Database, path_from_url

KEYS_FILE, TEMPLATES_FILE, DATASETS_FILE, TRIALS_FILE = "keys.db", "templates.db", "datasets.db", "trials.db"
_FILES = {
    "keys": (KEYS_FILE, KEYS),
    "templates": (TEMPLATES_FILE, TEMPLATES),
    "datasets": (DATASETS_FILE, DATASETS),
    **dict.fromkeys(("trials", "trial_requests", "trial_answers"), (TRIALS_FILE, TRIALS)),
}
_REVISION = {"keys": "SELECT value FROM revision"}
_SPEND = """
    INSERT INTO spending (day, subject, usd) VALUES (?, ?, ?)
    ON CONFLICT (day, subject) DO UPDATE SET usd = usd + excluded.usd
"""
_SPENT_TODAY = "SELECT day, subject, usd FROM spending WHERE day = ?"


class SQLiteDocuments(Documents):
    """Keys, spending, templates, data sets and trials in files of one directory, each made when it is first needed.

    Operations raise `EngineError` when a file cannot be used within `busy_timeout_s`.
    """

    def __init__(self, directory: Path, *, busy_timeout_s: float = 5.0) -> None:
        self._directory = directory
        self._known: set[Collection] = set()
        files = {
            file: Database(directory / file, schema=schema, busy_timeout_s=busy_timeout_s)
            for file, schema in _FILES.values()
        }
        self._databases = {name: files[file] for name, (file, _) in _FILES.items()}

    @classmethod
    def from_url(cls, url: str) -> SQLiteDocuments:
        """Return those beside the store in the file that `url` names. Raises ValueError."""
        return cls(path_from_url(url).parent)

    async def changed(self, collection: Collection, revision: bytes | None) -> tuple[bytes, Sequence[Row] | None]:
        file = self._directory / _FILES[collection.name][0]
        if not file.exists():
            if not collection.must_stay:  # who looks only need not make it
                return b"", None if revision == b"" else []
            if collection in self._known:
                # Opening would create an empty file, and without keys every request is rejected.
                raise EngineError(f"{file} is gone")

        def read(connection: Connection) -> tuple[bytes, list[Row] | None]:
            if (current := _revision(connection, collection)) == revision:
                return current, None
            return current, [(*row,) for row in connection.execute(select(collection, collection.columns))]

        found = await self._databases[collection.name].read(read)
        self._known.add(collection)
        return found

    async def update(self, collection: Collection, change: Callable[[Sequence[Row]], Changes]) -> None:
        def apply(connection: Connection) -> None:
            changes = change([(*row,) for row in connection.execute(select(collection, collection.head))])
            if changes.delete:
                connection.execute("PRAGMA secure_delete = ON")  # else the text stays in the file's free pages
            connection.executemany(put(collection, "?"), changes.put)
            connection.executemany(revise(collection, "?"), changes.revise)
            connection.executemany(delete(collection, "?"), changes.delete)

        await self._databases[collection.name].write(apply)

    async def spend(self, spending: Mapping[tuple[int, str], float], today: int) -> Spending:
        entries = [(*entry, usd) for entry, usd in spending.items()]

        def spend(connection: Connection) -> list[Any]:
            if entries:
                connection.executemany(_SPEND, entries)
                connection.execute("DELETE FROM spending WHERE day < ?", (today - SPENDING_DAYS,))
            found: list[Any] = connection.execute(_SPENT_TODAY, (today,)).fetchall()
            return found

        keys = self._databases["keys"]
        rows = await (keys.write(spend) if entries else keys.read(spend))
        return {(day, subject): usd for day, subject, usd in rows}

    async def aclose(self) -> None:
        for database in {*self._databases.values()}:
            await database.aclose()


def _revision(connection: Connection, collection: Collection) -> bytes:
    if (statement := _REVISION.get(collection.name)) is not None:
        value: bytes = connection.execute(statement).fetchone()[0]
        return value
    return revision_of(connection.execute(sizes(collection)))
