"""The product as users run it: `gaugeway serve` in processes of its own, with a configuration file."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from gaugeway.demo.servers import free_ports
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from tests.support.clock import Patience
from tests.support.processes import arguments, children


class Product:
    """A running `gaugeway serve` (or one plane of it), of the code in `root` where that is not this checkout.

    `descriptors` are the soft and the hard limit of file descriptors it is started with.
    """

    def __init__(
        self,
        directory: Path,
        config: str,
        *,
        command: str = "serve",
        root: Path | None = None,
        descriptors: tuple[int, int] | None = None,
    ) -> None:
        self.port, self.admin_port, self.monitors_port = free_ports(3)
        self.base_url = f"http://127.0.0.1:{self.port}/v1"
        self.admin = f"http://127.0.0.1:{self.admin_port}"
        self.monitors = f"http://127.0.0.1:{self.monitors_port}"
        self.data = directory / "data"
        self.log = directory / f"{command}.log"
        self._config = directory / "gaugeway.toml"
        self._config.write_text(config, "utf-8")
        self._command = command
        self._root = root
        self._descriptors = descriptors
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, planes: Sequence[str] = ("gateway", "monitors")) -> None:
        """Start and wait until everything that belongs to the command answers, of these planes."""
        arguments = ["--config", self._config, "--data-dir", self.data, "--port", self.port]
        arguments += ["--admin-port", self.admin_port, "--monitors-port", self.monitors_port]
        is_older = self._root is not None and not (self._root / "gaugeway").exists()
        program = "gateway.cli" if is_older else "gaugeway"  # its name before there was a release
        limited = []
        if self._descriptors is not None:
            soft, hard = self._descriptors
            limited = ["sh", "-c", f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$@"', "sh"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*limited, sys.executable, "-m", program, self._command, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self._root,
            )
        urls = {"gateway": [f"http://127.0.0.1:{self.port}/readyz"], "monitors": [f"{self.monitors}/healthz"]}
        for url in (url for plane in planes if self._command in (plane, "serve") for url in urls[plane]):
            self.until(lambda url=url: _answers(url), 60, what=f"{url} answers")

    def configure(self, text: str) -> None:
        """Rewrite the configuration file; the product reads it at its next start or reload."""
        self._config.write_text(text, "utf-8")

    def is_running(self) -> bool:
        """Whether the command was started and has not exited."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id of the command itself."""
        assert self._process is not None
        return self._process.pid

    def pid_of(self, plane: str) -> int:
        """The process id of a plane (of its first process)."""
        return self.pids_of(plane)[0]

    def pids_of(self, plane: str) -> list[int]:
        """The process ids of a plane, found among the supervisor's children."""
        assert self._process is not None
        among = children(self._process.pid)
        found = [child for child in among if f"gaugeway: {plane}".encode() in arguments(child)]
        assert found, f"no {plane} process among {among}"
        return found

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command's own process."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self, timeout_s: float = 30) -> int:
        """Wait for the command to end; its exit code."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    def stop(self) -> int:
        """SIGTERM, and wait."""
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.terminate()
        try:
            return self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise

    def get(self, path: str) -> Any:
        """JSON of the monitors' API."""
        response = httpx.get(self.monitors + path, timeout=60)
        assert response.status_code == 200, response.text
        return response.json()

    def value(self, plane: str, name: str, **labels: str) -> float:
        """The sum of a series over all label sets that carry `labels`; 0 when there is none."""
        text = httpx.get(f"{plane}/metrics", timeout=60).text
        total = 0.0
        for line in text.splitlines():
            series, _, value = line.rpartition(" ")
            if series.split("{")[0] == name and all(f'{key}="{wanted}"' in series for key, wanted in labels.items()):
                total += float(value)
        return total

    def saved_states(self) -> Mapping[str, bytes]:
        """What the state store in its data directory holds."""

        async def load() -> Mapping[str, bytes]:
            store = SQLiteStore(str(self.data / "store.db"))
            try:
                return await store.load()
            finally:
                await store.aclose()

        return asyncio.run(load())

    def until(self, condition: Callable[[], bool], within_s: float, *, what: str) -> None:
        """Wait until `condition` holds, or fail saying `what` did not, with the log; longer on a busy machine."""
        patience, pause_s = Patience(within_s), 0.05
        while True:
            asked_at = time.monotonic()
            if condition():
                return
            if self._process is not None and self._process.poll() is not None:
                raise AssertionError(f"it ended with {self._process.returncode}\n{self.log.read_text()[-4000:]}")
            if patience.is_over():
                raise AssertionError(f"not within {within_s} s: {what}\n{self.log.read_text()[-4000:]}")
            # Most conditions read all of the product's metrics: that is a part of the time only.
            time.sleep(max(pause_s, min(3 * (time.monotonic() - asked_at), 1.0)))
            pause_s = min(1.2 * pause_s, 0.4)


@contextlib.contextmanager
def product(
    directory: Path, config: str, *, command: str = "serve", descriptors: tuple[int, int] | None = None
) -> Iterator[Product]:
    """Run the product; afterwards it is stopped whatever happened."""
    running = Product(directory, config, command=command, descriptors=descriptors)
    try:
        running.start()
        yield running
    finally:
        running.stop()


class Webhook:
    """A real HTTP receiver of alerts."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        received = self.bodies

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                received.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop receiving."""
        self._server.shutdown()
        self._server.server_close()


def needs(binary: str) -> str:
    """The path of a real engine's binary; without it the test is skipped, and fails where CI promises it."""
    import shutil

    import pytest

    found = shutil.which(binary)
    if found is None:
        if os.environ.get("CI") == "true":  # noqa: TID251 - a test's own switch
            pytest.fail(f"{binary} is not installed")
        pytest.skip(f"{binary} is not installed")
    return found


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).status_code == 200
    except httpx.HTTPError:
        return False
