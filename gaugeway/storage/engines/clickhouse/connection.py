"""Connections to a ClickHouse database over HTTP: opened at first use, which also creates the tables.

Raises `EngineError` when the engine cannot be used; the next call tries again. The engine's own message is not passed
on, because it quotes the statement: the error's number and name say what is wrong.
"""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

try:
    import clickhouse_connect
    from clickhouse_connect.driver.exceptions import ClickHouseError, DataError, Error
except ModuleNotFoundError as missing:  # pragma: no cover - the extra is installed where this is tested
    raise ValueError("ClickHouse needs an extra: pip install 'gaugeway[clickhouse]'") from missing

from gaugeway.storage.engines.failures import VALUE_ERRORS, Circuit, EngineError, RefusedError, SchemaError

T = TypeVar("T")
_REFUSED = {6, 26, 27, 38, 41, 53, 69, 70, 72, 117, 128, 131, 321, 349}
"""Error codes about a value: it cannot be parsed or converted, is out of range, or is too long."""
STATEMENT_S = 30.0
"""The longest a statement may run."""
LINGER_MS = 20
"""How long an insert waits for others to go with it, unless the URL says otherwise."""
_LONGEST_LINGER_MS = 1000  # internal bound: size of a batch
_PORTS = {"clickhouse": 8123, "clickhouses": 8443}
_CONNECT_S = 5.0
_TLS_OPTIONS = {"ca_cert", "client_cert", "client_cert_key"}
_FORM = (
    "expected clickhouse://user:password@host:8123/database (clickhouses:// with TLS); in a password, "
    "characters such as / and # are written as %2F and %23"
)
_VERSIONS = """
    CREATE TABLE IF NOT EXISTS versions (version UInt32, applied_at DateTime DEFAULT now())
    ENGINE = MergeTree ORDER BY version
"""
_VERSION = "SELECT max(version) FROM versions"


