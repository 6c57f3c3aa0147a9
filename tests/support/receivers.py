"""Those who receive alerts: HTTP servers that look closely, and a real Alertmanager."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec

from gaugeway.demo.servers import free_ports
from gaugeway.records import Alert, Finding
from tests.support.product import needs
from tests.support.running import header_lines, read_request, tcp_server


class Request:
    """One request as it arrived."""

    def __init__(self, head: bytes, body: bytes) -> None:
        self.line = head.split(b"\r\n")[0].decode()
        self.headers = header_lines(head)
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Answer = tuple[int, dict[str, Any]]


@contextlib.asynccontextmanager
async def receiver(
    answer: Callable[[Request], Answer] = lambda _: (200, {}), **headers: str
) -> AsyncIterator[tuple[str, list[Request]]]:
    """A server of HTTP on loopback that answers as `answer` says; yields its origin and what it received."""
    received: list[Request] = []

    async def serve(reader: Any, writer: Any) -> None:
        request = Request(*await read_request(reader))
        received.append(request)
        status, said = answer(request)
        body = json.dumps(said).encode()
        more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        head = f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\nconnection: close\r\n{more}\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    async with tcp_server(serve) as port:
        yield f"http://127.0.0.1:{port}", received


def strict(kind: Any, good: Answer, bad: Callable[[str], Answer]) -> Callable[[Request], Answer]:
    """Answers `good` to a body that is exactly of `kind`, and `bad` with the reason to any other."""

    def answer(request: Request) -> Answer:
        try:
            msgspec.json.decode(request.body, type=kind)
        except msgspec.DecodeError as error:
            return bad(str(error))
        return good

    return answer


class Alertmanager:
    """Prometheus Alertmanager in a process of its own."""

    def __init__(self, directory: Path, *, prefix: str = "") -> None:
        self.binary = needs("prometheus-alertmanager")
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}{prefix}"
        config = directory / f"alertmanager-{port}.yml"
        config.write_text("route: {receiver: none}\nreceivers: [{name: none}]\n")
        arguments = [f"--config.file={config}", f"--storage.path={directory / str(port)}"]
        arguments += [f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="]
        arguments += [f"--web.route-prefix={prefix}"] if prefix else []
        with (directory / f"alertmanager-{port}.log").open("wb") as log:
            self.process = subprocess.Popen([self.binary, *arguments], stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while not self._ready():
            assert time.monotonic() < deadline, "alertmanager does not start"
            time.sleep(0.05)

    def _ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/-/ready", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def alerts(self) -> list[dict[str, Any]]:
        """What fires, as its API says."""
        return httpx.get(f"{self.url}/api/v2/alerts", timeout=5).json()

    def amtool(self) -> list[dict[str, Any]]:
        """What fires, as its own command says."""
        command = [needs("amtool"), "alert", "query", f"--alertmanager.url={self.url}", "-o", "json"]
        return json.loads(subprocess.run(command, check=True, capture_output=True).stdout or b"[]")

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(10)


@contextlib.contextmanager
def alertmanager(directory: Path, **options: Any) -> Iterator[Alertmanager]:
    """A running Alertmanager."""
    running = Alertmanager(directory, **options)
    try:
        yield running
    finally:
        running.stop()


def alert(state: str = "firing", **changes: Any) -> Alert:
    """An alert with everything in it that notifiers show."""
    since = changes.pop("since", 1_760_000_100.0)
    return Alert(
        **{
            "fingerprint": "0123456789abcdef",
            "rule": "answers",
            "metric": "faithfulness",
            "app": "shop",
            "severity": "page",
            "state": state,
            "since": since,
            "finding": Finding(evidence_log10=0.25, baseline=0.85, onset=since - 60.0, n=120, estimate=0.62),
            "ended_at": since + 3600.0 if state == "resolved" else None,
            "mean_before": 0.91,
            "mean_since": 0.62,
            "ci": (0.55, 0.69),
            "likely_cause": "retrieval",
            "worst_exchanges": ("x1", "x2"),
            **changes,
        }
    )


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    """No field but these."""
