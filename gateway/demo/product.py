"""Runs the product as a child process: configuration, start, API client, shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import DEVNULL, Process
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from gateway.demo import servers
from monitors.signals import SIGNALS

_STOP_S = 15.0
_OK = 200

_CONFIG = """\
[gateway]
port = {gateway}
admin_port = {gateway_admin}
drain_s = 2

[monitors]
port = {monitors}
window_s = {window_s}

[[upstreams]]
name = "scripted"
base_url = "{model_url}"

[judge]
base_url = "{model_url}"
api_key = "demo"
model = "judge-1"
concurrency = 8

[metrics.faithfulness]
rate = 1.0

[metrics.answer_relevancy]
rate = 1.0
method = "statements"

[metrics.context_relevancy]
rate = 1.0

[metrics.hallucination]
rate = 1.0

[alerts]
bucket_s = 1
watermark_s = 3
default_rules = false

[[alerts.rules]]
metric = "faithfulness"
slo = {slo}
severity = "page"

[[notifiers]]
kind = "webhook"
url = "{webhook_url}"
"""
WINDOW_S = 30
"""Window of the means shown: in a one-hour window a drop of half a minute would hardly be visible."""
SLO = 0.8


class ProductError(Exception):
    """The product did not start, or exited unexpectedly."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The three ports of `gaugeway serve`."""

    gateway: int
    gateway_admin: int
    monitors: int

    @classmethod
    def free(cls, gateway: int | None = None) -> Ports:
        """Take free ports, and the given one for traffic. Raises ProductError when somebody else has it."""
        if gateway is not None and not servers.is_free(gateway):
            raise ProductError(f"port {gateway} is in use")
        first, second, third = servers.free_ports(3)
        return cls(gateway or first, second, third)


class Product:
    """`gaugeway serve` with the demo's configuration, in a temporary directory."""

    def __init__(self, directory: Path, ports: Ports, *, model_url: str, webhook_url: str, start_s: float) -> None:
        self._start_s = start_s
        self.base_url = f"http://127.0.0.1:{ports.gateway}/v1"
        self.gateway_admin = f"http://127.0.0.1:{ports.gateway_admin}"
        self.monitors = f"http://127.0.0.1:{ports.monitors}"
        self._readyz = f"http://127.0.0.1:{ports.gateway}/readyz"
        self._log = directory / "gaugeway.log"
        self._config = directory / "gaugeway.toml"
        self._data = directory / "data"
        text = _CONFIG.format(
            gateway=ports.gateway,
            gateway_admin=ports.gateway_admin,
            monitors=ports.monitors,
            window_s=WINDOW_S,
            slo=SLO,
            model_url=model_url,
            webhook_url=webhook_url,
        )
        self._config.write_text(text, "utf-8")
        self._process: Process | None = None
        self._client = httpx.AsyncClient(trust_env=False, timeout=5.0)

    async def start(self) -> None:
        """Start it and wait until both planes answer. Raises ProductError."""
        command = ["serve", "--config", str(self._config), "--data-dir", str(self._data)]
        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "gateway.cli", *command),
                stdin=DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is ours to handle: it ends the traffic first
            )
        try:
            async with asyncio.timeout(self._start_s):
                for url in (self._readyz, f"{self.monitors}/api/status"):
                    while not await self._answers(url):
                        self.check()
                        await asyncio.sleep(0.1)
        except TimeoutError as error:
            raise ProductError(f"gaugeway was not ready after {self._start_s:.0f} s") from error

    def check(self) -> None:
        """Raise ProductError when the process has exited."""
        if self._process is not None and self._process.returncode is not None:
            raise ProductError(f"gaugeway ended with exit code {self._process.returncode}")

    async def metrics(self) -> list[dict[str, Any]]:
        """Return the current estimates of the metrics, without signals; [] while the monitors do not answer."""
        rows = await self._json("/api/metrics")
        found = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        return [row for row in found if row.get("metric") not in SIGNALS]

    async def exchange(self, exchange_id: str) -> dict[str, Any] | None:
        """Return one exchange with its evaluations, or None."""
        found = await self._json(f"/api/exchanges/{exchange_id}")
        return found if isinstance(found, dict) and "sample" in found else None

    def log_tail(self, lines: int = 15) -> list[str]:
        """Return the last lines of the log."""
        text = self._log.read_text("utf-8", "replace") if self._log.exists() else ""
        return text.splitlines()[-lines:]

    async def stop(self) -> None:
        """Stop it with SIGTERM, then SIGKILL. The planes exit with their supervisor."""
        await self._client.aclose()
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(_STOP_S):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _answers(self, url: str) -> bool:
        try:
            return (await self._client.get(url)).status_code == _OK
        except httpx.HTTPError:
            return False

    async def _json(self, path: str) -> Any:
        try:
            response = await self._client.get(self.monitors + path)
            return response.json() if response.status_code == _OK else None
        except (httpx.HTTPError, ValueError):
            return None
