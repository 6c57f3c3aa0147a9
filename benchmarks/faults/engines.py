"""The engines of a run: started, killed, frozen, brought back, and asked what they hold."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.faults.hosts import NET
from tests.support.postgres import Postgres, _binaries
from tests.support.redis import RedisServer

LEASE_S = 5.0
FILLER = "filler"


class Engine(ABC):
    """Queue and store. `url` is where the product finds the engine that faults hit, `port` is zero if it has none."""

    name: str
    shared = True
    """Whether several monitors may use it."""
    port = 0

    @abstractmethod
    def config(self, host: str, port: int) -> str:
        """The tables `[queue]` and `[store]` for who finds the engine at `host`:`port`."""

    @abstractmethod
    def ask(self, statement: str) -> list[tuple]:
        """Rows of the store."""

    question = "payload::json->>'question'"

    @abstractmethod
    def kill(self) -> None:
        """SIGKILL."""

    @abstractmethod
    def start(self) -> None:
        """Start it again."""

    @abstractmethod
    def quit(self) -> None:
        """End it in order."""

    @abstractmethod
    def frozen(self) -> contextlib.AbstractContextManager[None]:
        """Nothing is answered meanwhile."""

    @abstractmethod
    def destroy(self) -> None:
        """End it and leave nothing behind."""


class PostgresEngine(Engine):
    """Queue and store in one PostgreSQL; a crash is one of the whole server, or of one of its processes."""

    name = "postgres"

    def __init__(self, directory: Path, *, hosted: bool = False, seed: int = 1) -> None:
        with _temporary(directory):
            self._server = Postgres(_binaries(), listen_addresses="*" if hosted else "127.0.0.1")
        if hosted:
            with (self._server._directory / "data" / "pg_hba.conf").open("a") as rules:  # noqa: SLF001 - of the harness
                rules.write(f"host all all {NET}.0/24 trust\n")
        self._draw = random.Random(seed)
        self._server.start()
        self._url = self._server.database()
        self.port = self._server.port

    def config(self, host: str, port: int) -> str:
        url = self.url(host, port)
        return f'[queue]\nurl = "{url}"\nlease_s = {LEASE_S}\n[store]\nurl = "{url}"\n'

    def url(self, host: str, port: int) -> str:
        return self._url.replace(f"127.0.0.1:{self.port}", f"{host}:{port}")

    def ask(self, statement: str) -> list[tuple]:
        return self._server.ask(self._url, statement)

    def kill(self) -> None:
        everyone = self._processes()
        if self._draw.random() < 0.5 and len(everyone) > 1:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._draw.choice(everyone[1:]), signal.SIGKILL)  # the server crashes, and comes back by itself
            return
        for pid in everyone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._server._process.wait(30)  # noqa: SLF001 - of the harness
        self._server._process = None  # noqa: SLF001

    def start(self) -> None:
        process = self._server._process  # noqa: SLF001
        if process is not None and process.poll() is not None:
            self._server._process = process = None  # noqa: SLF001
        if process is None:
            self._server.start()

    def quit(self) -> None:
        self._server.stop()

    def _processes(self) -> list[int]:
        first = self._server._process.pid  # noqa: SLF001
        return [first, *map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split())]

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        everyone = self._processes()
        for pid in everyone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in everyone:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def destroy(self) -> None:
        self._server.destroy()


class RedisEngine(Engine):
    """Redis as the queue, with its log of writes, and hit by the faults; the store is a PostgreSQL left alone."""

    name = "redis"

    def __init__(self, directory: Path, *, hosted: bool = False, seed: int = 1) -> None:
        options = {"bind": "0.0.0.0", "protected-mode": "no", "appendfsync": "everysec"}
        with _temporary(directory):
            self._server = RedisServer(durable=True, options=options if hosted else {"appendfsync": "everysec"})
        self._server.start()
        self._store = PostgresEngine(Path(tempfile.gettempdir()), hosted=hosted, seed=seed)
        self._query = urlsplit(self._server.url()).query
        self.port = self._server.port

    def config(self, host: str, port: int) -> str:
        store = self._store.url("127.0.0.1" if host == "127.0.0.1" else host, self._store.port)
        queue = f"redis://{host}:{port}/0?{self._query}"
        return f'[queue]\nurl = "{queue}"\nlease_s = {LEASE_S}\n[store]\nurl = "{store}"\n'

    def ask(self, statement: str) -> list[tuple]:
        return self._store.ask(statement)

    def kill(self) -> None:
        self._server.stop()

    def start(self) -> None:
        process = self._server._process  # noqa: SLF001 - of the harness
        if process is None or process.poll() is not None:
            self._server.start()

    def quit(self) -> None:
        self._server.stop(signal.SIGTERM)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        self._server.send(signal.SIGSTOP)
        try:
            yield
        finally:
            self._server.send(signal.SIGCONT)

    def destroy(self) -> None:
        self._server.destroy()
        self._store.destroy()


class SQLiteEngine(Engine):
    """Two files. There is no process to kill: frozen means that somebody else holds both files locked."""

    name = "sqlite"
    shared = False
    question = "json_extract(payload, '$.question')"

    def __init__(self, directory: Path, *, hosted: bool = False, seed: int = 1) -> None:
        del hosted, seed
        self.directory = directory / "data"

    def config(self, host: str, port: int) -> str:
        del host, port
        return (
            f'[queue]\nurl = "sqlite:///{self.directory}/queue.db"\nlease_s = {LEASE_S}\n'
            f'[store]\nurl = "sqlite:///{self.directory}/store.db"\n'
        )

    def ask(self, statement: str) -> list[tuple]:
        path = f"file:{self.directory}/store.db?mode=ro"
        with contextlib.closing(sqlite3.connect(path, uri=True, timeout=20)) as connection:
            return connection.execute(statement).fetchall()

    def kill(self) -> None:
        raise RuntimeError("a file has no process of its own: it goes with its monitors and gateways")

    start = quit = kill

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for name in ("queue.db", "store.db"):
                path = self.directory / name
                lock = stack.enter_context(contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=30)))
                lock.execute("BEGIN IMMEDIATE")
                stack.callback(lock.execute, "ROLLBACK")
            yield

    def destroy(self) -> None:
        """The directory goes with the row."""


ENGINES = {one.name: one for one in (PostgresEngine, SQLiteEngine, RedisEngine)}


@contextlib.contextmanager
def _temporary(directory: Path) -> Iterator[None]:
    """Let the harness make its directories in ours."""
    before, tempfile.tempdir = tempfile.tempdir, str(directory)
    directory.chmod(0o755)  # PostgreSQL runs as another user
    try:
        yield
    finally:
        tempfile.tempdir = before


@contextlib.contextmanager
def small_disk(path: Path, megabytes: int) -> Iterator[Path]:
    """A file system of that size; needs root."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def fill(path: Path) -> None:
    """Use up the space there is."""
    with contextlib.suppress(OSError), (path / FILLER).open("ab", buffering=0) as filler:
        for size in (65536, 512):
            with contextlib.suppress(OSError):
                while filler.write(b"\0" * size):
                    pass
