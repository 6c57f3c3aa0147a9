"""The processes of a run: each plane by itself, so that either can be killed, stopped and started alone."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

from gaugeway.demo.servers import free_ports

ROOT = Path(__file__).parents[2]
TOKEN = "stand"


class Child:
    """A command that is started again and again; what it says goes to one file."""

    def __init__(
        self,
        name: str,
        *,
        words: list[str],
        log: Path,
        ready: Callable[[], bool],
        client: httpx.Client,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._words = words
        self._ready = ready
        self._env = env
        self.client = client
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, within_s: float = 180.0) -> None:
        """Start it, and wait until it answers."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._words,
                cwd=ROOT,
                env={**os.environ, **(self._env or {})},  # noqa: TID251 - children get ours and theirs
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + within_s
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} does not start:\n{self.log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.05)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def ended(self) -> int | None:
        """Its exit code, None while it runs."""
        return self._process.poll() if self._process is not None else 0

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> tuple[float, float]:
        """SIGKILL, and wait for the end; returns when it was sent, and when the process was gone."""
        at = time.time()
        self.send(signal.SIGKILL)
        self._process.wait(30)
        return at, time.time()

    def close(self) -> None:
        """Stop it for good."""
        self.stop()
        self.client.close()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL for who does not hear."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def children(self, name: str) -> list[int]:
        """The children whose title names `name`."""
        found = []
        for child in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            with contextlib.suppress(OSError):
                if name.encode() in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(int(child))
        return found


class Replica(Child):
    """One plane."""

    def __init__(
        self,
        name: str,
        *,
        directory: Path,
        data: Path,
        address: str = "127.0.0.1",
        prefix: tuple[str, ...] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.plane = name.rstrip("0123456789")
        self.address = address
        self.port, self.admin_port = free_ports(2)
        self.config = directory / f"{name}.toml"
        admin = {"gateway": "--admin-port", "monitors": "--monitors-port"}[self.plane]
        words = [*prefix, sys.executable, "-m", "gaugeway", self.plane, "--config", str(self.config)]
        words += ["--data-dir", str(data), "--port", str(self.port), admin, str(self.admin_port)]
        base_url, headers = f"http://{address}:{self.admin_port}", {"authorization": f"Bearer {TOKEN}"}
        super().__init__(
            name,
            words=words,
            log=directory / f"{name}.log",
            ready=self.answers,
            client=httpx.Client(base_url=base_url, headers=headers, timeout=10),
            env=env,
        )

    def answers(self) -> bool:
        """Whether it is ready."""
        url = "/healthz" if self.plane == "monitors" else f"http://{self.address}:{self.port}/readyz"
        with contextlib.suppress(httpx.HTTPError):
            return self.client.get(url, timeout=2).status_code == 200
        return False

    def get(self, path: str) -> Any:
        """JSON of the monitors' API."""
        return self.client.get(path).raise_for_status().json()

    def counters(self) -> dict[str, float]:
        """Every series by its name with labels; nothing when it does not answer."""
        with contextlib.suppress(httpx.HTTPError):
            text = self.client.get("/metrics").text
            pairs = (line.rpartition(" ") for line in text.splitlines() if line and line[0] != "#")
            return {name: float(value) for name, _, value in pairs}
        return {}


def total(counters: Mapping[str, float], name: str, **labels: str) -> float:
    """The sum of a series over all label sets that carry `labels`."""
    return sum(
        value
        for series, value in counters.items()
        if series.split("{")[0] == name and all(f'{key}="{wanted}"' in series for key, wanted in labels.items())
    )


class ScriptedServer(Child):
    """`scripted.py`, and what it says."""

    def __init__(self, name: str, directory: Path) -> None:
        (self.port,) = free_ports(1)
        words = [sys.executable, str(Path(__file__).with_name("scripted.py")), str(self.port)]
        client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=10)
        super().__init__(name, words=words, log=directory / f"{name}.log", ready=self._answers, client=client)

    def _answers(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return self.client.get("/_told").status_code == 200
        return False

    def set(self, **settings: Any) -> None:
        self.client.post("/_set", json=settings).raise_for_status()

    def told(self) -> Any:
        return self.client.get("/_told").raise_for_status().json()
