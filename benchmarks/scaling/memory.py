"""The memory of one monitors process while it scores exchanges that never recur, without a judge.

    python benchmarks/scaling/memory.py [--exchanges 220000] [--rate 200] [--before PATH]

The exchanges are those of benchmarks/fleet/soak.py: passages, questions and answers with numbers that were never there
before, captured by the gateway's code and put into a SQLite queue at an even rate. `--before` is another checkout of
the project, whose monitors run at the same time over a queue of their own. Printed is the resident memory of each
process, in MiB, after every 10,000 exchanges were scored.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks" / "gateway")]

from machine import free_port  # noqa: E402

from gateway.capture import result  # noqa: E402
from gateway.capture.factory import capture_of  # noqa: E402
from gateway.config import Capture as Settings  # noqa: E402
from gaugeway.exchange import Recording  # noqa: E402
from gaugeway.records import Sample  # noqa: E402
from gaugeway.storage.queues import Queue, from_url  # noqa: E402
from tests.support.scenario import Script, completion  # noqa: E402
from tests.support.traffic import request_of, trace_of  # noqa: E402

CONFIG = """
[monitors]
port = {port}
join_window_s = 0

[queue]
url = "sqlite:///{directory}/queue.db"
target_age_s = inf

[store]
url = "sqlite:///{directory}/store.db"
"""
BATCH, MOST_WAITING, LEASE_S, ATTEMPTS, STEP = 100, 1_500, 120.0, 3, 10_000


class Traffic:
    """Makes the samples of the soak's exchanges."""

    def __init__(self) -> None:
        self._capture = capture_of(Settings(), "key", lambda _: None)
        self._model = Script()
        self._model.means["shop"] = 0.95

    def samples(self, first: int) -> list[Sample]:
        """Return those of a batch, from an exchange's number on."""
        made = [(number, self._sample(number)) for number in range(first, first + BATCH)]
        return [replace(one, app="shop", trace_id=trace_of(number)) for number, one in made if one is not None]

    def _sample(self, number: int) -> Sample | None:
        request = request_of(number).partition(b"\r\n\r\n")[2]
        asked = json.loads(request)
        exchange = Recording(
            id=f"{number:032x}",
            started_at=time.time(),
            method="POST",
            path="/v1/chat/completions",
            route="chat",
            request_headers=[(b"content-type", b"application/json")],
            request_body=request,
            status=200,
            response_headers=[(b"content-type", b"application/json")],
            chunks=[json.dumps(completion(asked, self._model.answer(asked))).encode()],
            duration_s=0.01,
        )
        return result.capture(self._capture, exchange).sample


class Monitors:
    """A process of a checkout, its queue, and its memory after so many exchanges."""

    def __init__(self, tree: Path, directory: Path) -> None:
        config = directory / "gaugeway.toml"
        config.write_text(CONFIG.format(port=free_port(), directory=directory))
        self.queue: Queue = from_url(f"sqlite:///{directory}/queue.db", LEASE_S, ATTEMPTS)
        self.seen: list[float] = []
        self._log = directory / "log"
        command = [sys.executable, "-m", "monitors", "--config", str(config), "--data-dir", str(directory)]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(command, cwd=tree, stdout=log, stderr=log)

    async def look(self, put: int) -> int:
        """Note the memory when a step is over; return how many exchanges wait."""
        if self._process.poll() is not None:
            raise RuntimeError(self._log.read_text())
        depth = await self.queue.depth()
        waiting = depth.ready + depth.leased
        if put - waiting >= (len(self.seen) + 1) * STEP:
            self.seen.append(self._resident_mib())
        return waiting

    def _resident_mib(self) -> float:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))) / 1024

    def stop(self) -> None:
        """Stop the process."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait()


async def run(count: int, rate: float, every: Sequence[Monitors]) -> None:
    """Put exchanges into all queues, never more than wait at most, until all are scored."""
    traffic, began, put = Traffic(), time.monotonic(), 0
    while put < count or any(len(one.seen) < count // STEP for one in every):
        waiting = [await one.look(put) for one in every]
        if put < count and max(waiting) < MOST_WAITING and time.monotonic() >= began + put / rate:
            samples = traffic.samples(put)
            for one in every:
                await one.queue.put(samples)
            put += BATCH
        else:
            await asyncio.sleep(0.05)
    for one in every:
        await one.queue.aclose()


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exchanges", type=int, default=220_000)
    parser.add_argument("--rate", type=float, default=200.0, help="exchanges a second")
    parser.add_argument("--before", type=Path, help="another checkout of the project")
    arguments = parser.parse_args()
    trees = ([arguments.before.resolve()] if arguments.before else []) + [ROOT]
    with contextlib.ExitStack() as stack:
        every = []
        for tree in trees:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="gaugeway-memory-"))
            every.append(Monitors(tree, Path(directory)))
            stack.callback(every[-1].stop)
        asyncio.run(run(arguments.exchanges, arguments.rate, every))
        print("| exchanges | " + " | ".join(["before", "now"][-len(every) :]) + " |\n|--:|" + "--:|" * len(every))
        for step, row in enumerate(zip(*(one.seen for one in every), strict=True), 1):
            print(f"| {step * STEP:,} | " + " | ".join(f"{mib:.1f}" for mib in row) + " |")


if __name__ == "__main__":
    main()
