"""Connection to a SQLite file: opened at first use, reopened after a failure, written in transactions only.

Raises `EngineError` when the file cannot be used; the next call tries again. Raises `RefusedError` for a value that
SQLite never takes.
"""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import aiosqlite
from msgspec import Struct

from gaugeway.processes.data_directory import directory_problem
from gaugeway.runtime.tasks import happens_within, spawn
from gaugeway.storage.engines.failures import VALUE_ERRORS, EngineError, RefusedError, SchemaError
from gaugeway.storage.engines.scripts import migrations

T = TypeVar("T")
_READING, _WRITING = "BEGIN", "BEGIN IMMEDIATE"
_RETRY_S = 0.01
_GATHER_S = 0.005
"""How long a transaction waits until as many works as shared the last one are there: each transaction costs more than
a work does.
"""
_LOG_BYTES = 8 * 1024 * 1024
"""The write-ahead log is cut to this size after a long read let it grow; otherwise the file would stay that large."""
_HEADER_BYTES, _MAGIC = 100, b"SQLite format 3\0"
"""How a database begins: https://www.sqlite.org/fileformat2.html#the_database_header"""
_VERSION, _APPLICATION_ID = slice(60, 64), slice(68, 72)
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_REFUSALS = (
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.NotSupportedError,
    sqlite3.ProgrammingError,
)
_CLOSED = re.compile("closed database|connection closed|no active connection", re.IGNORECASE)
"""How sqlite3 and aiosqlite report a connection that is gone: as errors of the classes for wrong values."""


_Waiting: TypeAlias = tuple[Callable[[sqlite3.Connection], Any], asyncio.Future[Any]]
"""A work, and who waits for what it returns."""


@dataclass(slots=True)
class _Shared:
    """Calls that wait for their shared transaction. `usual` is how many shared the last one; `enough` is set once as
    many are waiting again.
    """

    begin: str
    waiting: list[_Waiting] = field(default_factory=list)
    usual: int = 1
    enough: asyncio.Event = field(default_factory=asyncio.Event)


class Schema(Struct, frozen=True, kw_only=True):
    """What a file holds. `migrations[n]` is the SQL script that leads from version n to n + 1.

    A statement of a script ends at the end of a line. `application_id` tells the files of one kind from all others.
    """

    kind: str
    application_id: int
    migrations: tuple[str, ...]


STORE = Schema(kind="store", application_id=0x67777374, migrations=migrations("sqlite/migrations/store"))  # "gwst"
QUEUE = Schema(kind="queue", application_id=0x67777175, migrations=migrations("sqlite/migrations/queue"))  # "gwqu"
KEYS = Schema(kind="key file", application_id=0x67776B79, migrations=migrations("sqlite/migrations/keys"))  # "gwky"
TEMPLATES = Schema(
    kind="template file", application_id=0x6777746D, migrations=migrations("sqlite/migrations/templates")
)  # "gwtm"
# "gwds"
DATASETS = Schema(kind="data sets", application_id=0x67776473, migrations=migrations("sqlite/migrations/datasets"))
TRIALS = Schema(kind="trials", application_id=0x67777472, migrations=migrations("sqlite/migrations/trials"))  # "gwtr"


def path_from_url(url: str) -> Path:
    """Return the path in `sqlite:////absolute/path` or `sqlite:///relative/path`. Raises ValueError."""
    prefix = "sqlite:///"
    path = url.removeprefix(prefix)
    if not url.startswith(prefix) or not path:
        raise ValueError(f"{url!r}: expected sqlite:////absolute/path or sqlite:///relative/path")
    return Path(path)


def file_problem(path: Path, schema: Schema) -> str | None:
    """Say why `path` cannot be a database of `schema`. Neither is it created, nor does SQLite open it.

    Not for a file that this process has open: closing it here would drop all locks that the process has on it.
    """
    try:
        if path.exists() and (problem := _content_problem(path, schema)) is not None:
            return f"{path} {problem}"
    except OSError as error:
        return f"{path} cannot be opened: {error.strerror}"
    reason = directory_problem(path.parent)
    return None if reason is None else f"{path.parent} cannot be written: {reason}"