logging.getLogger("clickhouse_connect").setLevel(logging.ERROR)  # what it warns of, with a traceback, it raises too


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A parsed URL; `name` is its form for messages, without user and password."""

    name: str
    host: str
    port: int
    database: str
    user: str
    password: str = field(default="", repr=False)
    secure: bool = False
    linger_s: float = LINGER_MS / 1000
    tls: tuple[tuple[str, str], ...] = ()


class Database:
    """The connections to the database at `address`, behind a `Circuit`; `scripts` create and upgrade its tables.

    The script at n, whose statements are idempotent, upgrades version n to n + 1. After `aclose` the next operation
    connects again.
    """

    def __init__(
        self, address: Address, scripts: Sequence[Sequence[str]], *, draw: Callable[[], float] = random.random
    ) -> None:
        self.address = address
        self._scripts = scripts
        self._circuit = Circuit(address.name, draw=draw)
        self._client: Any = None
        self._before = 0

    async def query(
        self, statement: str, values: Mapping[str, Any] | None = None, *, raw: Sequence[str] = ()
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a statement; `values` stand in it as {name:Type}. Columns named in `raw` come as bytes."""

        async def ask(client: Any) -> list[tuple[Any, ...]]:
            formats = dict.fromkeys(raw, "bytes") or None
            found = await client.query(statement, parameters=dict(values or {}), column_formats=formats)
            return list(found.result_rows)

        return await self._run(ask)

    async def command(self, statement: str, values: Mapping[str, Any] | None = None) -> None:
        """Run a statement that returns nothing."""
        await self._run(lambda client: client.command(statement, parameters=dict(values or {})))

    async def insert(self, table: str, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows, whose columns have these names and types, as one block: of a partition all come or none."""
        if not rows:
            return
        names, types = list(columns), list(columns.values())

        async def put(client: Any) -> None:
            context = await client.create_insert_context(table, names, column_type_names=types, data=rows)
            context.block_row_count = len(rows)
            await client.data_insert(context)

        await self._run(put)

    async def migrate(self) -> tuple[int, int]:
        """Bring the tables up to date; return the versions before and after. Raises SchemaError.

        Several processes may do it at once: a statement says IF NOT EXISTS, so that it does no harm twice.
        """
        await self._run(lambda client: client.command("SELECT 1"))
        return self._before, len(self._scripts)

    async def aclose(self) -> None:
        """Close the connections, if there are any."""
        client, self._client = self._client, None
        self._circuit.reset()
        if client is not None:
            await client.close()

    async def _run(self, call: Callable[[Any], Awaitable[T]]) -> T:
        return await self._circuit.run(lambda: self._call(call))

    async def _call(self, call: Callable[[Any], Awaitable[T]]) -> T:
        try:
            if self._client is None:
                await self._open()
            answer = await call(self._client)
        except (DataError, *VALUE_ERRORS) as error:  # the client cannot write the value as its column's type
            raise RefusedError(f"{self.address.name}: {type(error).__name__}") from error
        except ClickHouseError as error:
            code = error.code if isinstance(error, Error) else None
            if code is None or self._client is None:
                self._circuit.failed()
            if code is None:
                raise self._translated(error.__cause__ or error) from None
            said = f"{self.address.name}: error {code} ({getattr(error, 'name', None)})"
            raise (RefusedError(said) if code in _REFUSED else EngineError(said)) from None
        except OSError as error:
            self._circuit.failed()
            raise self._translated(error) from error
        if self._client is not None:  # not closed meanwhile
            self._circuit.succeeded()
        return answer

    async def _open(self) -> None:
        address = self.address
        tls: dict[str, Any] = dict(address.tls)
        client: Any = await clickhouse_connect.get_async_client(
            host=address.host,
            port=address.port,
            username=address.user,
            password=address.password,
            database=address.database,
            secure=address.secure,
            connect_timeout=_CONNECT_S,
            send_receive_timeout=STATEMENT_S + _CONNECT_S,
            client_name="gaugeway",
            # A block that the engine gathers itself is in only later, and with blocks of others.
            settings={"async_insert": 0, "max_execution_time": int(STATEMENT_S), "max_partitions_per_insert_block": 0},
            **tls,
        )
        try:
            self._before = await self._migrate(client)
        except BaseException:
            await client.close()
            raise
        self._client = client

    async def _migrate(self, client: Any) -> int:
        await client.command(_VERSIONS)
        before = int((await client.query(_VERSION)).result_rows[0][0])
        if before > (known := len(self._scripts)):
            raise SchemaError(f"its tables have version {before}, this release knows {known}; upgrade")
        for number, script in enumerate(self._scripts[before:], before + 1):
            for statement in script:
                await client.command(statement)
            await client.insert("versions", [[number]], ["version"], column_type_names=["UInt32"])
        return before

    def _translated(self, error: BaseException) -> EngineError:
        return EngineError(f"{self.address.name}: {str(error)[:200] or type(error).__name__}")


def read_url(url: str) -> Address:
    """Return what the URL says. Raises ValueError, which quotes nothing of it but the name of an option."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise ValueError(_FORM) from None
    database = parts.path.removeprefix("/")
    if parts.scheme not in _PORTS or not host or parts.fragment or not re.fullmatch(r"\w{1,64}", database, re.ASCII):
        raise ValueError(_FORM)
    linger = options.pop("linger_ms", str(LINGER_MS))
    if not (linger.isascii() and linger.isdecimal() and int(linger) <= _LONGEST_LINGER_MS):
        raise ValueError("the option linger_ms is a whole number from 0 to 1000")
    if unknown := sorted(options.keys() - _TLS_OPTIONS):
        known = ", ".join(sorted({"linger_ms"} | _TLS_OPTIONS))
        raise ValueError(f"no option {unknown[0][:30]!r} of a ClickHouse URL; known: {known}")
    secure = parts.scheme == "clickhouses"
    if options and not secure:
        raise ValueError(f"the option {min(options)} needs clickhouses://")
    at = port or _PORTS[parts.scheme]
    return Address(
        name=f"{parts.scheme}://{host}:{at}/{database}",
        host=host,
        port=at,
        database=database,
        user=unquote(parts.username or "default"),
        password=unquote(parts.password or ""),
        secure=secure,
        linger_s=int(linger) / 1000,
        tls=tuple(options.items()),
    )
