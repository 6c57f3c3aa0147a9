"""A real Redis: Debian's, started once for the whole run, with keys of their own for whoever asks."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from itertools import count
from pathlib import Path

import pytest
import redis

from gaugeway.demo.servers import free_ports

_NUMBERS = count(1)


class RedisServer:
    """An engine in a temporary directory; `durable`: it logs its writes; `cluster`: one node that has every slot."""

    def __init__(
        self,
        *,
        durable: bool = False,
        cluster: bool = False,
        options: dict[str, str] | None = None,
        tls: tuple[Path, Path, Path] | None = None,
    ) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="gaugeway-redis-"))
        self.port = free_ports(1)[0]
        self._cluster = cluster
        self._options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self._directory),
            "save": "",
            "appendonly": "yes" if durable else "no",
            "appendfsync": "no",  # only the process is ever killed, not the machine
        } | (options or {})
        self.tls_port = free_ports(1)[0] if tls else 0
        if tls:
            names = "tls-cert-file", "tls-key-file", "tls-ca-cert-file"
            self._options |= dict(zip(names, map(str, tls), strict=True))
            self._options |= {"tls-port": str(self.tls_port), "tls-auth-clients": "no"}
        if cluster:
            self._options |= {"cluster-enabled": "yes", "cluster-port": str(free_ports(1)[0])}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and wait until it answers."""
        binary = _binary()
        assert binary is not None
        words = [word for name, value in self._options.items() for word in (f"--{name}", value)]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen([binary, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while True:
            try:
                self.ask("PING")
                break
            except redis.exceptions.ConnectionError:
                assert time.monotonic() < deadline, (self._directory / "log").read_text()
                time.sleep(0.02)
        if self._cluster:
            self._take_all_slots(deadline)

    def _take_all_slots(self, deadline: float) -> None:
        with contextlib.suppress(redis.exceptions.ResponseError):  # they are taken already
            self.ask("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        while True:
            try:
                self.ask("GET", "x")
                return
            except redis.exceptions.RedisError:
                assert time.monotonic() < deadline
                time.sleep(0.02)

    def send(self, number: signal.Signals) -> None:
        """Freeze it, or let it go on."""
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it: the hard way, unless told otherwise."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(30)
            self._process = None

    def destroy(self) -> None:
        """Stop and leave nothing behind."""
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def url(self, **options: object) -> str:
        """A URL with keys of its own."""
        words = {"prefix": f"test-{next(_NUMBERS)}", **options}
        return f"redis://127.0.0.1:{self.port}/0?" + "&".join(f"{name}={value}" for name, value in words.items())

    def ask(self, *command: object) -> object:
        """Run one command."""
        with redis.Redis(port=self.port, socket_timeout=5) as client:
            return client.execute_command(*command)


@functools.cache
def _binary() -> str | None:
    return shutil.which("redis-server") or shutil.which("valkey-server")


def own_redis(**options: object) -> RedisServer:
    """A server for a test that changes or stops it; the caller destroys it. Skips or fails as `redis_server` does."""
    if _binary() is None:
        if os.environ.get("CI") == "true":  # noqa: TID251 - a test's own switch
            pytest.fail("Redis is not installed")
        pytest.skip("Redis is not installed")
    server = RedisServer(**options)
    server.start()
    return server


@functools.cache
def redis_server() -> RedisServer:
    """The server of this run, started by the first who asks. Skips where there is none; fails where CI promises it."""
    server = own_redis()
    atexit.register(server.destroy)
    return server
