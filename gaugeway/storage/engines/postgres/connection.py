"""Connection pool of a PostgreSQL database: opened at first use, reopened after a loss, with limits on statements.

Raises `EngineError` when the database cannot be used; the next call tries again. Raises `RefusedError` for a value that
the database never takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import urlsplit

try:
    import asyncpg
except ModuleNotFoundError as missing:  # pragma: no cover - the extra is installed where this is tested
    raise ValueError("PostgreSQL needs an extra: pip install 'gaugeway[postgres]'") from missing

from gaugeway.storage.engines.failures import VALUE_ERRORS, Circuit, EngineError, RefusedError
from gaugeway.storage.engines.postgres import migrate as migrating
from gaugeway.storage.engines.postgres.migrate import SCHEMA, migrate
from gaugeway.storage.engines.scripts import statements

if TYPE_CHECKING:
    Pool: TypeAlias = asyncpg.Pool[asyncpg.Record]
    Lent: TypeAlias = migrating.Lent
    Connection: TypeAlias = migrating.Connection

STATEMENT_S = 30.0
"""The longest a statement may run; the longest it may wait for a lock is a third of that."""
_CONNECT_S = 5.0
_REFUSED = {"22", "23", "54"}
"""Classes of SQLSTATE: data exception, integrity constraint violation, program limit exceeded."""
_LIMIT = "54"
DRIVER_ERRORS = asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError
"""Everything that asyncpg raises when the database or the connection fails."""
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^:\[\]]*)(?::[0-9]+)?")
_SESSION = {
    "application_name": "gaugeway",
    "search_path": SCHEMA,
    "timezone": "UTC",
    "statement_timeout": f"{STATEMENT_S * 1000:.0f}",
    "lock_timeout": f"{STATEMENT_S * 1000 / 3:.0f}",
    "idle_in_transaction_session_timeout": "60000",
    # A machine that vanished without a word must not keep its locks for the two hours that TCP would allow it.
    "tcp_keepalives_idle": "3",
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "6000",
}


class Database:
    """A pool of at most `size` connections to the database that `url` names, behind a `Circuit`.

    After `aclose` the next operation opens the pool again. With `migrates` the tables are created or upgraded at first
    use. With `replans` each statement is planned for its values: the generic plan that PostgreSQL switches to after
    five executions may take a thousand times as long where a table has a partition for each of many days.
    """

    def __init__(
        self,
        url: str,
        *,
        size: int = 4,
        migrates: bool = True,
        replans: bool = False,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.url = url
        self.name = name_of(url)
        self._size = size
        self._migrates = migrates
        self._session = _SESSION | ({"plan_cache_mode": "force_custom_plan"} if replans else {})
        self._circuit = Circuit(self.name, draw=draw)
        self._pool: Pool | None = None

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection: every statement is a transaction of its own."""
        try:
            pool, connection = await self._circuit.run(self._acquire)
            try:
                yield connection
            finally:
                await pool.release(connection)
        except (*DRIVER_ERRORS, *VALUE_ERRORS) as error:
            raise self._translated(error) from error

    @contextlib.asynccontextmanager
    async def transaction(self, *, reading: bool = False) -> AsyncIterator[Connection]:
        """Lend a connection: everything done in the block is committed at its end, or nothing is.

        With `reading` everything in the block sees one state of the database.
        """
        isolation: Literal["repeatable_read"] | None = "repeatable_read" if reading else None
        async with self.connection() as lent, lent.transaction(isolation=isolation, readonly=reading):
            yield lent

    async def dedicated(self) -> asyncpg.Connection[asyncpg.Record]:
        """Open a connection beside the pool, which the caller keeps and closes. Raises EngineError."""
        try:
            async with self.connection():
                pass  # the tables exist now, and the circuit is closed
            return await self._connect()
        except DRIVER_ERRORS as error:
            raise self._translated(error) from error

    async def aclose(self) -> None:
        """Close the connections, if there are any; those in use are waited for, but not for long."""
        pool, self._pool = self._pool, None
        self._circuit.reset()
        if pool is None:
            return
        try:
            async with asyncio.timeout(_CONNECT_S):
                await pool.close()
        except DRIVER_ERRORS:
            pool.terminate()

    async def _acquire(self) -> tuple[Pool, Lent]:
        try:
            if self._pool is None:
                self._pool = await self._open()
            pool = self._pool
            connection = await pool.acquire()
        except Exception:
            self._circuit.failed()
            raise
        if pool is self._pool:  # not closed meanwhile
            self._circuit.succeeded()
        return pool, connection

    async def _open(self) -> Pool:
        pool = asyncpg.create_pool(min_size=0, max_size=self._size, connect=lambda *_, **__: self._connect())
        try:
            await pool
            async with pool.acquire() as connection:
                if self._migrates:
                    await migrate(connection)
        except BaseException:
            pool.terminate()
            raise
        return pool

    async def _connect(self, *_: object, **__: object) -> asyncpg.Connection[asyncpg.Record]:
        return await asyncpg.connect(
            self.url, timeout=_CONNECT_S, command_timeout=STATEMENT_S + _CONNECT_S, server_settings=self._session
        )

    def _translated(self, error: Exception) -> EngineError | RefusedError:
        """The error as the class that says whether the database or the value is at fault, with the database's name."""
        if isinstance(error, RefusedError) or (isinstance(error, EngineError) and str(error).startswith(self.name)):
            return error
        state = str(getattr(error, "sqlstate", None) or "")
        if isinstance(error, VALUE_ERRORS) and not isinstance(error, asyncpg.PostgresError):
            return RefusedError(f"{self.name}: {type(error).__name__}")
        if state[:2] in _REFUSED:
            # Messages about limits state sizes; those about data and constraints may quote the value.
            said = f": {str(error).splitlines()[0]}" if state[:2] == _LIMIT else ""
            return RefusedError(f"{self.name}: {state} {type(error).__name__}{said}")
        said = str(error) or type(error).__name__
        return EngineError(f"{self.name}: {said}")