def _content_problem(path: Path, schema: Schema) -> str | None:
    if not path.is_file():
        return "is a directory" if path.is_dir() else "is not a regular file"
    with path.open("r+b") as file:
        header = file.read(_HEADER_BYTES)
    if not header:
        return None  # SQLite takes an empty file for a new database
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        return "is not a SQLite database"
    version, application_id = (int.from_bytes(header[part], "big") for part in (_VERSION, _APPLICATION_ID))
    if (version or application_id) and application_id != schema.application_id:
        return f"is not a {schema.kind} of Gaugeway; give it a file of its own"
    if version > len(schema.migrations):
        return "was written by a newer Gaugeway; upgrade, or use another file"
    return None


@dataclass(eq=False)
class Database:
    """One connection to one file, on a thread of its own; its operations run one after another.

    The directory is created with mode 0700 and the file with mode 0600; existing ones keep theirs. After `aclose` the
    next operation opens the file again. `cache_kib` bounds what it keeps of the file in memory, and what it sorts
    there; None leaves SQLite's own bound of 2 MiB.

    With `undo_in_memory` the pages that undo one work of a transaction are kept in memory; otherwise SQLite writes them
    to a temporary file, which is half of all that it writes. What is sorted is then in memory, too: not for a
    connection that sorts whole tables.
    """

    path: str | Path
    _: KW_ONLY
    schema: Schema
    busy_timeout_s: float
    cache_kib: int | None = None
    undo_in_memory: bool = False

    def __post_init__(self) -> None:
        self._path = Path(self.path).absolute()
        self._turn, self._opening = asyncio.Lock(), asyncio.Lock()
        self._rounds: set[asyncio.Task[None]] = set()
        self._writers, self._readers = _Shared(_WRITING), _Shared(_READING)
        self._connection: _Connection | None = None
        self._identity: tuple[int, int] | None = None

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do `work` on the connection's thread while it holds the file's write lock, and return what it returns.

        Calls that arrive while the file is busy share one transaction; one that raises rolls back only its own changes.
        If the caller is cancelled, the work may or may not have been done.
        """
        return await self._share(self._writers, work)

    async def write_each(self, works: Sequence[Callable[[sqlite3.Connection], T]]) -> Sequence[T | Exception]:
        """Do several works in one transaction; return what each returned, or the RefusedError that `write` would raise.

        A work that is refused rolls back its own changes only. Each may be run twice. Raises EngineError when none was
        done.
        """
        outcomes = await self.write(partial(_each, works))
        return [self._raised(outcome) if isinstance(outcome, Exception) else outcome for outcome in outcomes]

    async def read(self, work: Callable[[sqlite3.Connection], T], *, short: bool = False) -> T:
        """Do `work` on the connection's thread, with one state of the file, and return what it returns.

        Reads wait in the thread's own queue: on a busy machine the event loop takes longer to hand over than many of
        them take. Pass `short` for lookups of a few rows: they share a transaction as writes do; a long read would
        delay them.
        """
        if short:
            return await self._share(self._readers, work)
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            await self._do(_READING, [(work, done)])
        except asyncio.CancelledError:
            done.cancel()  # the thread then leaves it out
            raise
        return done.result()

    async def fetch(
        self, statement: str, parameters: Mapping[str, Any] | Sequence[Any] = (), *, short: bool = False
    ) -> list[Any]:
        """Return the rows of one statement that only reads."""
        return await self.read(lambda connection: connection.execute(statement, parameters).fetchall(), short=short)

    async def change(self, statement: str, parameters: Mapping[str, Any] | Sequence[Any] = ()) -> int:
        """Return how many rows one statement changed."""
        return await self.write(lambda connection: connection.execute(statement, parameters).rowcount)

    async def aclose(self) -> None:
        """Close the connection, if there is one."""
        async with self._turn, self._opening:
            await self._drop(self._connection)

    async def _share(self, shared: _Shared, work: Callable[[sqlite3.Connection], T]) -> T:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        shared.waiting.append((work, done))
        if len(shared.waiting) == shared.usual:
            shared.enough.set()
        if len(shared.waiting) == 1:  # the others are done with the first
            task = spawn(self._do_waiting(shared), name=f"{shared.begin} {self._path.name}")
            self._rounds.add(task)
            task.add_done_callback(self._rounds.discard)
        return await done

    async def _do_waiting(self, shared: _Shared) -> None:
        if len(shared.waiting) < shared.usual:
            await happens_within(shared.enough, _GATHER_S)
        async with self._turn:
            some = [(work, done) for work, done in shared.waiting if not done.done()]
            shared.waiting.clear()
            shared.enough.clear()
            shared.usual = len(some)
            await self._do(shared.begin, some)

    async def _do(self, begin: str, some: Sequence[_Waiting]) -> None:
        """Run these in one transaction and resolve their futures."""
        outcomes: Sequence[object]
        connection = None
        try:
            async with self._opening:
                connection = await self._connected()
            outcomes = await connection.together(begin, some)
        except Exception as error:  # noqa: BLE001 - for those who wait
            outcomes = [error] * len(some)
        if any(isinstance(outcome, sqlite3.Error | OSError) or _gone(outcome) for outcome in outcomes):
            await self._drop(connection)
        for (_, done), outcome in zip(some, outcomes, strict=True):
            if done.done():  # cancelled
                continue
            if isinstance(outcome, Exception):
                done.set_exception(self._raised(outcome))
            else:
                done.set_result(outcome)

    def _raised(self, error: Exception) -> Exception:
        """Return the exception that a caller gets."""
        if isinstance(error, (sqlite3.Error, OSError, *VALUE_ERRORS)):
            raised = self._translated(error)
            raised.__cause__ = error
            return raised
        return error

    def _translated(self, error: Exception) -> EngineError | RefusedError:
        """The error as the class that says whether the file or the value is at fault, with the file's name in front."""
        if isinstance(error, (EngineError, RefusedError)):
            return error
        if isinstance(error, (*_REFUSALS, *VALUE_ERRORS)) and not _CLOSED.search(str(error)):
            name = getattr(error, "sqlite_errorname", None) or type(error).__name__
            return RefusedError(f"{self._path}: {name}")
        message = f"{self._path}: {error}"
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
            message += f"; the {self.schema.kind} is damaged: move it away with its -wal and -shm, or restore a backup"
        return EngineError(message)

    async def _connected(self) -> _Connection:
        # SQLite goes on writing to a file that was removed, and what it writes is lost.
        if self._connection is not None and self._identity != _identity(self._path):
            await self._drop(self._connection)
        if self._connection is None:
            self._connection = await self._connect()
        return self._connection

    async def _connect(self) -> _Connection:
        opened: list[sqlite3.Connection] = []

        def connector() -> sqlite3.Connection:
            opened.append(self._open())
            return opened[0]

        connection = _Connection(connector)
        try:
            await connection
        except BaseException:
            if connection.stopped is not None:
                await connection.stopped  # a thread that outlives the event loop would have nobody to report to
            for raw in opened:
                raw.close()
            raise
        return connection

    async def _drop(self, connection: _Connection | None) -> None:
        """Close a connection; another may have taken its place."""
        if self._connection is connection:
            self._connection = None
        if connection is not None:
            with suppress(sqlite3.Error, ValueError):
                await connection.close()

    def _open(self) -> sqlite3.Connection:
        """Create the file if need be, connect, and bring its schema up to date. Runs on the connection's thread."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Only a new file is opened here: closing any descriptor of a file drops all locks this process has on it.
        with suppress(FileExistsError):
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        self._identity = _identity(self._path)
        connection = sqlite3.connect(
            f"{self._path.as_uri()}?mode=rw",
            uri=True,
            timeout=self.busy_timeout_s,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            self._use_wal(connection)
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES:d}")
            if self.cache_kib is not None:
                connection.execute(f"PRAGMA cache_size = -{self.cache_kib:d}")
            self._migrate(connection)
            if self.undo_in_memory:  # only now: a migration sorts whole tables
                connection.execute("PRAGMA temp_store = MEMORY")
        except BaseException:
            connection.close()
            raise
        return connection

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        """Switch to a write-ahead log. Two processes doing it at once get "locked" without any waiting."""
        deadline = time.monotonic() + self.busy_timeout_s
        while True:
            try:
                connection.execute("PRAGMA journal_mode=WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_S)
            else:
                return

    def _migrate(self, connection: sqlite3.Connection) -> None:
        target = len(self.schema.migrations)
        if self._version(connection) == target:
            return
        connection.execute("BEGIN IMMEDIATE")
        for script in self.schema.migrations[self._version(connection) :]:  # another process may have been faster
            for statement in _statements(script):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {self.schema.application_id:d}")
        connection.execute(f"PRAGMA user_version = {target:d}")
        connection.execute("COMMIT")

    def _version(self, connection: sqlite3.Connection) -> int:
        """Return the version of the file's schema. Raises SchemaError for one that this release cannot use."""
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        application_id = int(connection.execute("PRAGMA application_id").fetchone()[0])
        if (version or application_id) and application_id != self.schema.application_id:
            raise SchemaError(f"{self._path} is not a {self.schema.kind} of Gaugeway; give it a file of its own")
        if version > (known := len(self.schema.migrations)):
            raise SchemaError(
                f"{self._path} was written by a newer Gaugeway: its schema has version {version}, this release knows "
                f"{known}; upgrade, or use another file"
            )
        return version


