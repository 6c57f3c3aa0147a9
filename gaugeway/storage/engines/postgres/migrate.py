"""Migrations of the PostgreSQL schema: plain SQL files, applied in order, each once.

Why there is no migration tool: docs/decisions/0007-postgresql-schema.md. A script that begins with `-- oldest: N` is
backward compatible with releases that know version N: their processes may run, and start, beside the newer ones.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from gaugeway.storage.engines.failures import SchemaError
from gaugeway.storage.engines.scripts import migrations

if TYPE_CHECKING:
    import asyncpg

    Lent: TypeAlias = asyncpg.pool.PoolConnectionProxy[asyncpg.Record]
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record] | Lent

SCHEMA = "gaugeway"
"""The schema that holds every table of ours."""
_LOCK = 0x67777067  # "gwpg": of several processes that find an empty database one creates the tables
_OLDEST = re.compile(r"-- oldest: (\d+)\n")
# Through JSON, because tables that were last changed by an early release lack the column.
_NEEDS = (
    "SELECT max(coalesce((to_jsonb(v) ->> 'oldest')::integer, version)) FROM gaugeway.versions v WHERE version > $1"
)


def scripts() -> tuple[str, ...]:
    """The SQL scripts: the one at n leads from version n to n + 1."""
    return migrations("postgres/migrations")


async def version(connection: Connection) -> int:
    """The version of the tables; 0 where there are none."""
    if await connection.fetchval("SELECT to_regclass($1) IS NULL", f"{SCHEMA}.versions"):
        return 0
    return int(await connection.fetchval(f"SELECT coalesce(max(version), 0) FROM {SCHEMA}.versions"))  # noqa: S608 - ours


async def migrate(connection: Connection) -> tuple[int, int]:
    """Apply what is missing, all or nothing; return the versions before and after. Raises SchemaError."""
    known = len(scripts())
    if (found := await version(connection)) == known or (found > known and await _serves(connection, known)):
        return found, found
    # A lock of the session, taken before the transaction begins: within one, a name looked up in vain stays unknown.
    await connection.execute("SELECT pg_advisory_lock($1)", _LOCK)
    try:
        async with connection.transaction():
            before = await version(connection)  # another process may have been faster
            if before > known and not await _serves(connection, known):
                raise SchemaError(f"its tables have version {before}, this release knows {known}; upgrade")
            await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
            await connection.execute(f"SET LOCAL search_path = {SCHEMA}")
            for number, script in enumerate(scripts()[before:], before + 1):
                await connection.execute(script)
                oldest = int(marked[1]) if (marked := _OLDEST.match(script)) else number
                await connection.execute("ALTER TABLE versions ADD COLUMN IF NOT EXISTS oldest integer")
                await connection.execute("INSERT INTO versions (version, oldest) VALUES ($1, $2)", number, oldest)
    finally:
        await connection.execute("SELECT pg_advisory_unlock($1)", _LOCK)
    return before, max(before, known)


async def _serves(connection: Connection, known: int) -> bool:
    """Whether tables newer than `known` were only added to since."""
    return int(await connection.fetchval(_NEEDS, known)) <= known
