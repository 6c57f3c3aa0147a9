"""How fast one monitors process empties a queue without a judge, and what an exchange costs it.

    python benchmarks/scaling/drain.py [--exchanges 2000] [--before PATH] [--rounds 3] [--judged] [--profile FILE]
        [--kilobytes 8] [--apps 1] [--workers 1] [--engine sqlite] [--store FILE] [--signals]

Samples are made by the gateway's capture from recordings with four passages, 8 KB in all, from a pool of 200 and an
answer of 300 words (those of benchmarks/capture/sample_cost.py), and wait in a SQLite queue; then `python -m monitors`
starts. `--kilobytes` (1, 8 or a multiple of 8) is the size of the passages, `--apps` among how many apps the exchanges
are spread, `--workers` how many processes score, `--engine` where queue and store are: `sqlite`, `postgres` (one
database), `redis` (the queue; the store in PostgreSQL) or `clickhouse` (the store; the queue in Redis; needs
benchmarks/clickhouse/installs.py), whose servers this starts and whose CPU is not counted. Printed are exchanges a
second and milliseconds of CPU per exchange, all threads of the monitors, between a tenth and nine tenths of them.
`--store` is a filled SQLite store (see benchmarks/millions), which is used as it is and grows. `--judged` adds four
judged metrics, fused, with a judge that takes no time. `--before` is another checkout of the project, run in the same
way, interleaved. With `--signals` each is run without signals, too: the difference is what they cost. `--profile`
writes the profile of one run to a file.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TREE = Path(sys.argv[sys.argv.index("--tree") + 1]) if "--tree" in sys.argv else ROOT
sys.path[:0] = [str(TREE), str(ROOT / "benchmarks" / "capture"), str(ROOT / "benchmarks" / "gateway")]

from machine import cpu_ns, free_port, tree  # noqa: E402
from sample_cost import recordings  # noqa: E402

from gateway.capture import result  # noqa: E402 - of the tree that is measured
from gateway.capture.factory import capture_of  # noqa: E402
from gateway.config import Capture as Settings  # noqa: E402
from gaugeway.signals import SIGNALS  # noqa: E402
from gaugeway.storage.queues import from_url  # noqa: E402

CONFIG = """
[monitors]
port = {port}
{workers}
[queue]
url = "{queue}"
target_age_s = inf

[store]
url = "{store}"
"""
JUDGED = """
[judge]
base_url = "{url}"
model = "judge-1"
cache = "off"
concurrency = 32

[metrics.faithfulness]
rate = 1.0

[metrics.answer_relevancy]
rate = 1.0

[metrics.context_relevancy]
rate = 1.0

[metrics.hallucination]
rate = 1.0
"""
NO_SIGNALS = f"""
[signals]
off = {json.dumps(list(SIGNALS))}
"""
BATCH = 100
LEASE_S, ATTEMPTS = 120.0, 3
USUAL_KB = 8


async def fill(url: str, count: int, kilobytes: int, apps: int) -> None:
    """Put samples into a queue."""
    capture = capture_of(Settings(), "key", lambda _: None)
    queue = from_url(url, LEASE_S, ATTEMPTS)
    made = recordings("known", count)
    for start in range(0, count, BATCH):
        some = [result.capture(capture, one).sample for one in made[start : start + BATCH]]
        now = time.time()  # those of the recordings are beyond the retention
        found = [
            replace(
                one,
                started_at=now,
                app=f"app-{number % apps}",
                question=f"A refund: {one.question}",  # the scripted judge knows refunds
                contexts=tuple(replace(each, text=sized(each.text, kilobytes)) for each in one.contexts),
            )
            for number, one in enumerate(filter(None, some), start)
        ]
        await queue.put(found)
    await queue.aclose()


def sized(text: str, kilobytes: int) -> str:
    """A passage as long as one of four should be; the longer ones are its words in other orders."""
    if kilobytes < USUAL_KB:
        return text[: kilobytes * 1024 // 4]
    draw, words = random.Random(text), text.split()
    return " ".join([text, *(" ".join(draw.sample(words, len(words))) for _ in range(kilobytes // USUAL_KB - 1))])


class Left:
    """How many samples a queue holds, asked over one connection."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._queue = from_url(url, LEASE_S, ATTEMPTS)

    def __call__(self) -> int:
        depth = self._runner.run(self._queue.depth())
        return depth.ready + depth.leased

    def close(self) -> None:
        """Close the connection."""
        self._runner.run(self._queue.aclose())
        self._runner.close()


@contextlib.contextmanager
def engines(name: str, directory: Path) -> Iterator[tuple[str, str]]:
    """URLs of queue and store; servers are those of the tests."""
    if name == "sqlite":
        yield f"sqlite:///{directory}/queue.db", f"sqlite:///{directory}/store.db"
        return
    from tests.support.clickhouse import ClickHouse  # noqa: PLC0415 - only where a server is wanted
    from tests.support.postgres import own_server  # noqa: PLC0415
    from tests.support.redis import own_redis  # noqa: PLC0415

    with contextlib.ExitStack() as stack:
        if name == "clickhouse":
            server: Any = ClickHouse()
            server.start()
        else:
            server = own_server()
        stack.callback(server.destroy)
        queue = store = server.database()
        if name != "postgres":
            redis = own_redis()
            stack.callback(redis.destroy)
            queue = redis.url()
        yield queue, store