class _Connection(aiosqlite.Connection):
    """aiosqlite's connection on a thread that does not keep the process alive, and whose end can be waited for."""

    stopped: asyncio.Future[Any] | None = None

    def __init__(self, connector: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connector, iter_chunk_size=64)
        self._thread.daemon = True

    def stop(self) -> asyncio.Future[Any] | None:
        self.stopped = super().stop()
        return self.stopped

    async def together(self, begin: str, some: Sequence[_Waiting]) -> Sequence[object]:
        """Do works in one transaction; return what each returns or raises. Raises what undoes all of them."""
        return await self._execute(_together, self._conn, begin, some)  # type: ignore[no-any-return, no-untyped-call]


def _together(connection: sqlite3.Connection, begin: str, some: Sequence[_Waiting]) -> Sequence[object]:
    connection.execute(begin)
    try:
        # Somebody may have been cancelled while this waited for the file's lock.
        # A work that has the transaction to itself needs no savepoint: the transaction is undone with it.
        do = _looked_up if begin == _READING else _isolated if len(some) > 1 else _run
        outcomes = [None if done.cancelled() else do(connection, work) for work, done in some]
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return outcomes


def _run(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    return work(connection)


def _looked_up(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], object]) -> object:
    """What `work`, which only reads, returns or raises. Raises where there is no transaction any more."""
    try:
        return work(connection)
    except Exception as error:
        if not connection.in_transaction:
            raise
        return error


