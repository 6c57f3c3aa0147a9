"""Runs the product as a child process: configuration, start, API client, shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import httpx
from msgspec import Struct
from prometheus_client.parser import text_string_to_metric_families

from gaugeway.demo import servers

_STOP_S = 15.0
_REQUEST_S = 30.0
_SAY_EVERY_S = 10.0
_OK = 200
_TAIL_LINES = 15

WINDOW_S = 120
"""Window of the page's means: in one hour a drop of half a minute would hardly be visible, and a slow machine takes a
minute for the 10 scores without which the mean of a longer window is shown, which is updated every 6 minutes."""
SLO = 0.8
_POINTS = 500
"""Evaluations read at once: those of 100 answers, several times what can be scored between two readings."""
_DIED = re.compile(r" ERROR gaugeway (.+); restarting in ")


class ProductError(Exception):
    """The product, or one of its processes, ended unexpectedly."""


class Ports(Struct, frozen=True):
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

    def __init__(self, directory: Path, ports: Ports, *, model_url: str, webhook_url: str) -> None:
        self.base_url = f"http://127.0.0.1:{ports.gateway}/v1"
        self.gateway_admin = f"http://127.0.0.1:{ports.gateway_admin}"
        self.monitors = f"http://127.0.0.1:{ports.monitors}"
        self._readyz = f"http://127.0.0.1:{ports.gateway}/readyz"
        self._log = directory / "gaugeway.log"
        self._config = directory / "gaugeway.toml"
        self._data = directory / "data"
        template = files("gaugeway.demo").joinpath("gaugeway.toml.template").read_text("utf-8")
        places = {"monitors": ports.monitors, "model_url": model_url, "webhook_url": webhook_url}
        places |= {"gateway": ports.gateway, "gateway_admin": ports.gateway_admin}
        self._config.write_text(template.format(window_s=WINDOW_S, slo=SLO, **places), "utf-8")
        self._process: Process | None = None
        self._client = httpx.AsyncClient(trust_env=False, timeout=_REQUEST_S)

    async def start(self, say: Callable[[str], None]) -> None:
        """Start it and wait until both planes answer, however long that takes. Raises ProductError if one dies.

        `say` gets a line now and then.
        """
        command = ["serve", "--config", str(self._config), "--data-dir", str(self._data)]
        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "gaugeway", *command),
                stdin=DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is ours to handle: it ends the traffic first
            )
        began = said = time.monotonic()
        for plane, url in (("gateway", self._readyz), ("monitors", f"{self.monitors}/api/status")):
            while not await self._answers(url):
                self.check()
                if time.monotonic() - said >= _SAY_EVERY_S:
                    said = time.monotonic()
                    say(f"waiting for the {plane} to start, {said - began:.0f} s so far ...")
                await asyncio.sleep(0.1)

    @property
    def pid(self) -> int:
        """The process id of `gaugeway serve`. Raises ProductError before its start."""
        if self._process is None:
            raise ProductError("gaugeway serve was not started")
        return self._process.pid

    def check(self) -> None:
        """Raise ProductError, which names the process, when one has ended."""
        if (died := next(filter(None, map(_DIED.search, self._log_lines())), None)) is not None:
            raise ProductError(died[1])
        if self._process is not None and self._process.returncode is not None:
            raise ProductError(f"gaugeway serve exited with code {self._process.returncode}")

    async def unscored(self, answered: int) -> int | None:
        """Return how many of the `answered` questions wait to be scored; None while a plane does not answer.

        They are those without an outcome in the gateway's counters and those in the queue.
        """
        outcomes = await self._get(f"{self.gateway_admin}/metrics")
        status = await self._json("/api/status")
        if outcomes is None or status is None:
            return None
        counted = sum(
            sample.value
            for family in text_string_to_metric_families(outcomes.text)
            for sample in family.samples
            if sample.name == "gaugeway_exchanges_total"
        )
        queue = status["queue"]
        return max(0, answered - int(counted)) + int(queue["ready"]) + int(queue["leased"])

    async def points(self) -> list[dict[str, Any]]:
        """Return the newest evaluations, without signals; [] while the monitors do not answer."""
        return await self._json(f"/api/exchanges?limit={_POINTS}") or []

    async def alert(self, metric: str) -> dict[str, Any] | None:
        """Return the alert about the metric that fires now, as the API describes it, or None."""
        alerts = await self._json("/api/alerts") or []
        return next((alert for alert in alerts if (alert["metric"], alert["state"]) == (metric, "firing")), None)

    async def detector_read(self, metric: str) -> float:
        """Return the Unix time up to which the rule on the metric has read scores; 0 without an answer."""
        rules = (await self._json("/api/status") or {}).get("rules", [])
        return max((float(rule["closed_until"] or 0.0) for rule in rules if rule["metric"] == metric), default=0.0)

    async def exchange(self, exchange_id: str) -> dict[str, Any] | None:
        """Return one exchange with its evaluations, or None."""
        found = await self._json(f"/api/exchanges/{exchange_id}")
        return found if isinstance(found, dict) and "sample" in found else None

    def log_tail(self) -> list[str]:
        """Return the last lines of the log."""
        return self._log_lines()[-_TAIL_LINES:]

    def _log_lines(self) -> list[str]:
        return self._log.read_text("utf-8", "replace").splitlines() if self._log.exists() else []

    async def stop(self) -> None:
        """Stop it with SIGTERM, then SIGKILL. The planes exit with their supervisor."""
        await self._client.aclose()
        if (process := self._process) is None or process.returncode is not None:
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
        return await self._get(url) is not None

    async def _get(self, url: str) -> httpx.Response | None:
        """Return a response with status 200, or None."""
        try:
            response = await self._client.get(url)
        except httpx.HTTPError:
            return None
        return response if response.status_code == _OK else None

    async def _json(self, path: str) -> Any:
        response = await self._get(self.monitors + path)
        return None if response is None else response.json()