def name_of(url: str) -> str:
    """The URL without user, password and options. Raises ValueError, which quotes nothing, for one that is no URL."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        hosts = parts.netloc.rpartition("@")[2]
        whole = not parts.fragment and "@" not in parts.path + parts.query  # else a password was cut in two
        known = parts.scheme in ("postgresql", "postgres") and all(map(_HOST.fullmatch, hosts.split(",")))
        if known and whole and parts.path.strip("/"):
            return f"{parts.scheme}://{hosts or 'localhost'}{parts.path}"
    raise ValueError(
        "expected postgresql://user:password@host:5432/database; in a password, "
        "characters such as / and # are written as %2F and %23"
    )


def plain(text: str) -> str:
    """The text as a column can hold it: PostgreSQL knows no NUL."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def plain_values(values: Iterable[Any]) -> list[Any]:
    """Values as columns can hold them: texts without NUL."""
    return [plain(value) if isinstance(value, str) else value for value in values]


def count_of(status: str) -> int:
    """How many rows a statement changed, out of what the database says of it ("DELETE 3").

    >>> count_of("INSERT 0 2"), count_of("DELETE 3")
    (2, 3)
    """
    return int(status.rpartition(" ")[2])


async def remove(connection: Connection, sample_ids: Sequence[str]) -> None:
    """Remove samples from the queue, also those that were set aside: what has outcomes waits no more."""
    await connection.execute(statements("postgres/queue.sql")["remove"], list(map(plain, sample_ids)))


async def save(connection: Connection, states: Mapping[str, bytes]) -> None:
    """Save all of `states`, each replacing the one of the same name."""
    await connection.execute(statements("postgres/store.sql")["save_states"], list(states), list(states.values()))