def _isolated(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], object]) -> object:
    """What `work` returns or raises; then the transaction is as it was before. Raises where there is none any more."""
    connection.execute("SAVEPOINT work")
    try:
        outcome = work(connection)
    except Exception as error:
        if not connection.in_transaction:
            raise
        connection.execute("ROLLBACK TO work")
        outcome = error
    connection.execute("RELEASE work")
    return outcome


def _each(
    works: Sequence[Callable[[sqlite3.Connection], T]], connection: sqlite3.Connection
) -> Sequence[T | Exception]:
    """Do works without a savepoint for each: they have one together, and only when one fails is each isolated."""
    connection.execute("SAVEPOINT works")
    try:
        outcomes: Sequence[Any] = [work(connection) for work in works]
    except Exception:
        if not connection.in_transaction:
            raise
        connection.execute("ROLLBACK TO works")
        outcomes = [_isolated(connection, work) for work in works]
        if (failed := next(filter(_engine_at_fault, outcomes), None)) is not None:
            raise failed from None
    connection.execute("RELEASE works")
    return outcomes


def _engine_at_fault(outcome: object) -> bool:
    """Whether a work failed for another reason than its values."""
    values = isinstance(outcome, (*_REFUSALS, *VALUE_ERRORS)) and not _CLOSED.search(str(outcome))
    return isinstance(outcome, sqlite3.Error | OSError) and not values


def _gone(error: object) -> bool:
    """Whether an error says that the connection is closed."""
    return isinstance(error, VALUE_ERRORS) and _CLOSED.search(str(error)) is not None


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
