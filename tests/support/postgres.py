"""A real PostgreSQL: Debian's, started once for the whole run, with a fresh database for whoever asks."""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import pytest

from gaugeway.demo.servers import free_ports
from gaugeway.storage.engines.postgres.migrate import migrate

T = TypeVar("T")
_NUMBERS = count(1)


class Postgres:
    """A cluster in a temporary directory; it forgets fsync, because only its process is ever killed.

    `settings` are the server's own, on top of ours.
    """

    def __init__(self, binaries: Path, **settings: str) -> None:
        self._settings = settings
        self._binaries = binaries
        self._directory = Path(tempfile.mkdtemp(prefix="gaugeway-pg-"))
        self._user = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
        if self._user:
            shutil.chown(self._directory, "postgres", "postgres")
        self.port = free_ports(1)[0]
        self._process: subprocess.Popen[bytes] | None = None
        data = self._directory / "data"
        self._run("initdb", "--username=gaugeway", "--auth=trust", "--no-sync", "--encoding=UTF8", "-D", data)
        self._has_template = False

    def _run(self, name: str, *arguments: object) -> None:
        done = subprocess.run(
            [self._binaries / name, *map(str, arguments)], capture_output=True, check=False, cwd="/", **self._user
        )
        assert done.returncode == 0, done.stderr.decode()

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = {"listen_addresses": "127.0.0.1", "unix_socket_directories": self._directory, "port": self.port}
        options |= {"fsync": "off", "max_connections": 60, "shared_buffers": "64MB", "timezone": "UTC"} | self._settings
        words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._directory / "data", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                **self._user,
            )
        deadline = time.monotonic() + 60
        while subprocess.run(
            [self._binaries / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)], check=False
        ).returncode:
            assert time.monotonic() < deadline, (self._directory / "log").read_text()
            time.sleep(0.05)

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """Stop: SIGINT ends the sessions, SIGQUIT is a crash of the whole engine."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(30)
            self._process = None

    def destroy(self) -> None:
        """Stop and leave nothing behind."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self._directory, ignore_errors=True)

    def url(self, database: str = "postgres") -> str:
        """Where a database is."""
        return f"postgresql://gaugeway:secret@127.0.0.1:{self.port}/{database}"

    def database(self, *, empty: bool = False) -> str:
        """Make a fresh database and return its URL; unless `empty` its tables are there."""
        name = f"test_{next(_NUMBERS)}"
        template = "template1" if empty else "gaugeway_template"

        async def make() -> None:
            if not empty and not self._has_template:
                await self._execute("postgres", "CREATE DATABASE gaugeway_template")
                await self._migrate()
                self._has_template = True
            await self._execute("postgres", f"CREATE DATABASE {name} TEMPLATE {template}")

        _elsewhere(make())
        return self.url(name)

    def ask(self, url: str, statement: str, *arguments: object) -> list[tuple[object, ...]]:
        """Run one statement in a database and return its rows."""

        async def asked() -> list[tuple[object, ...]]:
            connection = await asyncpg.connect(url, server_settings={"search_path": "gaugeway"})
            try:
                return [tuple(row) for row in await connection.fetch(statement, *arguments)]
            finally:
                await connection.close()

        return _elsewhere(asked())

    async def _execute(self, database: str, statement: str) -> None:
        connection = await asyncpg.connect(self.url(database))
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    async def _migrate(self) -> None:
        connection = await asyncpg.connect(self.url("gaugeway_template"))
        try:
            await migrate(connection)
        finally:
            await connection.close()


def _elsewhere(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run something to its end on a loop of its own, whether or not the caller is inside one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


@functools.cache
def _binaries() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


@functools.cache
def postgres() -> Postgres:
    """The server of this run, started by the first who asks. Skips where there is none; fails where CI promises it."""
    binaries = _binaries()
    if binaries is None:
        if os.environ.get("CI") == "true":  # noqa: TID251 - a test's own switch
            pytest.fail("PostgreSQL is not installed")
        pytest.skip("PostgreSQL is not installed")
    server = Postgres(binaries)
    atexit.register(server.destroy)
    server.start()
    return server


def own_server(**settings: str) -> Postgres:
    """Another server, for who stops it or wants other settings; the caller destroys it."""
    binaries = _binaries()
    if binaries is None:
        return postgres()  # which says that there is none
    server = Postgres(binaries, **settings)
    server.start()
    return server
