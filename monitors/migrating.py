"""Bringing a PostgreSQL database's tables up to date: plain SQL files, applied in order, each once.

Why no tool does it: docs/decisions/0007-postgresql-schema.md.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import asyncpg

    Lent: TypeAlias = asyncpg.pool.PoolConnectionProxy[asyncpg.Record]
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record] | Lent

SCHEMA = "gaugeway"
"""The schema that holds every table of ours."""
_LOCK = 0x67777067  # "gwpg": of several processes that find an empty database one creates the tables


class SchemaError(ConnectionError):
    """The database was written by a newer release."""


@cache
def scripts() -> tuple[str, ...]:
    """The SQL scripts: the one at n leads from version n to n + 1."""
    found = sorted(
        (one.name, one.read_text("utf-8"))
        for one in files("monitors.migrations").iterdir()
        if one.name.endswith(".sql")
    )
    return tuple(script for _, script in found)


async def version(connection: Connection) -> int:
    """The version of the tables; 0 where there are none."""
    if await connection.fetchval("SELECT to_regclass($1) IS NULL", f"{SCHEMA}.versions"):
        return 0
    return int(await connection.fetchval(f"SELECT coalesce(max(version), 0) FROM {SCHEMA}.versions"))  # noqa: S608 - ours


async def migrate(connection: Connection) -> tuple[int, int]:
    """Apply what is missing, all or nothing; return the versions before and after. Raises SchemaError."""
    known = len(scripts())
    if await version(connection) == known:
        return known, known
    # A lock of the session, taken before the transaction begins: within one, a name looked up in vain stays unknown.
    await connection.execute("SELECT pg_advisory_lock($1)", _LOCK)
    try:
        async with connection.transaction():
            before = await version(connection)  # another process may have been faster
            if before > known:
                raise SchemaError(f"its tables have version {before}, this release knows {known}; upgrade")
            await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
            await connection.execute(f"SET LOCAL search_path = {SCHEMA}")
            for number, script in enumerate(scripts()[before:], before + 1):
                await connection.execute(script)
                await connection.execute("INSERT INTO versions (version) VALUES ($1)", number)
    finally:
        await connection.execute("SELECT pg_advisory_unlock($1)", _LOCK)
    return before, known
