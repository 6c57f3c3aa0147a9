"""A real ClickHouse: chdb, the engine as a library, behind its HTTP interface in a process and environment of its own.

It is hundreds of MB, so it is no part of the development environment: `python benchmarks/clickhouse/installs.py`.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from itertools import count
from pathlib import Path

import pytest

from gaugeway.demo.servers import free_ports

HERE = Path(__file__).resolve().parents[2] / "benchmarks/clickhouse"
HOME = HERE / ".peers/chdb"
_NUMBERS = count(1)
_START_S = 60


class ClickHouse:
    """An engine in a temporary directory."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="gaugeway-ch-"))
        self.port = free_ports(1)[0]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and wait until it answers."""
        command = [HOME / "bin/python", HERE / "server.py", str(self.port), self.directory / "data"]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + _START_S
        while True:
            try:
                self.ask("SELECT 1")
                return
            except urllib.error.URLError:
                assert time.monotonic() < deadline, (self.directory / "log").read_text()
                time.sleep(0.1)

    def stop(self) -> None:
        """Kill it: what it has answered for is on disk."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None

    def cpu_s(self) -> float:
        """How much processor time it has taken since its start."""
        assert self._process is not None
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def destroy(self) -> None:
        """Stop and leave nothing behind."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def database(self) -> str:
        """Make a fresh database and return its URL."""
        name = f"test_{next(_NUMBERS)}"
        self.ask(f"CREATE DATABASE {name}")
        return f"clickhouse://gaugeway:secret@127.0.0.1:{self.port}/{name}?linger_ms=1"

    def ask(self, statement: str, database: str = "default") -> list[list[str]]:
        """Run one statement and return its rows, as text."""
        where = urllib.parse.urlencode({"database": database})
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/?{where}", data=statement.encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            return [line.split("\t") for line in answer.read().decode().splitlines()]


@functools.cache
def clickhouse() -> ClickHouse:
    """The server of this run, started by the first who asks.

    Skips where it is not installed, also where CI promises engines: it comes with `make peers` only.
    """
    if not (HOME / "installed").is_file():
        pytest.skip("chdb comes with `make peers`: run `python benchmarks/clickhouse/installs.py`")
    pytest.importorskip("clickhouse_connect", reason="needs the extra `clickhouse`")
    server = ClickHouse()
    atexit.register(server.destroy)
    server.start()
    return server