@contextlib.contextmanager
def judge() -> Iterator[str]:
    """The scripted judge of benchmarks/fleet, in a process of its own."""
    port = free_port()
    command = [sys.executable, str(ROOT / "benchmarks" / "fleet" / "upstream.py"), str(port)]
    with subprocess.Popen(command, cwd=ROOT) as process:
        time.sleep(2.0)
        yield f"http://127.0.0.1:{port}/judge/v1"
        process.terminate()


def measure(
    count: int,
    *,
    judged: bool,
    profile: str | None,
    kilobytes: int,
    apps: int,
    workers: int,
    engine: str,
    filled: Path | None,
    without_signals: bool,
) -> dict[str, float]:
    """Empty one queue."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gaugeway-drain-")))
        several = f"workers = {workers}\n" if workers > 1 else ""  # an older tree does not know the key
        if filled:
            (directory / "store.db").symlink_to(filled)
        queue, store = stack.enter_context(engines(engine, directory))
        config = CONFIG.format(port=free_port(), queue=queue, store=store, workers=several)
        config += NO_SIGNALS if without_signals else ""
        if judged:
            config += JUDGED.format(url=stack.enter_context(judge()))
        (directory / "gaugeway.toml").write_text(config)
        asyncio.run(fill(queue, count, kilobytes, apps))
        left = stack.enter_context(contextlib.closing(Left(queue)))
        total = left()
        command = [sys.executable, *(["-m", "cProfile", "-o", profile] if profile else []), "-m", "monitors"]
        command += ["--config", str(directory / "gaugeway.toml"), "--data-dir", str(directory)]
        log = stack.enter_context((directory / "log").open("w"))
        process = subprocess.Popen(command, cwd=TREE, stderr=log, stdout=log)
        stack.callback(process.wait)
        stack.callback(process.send_signal, signal.SIGINT)
        marks = []
        for share in (0.9, 0.1):
            while (now := left()) > total * share:
                time.sleep(0.02)
                if process.poll() is not None:
                    raise RuntimeError((directory / "log").read_text())
            marks.append((time.monotonic(), cpu_ns(tree(process.pid)), now))
        (began, cpu, first), (ended, cpu_after, last) = marks
        done = first - last
        return {"per_s": done / (ended - began), "ms": (cpu_after - cpu) / 1e6 / done}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exchanges", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", type=Path, help="another checkout of the project")
    parser.add_argument("--judged", action="store_true")
    parser.add_argument("--kilobytes", type=int, default=USUAL_KB)
    parser.add_argument("--apps", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--engine", choices=("sqlite", "postgres", "redis", "clickhouse"), default="sqlite")
    parser.add_argument("--store", type=Path, help="a filled SQLite store")
    parser.add_argument("--signals", action="store_true", help="run without signals, too")
    parser.add_argument("--without-signals", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--profile", help="file for the profile of one run of this tree")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--tree", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one or arguments.profile:
        size = {"kilobytes": arguments.kilobytes, "apps": arguments.apps, "workers": arguments.workers}
        size |= {"engine": arguments.engine, "without_signals": arguments.without_signals, "filled": arguments.store}
        found = measure(arguments.exchanges, judged=arguments.judged, profile=arguments.profile, **size)
        print(json.dumps(found))
        return
    trees = {"now": ROOT} | ({"before": arguments.before.resolve()} if arguments.before else {})
    ways = {name: (where, False) for name, where in trees.items()}
    if arguments.signals:
        ways |= {f"{name}, without signals": (where, True) for name, where in trees.items()}
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for _ in range(arguments.rounds):
        for name, (where, without) in ways.items():
            command = [sys.executable, __file__, "--one", "--exchanges", str(arguments.exchanges), "--tree", str(where)]
            command += ["--kilobytes", str(arguments.kilobytes), "--apps", str(arguments.apps)]
            command += ["--workers", str(arguments.workers), "--engine", arguments.engine]
            command += ["--judged"] if arguments.judged else []
            command += ["--store", str(arguments.store.resolve())] if arguments.store else []
            command += ["--without-signals"] if without else []
            done = subprocess.run(command, cwd=where, check=True, stdout=subprocess.PIPE)
            taken[name].append(json.loads(done.stdout))
    print(
        f"{platform.python_version()}, {platform.processor() or platform.machine()}, {os.cpu_count()} cores; ", end=""
    )
    print(f"medians of {arguments.rounds} rounds\n\n| tree | exchanges a second | CPU ms per exchange |\n|---|--:|--:|")
    for name, some in taken.items():
        per_s, ms = (statistics.median(one[key] for one in some) for key in ("per_s", "ms"))
        print(f"| {name} | {per_s:.0f} | {ms:.2f} |")


if __name__ == "__main__":
    main()
