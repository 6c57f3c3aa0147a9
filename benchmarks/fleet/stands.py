"""What stands around the fleet: model and judge in a process of their own, and engines whose sizes can be looked at."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gaugeway.demo.servers import free_ports, is_free
from tests.support.fleet import wait_until
from tests.support.postgres import Postgres, own_server
from tests.support.redis import RedisServer, own_redis

MIB = 2**20


@contextlib.contextmanager
def upstream(delay_s: float) -> Iterator[str]:
    """Run model and judge; yields their URL."""
    with process(Path(__file__).parent / "upstream.py", str(delay_s)) as url:
        yield url


@contextlib.contextmanager
def process(script: Path, *arguments: str) -> Iterator[str]:
    """Run a script that listens on the port it is given first; yields its URL."""
    (port,) = free_ports(1)
    running = subprocess.Popen([sys.executable, script, str(port), *arguments])
    try:
        wait_until(lambda: running.poll() is not None or not is_free(port), 20)
        yield f"http://127.0.0.1:{port}"
    finally:
        running.terminate()
        running.wait(10)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Queue and store: their URLs, their sizes in MiB, and how many rows a table of the store has."""

    queue: str
    store: str
    log_mib: Callable[[], float]
    store_mib: Callable[[], float]
    rows: Callable[[str], int]


@contextlib.contextmanager
def engines(kind: str, directory: Path) -> Iterator[Place]:
    """Empty engines: "sqlite", "postgres", or "redis" with PostgreSQL as the store."""
    if kind == "sqlite":
        yield _files(directory)
        return
    # The log may take what a checkpoint leaves for the next one, and no more than that.
    settings = {"fsync": "on", "shared_buffers": "128MB", "max_wal_size": "256MB", "min_wal_size": "64MB"}
    server = own_server(**settings, checkpoint_timeout="60s", max_connections="120")
    try:
        store = server.database()
        if kind == "postgres":
            yield _database(server, store, store, lambda: 0.0)
            return
        redis = own_redis(durable=True, options={"appendfsync": "everysec", "auto-aof-rewrite-min-size": "16mb"})
        try:
            yield _database(
                server, redis.url(), store, lambda: redis.ask("INFO", "persistence")["aof_current_size"] / MIB
            )
        finally:
            redis.destroy()
    finally:
        server.destroy()


def _files(directory: Path) -> Place:
    def rows(table: str) -> int:
        with contextlib.closing(
            sqlite3.connect(f"file:{directory}/store.db?mode=ro", uri=True, timeout=30)
        ) as open_one:
            return int(open_one.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    return Place(
        queue=f"sqlite:///{directory}/queue.db",
        store=f"sqlite:///{directory}/store.db",
        log_mib=lambda: _mib(directory, "*.db-wal"),
        store_mib=lambda: _mib(directory, "*.db"),
        rows=rows,
    )


def _database(server: Postgres, queue: str, store: str, more_log_mib: Callable[[], float]) -> Place:
    def number(statement: str) -> int:
        return int(str(server.ask(store, statement)[0][0]))

    return Place(
        queue=queue,
        store=store,
        log_mib=lambda: number("SELECT sum(size) FROM pg_ls_waldir()") / MIB + more_log_mib(),
        store_mib=lambda: number("SELECT pg_database_size(current_database())") / MIB,
        rows=lambda table: number(f"SELECT count(*) FROM {table}"),
    )


def _log_mib(redis: RedisServer) -> float:
    return redis.ask("INFO", "persistence")["aof_current_size"] / MIB


def _mib(directory: Path, pattern: str) -> float:
    total = 0
    for one in directory.glob(pattern):
        with contextlib.suppress(OSError):
            total += one.stat().st_size
    return total / MIB
