"""A gateway process and an upstream process for a long run: started, looked at from outside, stopped."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[2]
PAGE = os.sysconf("SC_PAGE_SIZE")


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Stand:
    """Use as a context manager. The queue is emptied as monitors would empty it, so that the disk stays small."""

    def __init__(self, upstream: list[str], settings: str = "") -> None:
        self.port, self.admin_port, self.upstream_port = free_port(), free_port(), free_port()
        self._upstream_command = [sys.executable, *upstream, str(self.upstream_port)]
        self._settings = settings
        self._stopping = threading.Event()

    def __enter__(self) -> Self:
        self._scratch = tempfile.TemporaryDirectory(prefix="gaugeway-robustness-")
        scratch = Path(self._scratch.name)
        config = scratch / "gaugeway.toml"
        config.write_text(
            f"[gateway]\nport = {self.port}\nadmin_port = {self.admin_port}\n{self._settings}\n"
            f'[[upstreams]]\nbase_url = "http://127.0.0.1:{self.upstream_port}/v1"\n'
        )
        command = [sys.executable, "-m", "gateway", "--config", str(config), "--data-dir", str(scratch)]
        self.log = scratch / "gateway.log"
        self._upstream = subprocess.Popen(self._upstream_command, cwd=ROOT, stdout=subprocess.DEVNULL)
        with self.log.open("wb") as log:
            self.gateway = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        self._emptying = threading.Thread(target=self._empty, args=(scratch / "queue.db",), daemon=True)
        self._emptying.start()
        try:
            self._wait()
        except BaseException:  # Ctrl-C too: nothing started here may outlive the run
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for process in (self.gateway, self._upstream):
            process.terminate()
        for process in (self.gateway, self._upstream):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(15)
            process.kill()
            process.wait()
        self._emptying.join(5)
        self._scratch.cleanup()

    def _wait(self) -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.upstream_port), 1).close()
                self.get(self.port, "/readyz")
                return
            time.sleep(0.05)
        raise SystemExit("the gateway did not start:\n" + self.log.read_text())

    def _empty(self, queue: Path) -> None:
        while not self._stopping.wait(1):
            with contextlib.suppress(sqlite3.Error):
                database = sqlite3.connect(f"file:{queue}?mode=rw", uri=True, timeout=5)
                with contextlib.closing(database), database:
                    database.execute("DELETE FROM samples")

    @staticmethod
    def get(port: int, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
            return response.read().decode()

    def total(self, name: str, text: str | None = None) -> int:
        """The sum of a counter over all its series."""
        text = self.get(self.admin_port, "/metrics") if text is None else text
        return round(sum(float(value) for value in re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE)))

    def by(self, name: str, label: str) -> dict[str, int]:
        """A counter's sums by one label."""
        found: dict[str, int] = {}
        for labels, value in re.findall(
            rf"^{name}\{{(.*)\}} (\S+)$", self.get(self.admin_port, "/metrics"), re.MULTILINE
        ):
            key = re.search(rf'{label}="([^"]*)"', labels)[1]
            found[key] = found.get(key, 0) + round(float(value))
        return found

    def settled(self, name: str, expected: int, within_s: float = 30) -> int:
        """The counter, once it is what is expected or does not get there in time."""
        deadline = time.monotonic() + within_s
        while (value := self.total(name)) != expected and time.monotonic() < deadline:
            time.sleep(0.5)
        return value

    def rss_mib(self) -> float:
        return int(Path(f"/proc/{self.gateway.pid}/statm").read_text().split()[1]) * PAGE / 2**20

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.gateway.pid}/fd").iterdir()))

    def complaints(self) -> list[str]:
        """What the gateway logged, without the ordinary lines."""
        return [line for line in self.log.read_text(errors="replace").splitlines() if " INFO " not in line]
