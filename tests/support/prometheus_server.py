"""A real Prometheus in a process of its own, used once it is ready."""

import contextlib
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx

from gaugeway.demo.servers import free_ports
from tests.support.product import needs

READY_S = 60


@contextlib.contextmanager
def prometheus_server(root: Path, config: Path, flags: Sequence[str] = ()) -> Iterator[str]:
    """The URL of a server that has loaded `config`. Its data and its log, prometheus.log, are under `root`.

    Until its storage is open it answers queries with 503 and no JSON, so it is handed out only when /-/ready is 200.
    """
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = [needs("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={root / 'tsdb'}", *flags]
    log = root / "prometheus.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{port}"], stdin=subprocess.DEVNULL, stdout=stream, stderr=stream
        )
    try:
        deadline = time.monotonic() + READY_S
        while not _ready(url):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(20)


def _ready(url: str) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"{url}/-/ready", trust_env=False).status_code == 200
    return False
