"""Five million stored evaluations: what every page, every GET of the API and the command line take over them.

python benchmarks/millions/run.py --engine sqlite [--evaluations 5000000] [--rounds 30] [--only explore]

Fills a store with 30 days of traffic, starts the monitors on it, feeds them 20 samples a second, and asks everything in
turn. Writes results/millions-ENGINE.md. `--store` uses a copy of a file that was filled before, or that database.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import re
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.millions.asked import api, pages
from benchmarks.millions.fill import METRICS, fill_postgres, fill_sqlite
from benchmarks.millions.stand import Feed, Monitors, firing, monitors
from tests.support.postgres import own_server

RESULTS = Path(__file__).parent / "results"
PROMISE_MS, PROMISE_KB, PER_S, WINDOW_S = 300.0, 250.0, 20.0, 3600.0
COMMANDS = {
    "gaugeway labels (30 days)": ["labels"],
    "gaugeway compare (1 day, an app's metric)": [
        *["compare", "--by", "model", "--a", "chat-1", "--b", "chat-2", "--since", "24h"],
        *["--app", "search", "--metric", "faithfulness"],
    ],
}


class Asked(NamedTuple):
    """By name: milliseconds, those on a processor, what was searched in part only, and KB sent.

    The KB of a page include its scripts and style sheets, which a browser fetches once.
    """

    took: dict[str, list[float]]
    worked: dict[str, list[float]]
    partly: set[str]
    sent: dict[str, float]


@contextlib.contextmanager
def filled(engine: str, count: int, directory: Path, ready: str) -> Iterator[tuple[str, str, float]]:
    """A filled store; yields lines of configuration, the queue's URL, and how long filling took."""
    data, begin = directory / "data", time.perf_counter()
    data.mkdir()
    if engine == "sqlite":
        if ready:
            shutil.copyfile(ready, data / "store.db")
        else:
            asyncio.run(fill_sqlite(data / "store.db", count, time.time()))
        yield "", f"sqlite:///{data}/queue.db", time.perf_counter() - begin
        return
    if ready:
        yield f'[store]\nurl = "{ready}"\n[queue]\nurl = "{ready}"\n', ready, time.perf_counter() - begin
        return
    server = own_server(fsync="on", shared_buffers="512MB", maintenance_work_mem="256MB", max_wal_size="4GB")
    try:
        url = server.database()
        asyncio.run(fill_postgres(url, count, time.time()))
        yield f'[store]\nurl = "{url}"\n[queue]\nurl = "{url}"\n', url, time.perf_counter() - begin
    finally:
        server.destroy()


def ask(client: httpx.Client, path: str) -> tuple[float, httpx.Response]:
    """Milliseconds and the answer, compressed on the way."""
    begin = time.perf_counter()
    answer = client.get(path, headers={"accept": "text/html"} if "/api/" not in path else {})
    took = 1000 * (time.perf_counter() - begin)
    if answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
        raise SystemExit(f"{path}: {answer.status_code} {answer.text[:500]}")
    return took, answer


class Sizes:
    """KB on the wire, compressed: a response and the static files it links."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self._static: dict[str, int] = {}

    def of(self, answer: httpx.Response) -> float:
        """KB of a response with its static files."""
        linked = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', answer.text)) if "<html" in answer.text else set()
        for path in linked - self._static.keys():
            self._static[path] = self._client.get(path).num_bytes_downloaded
        return (answer.num_bytes_downloaded + sum(self._static[path] for path in linked)) / 1000


def on_cpu(pid: int) -> float:
    """Milliseconds for which all threads of a process have been on a processor, whatever else the machine did."""
    total = 0
    for one in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has just ended
            total += int((one / "schedstat").read_text().split()[0])
    return total / 1e6


def first_event(running: Monitors) -> float:
    """Milliseconds until the stream of news says something."""
    begin = time.perf_counter()
    with httpx.stream("GET", f"{running.monitors}/events", timeout=10) as answer:
        next(answer.iter_raw())
    return 1000 * (time.perf_counter() - begin)


def rounds(running: Monitors, count: int, only: str, minutes: float) -> Asked:
    """Ask everything so many times, in turn, or for so long."""
    deadline = time.monotonic() + 60 * minutes
    alert = firing(running, 300)
    exchange = alert["worst_exchanges"][0]
    asked = {**pages(exchange, alert["fingerprint"]), **api(exchange)}
    asked = {name: path for name, path in asked.items() if re.search(only, name)}
    took: dict[str, list[float]] = {name: [] for name in asked}
    took["/events (first byte)"] = []
    partly: set[str] = set()
    worked: dict[str, list[float]] = {}
    sent: dict[str, float] = {}
    with httpx.Client(base_url=running.monitors, timeout=120) as client:
        sizes = Sizes(client)
        for number in range(count):
            for name, path in asked.items():
                # what is compared is remembered for a minute: each time another margin, so that nothing is
                varied = path + f"&delta={0.02 + number / 10_000:.4f}" if "compare?" in path else path
                if time.monotonic() > deadline:
                    return Asked({name: values for name, values in took.items() if values}, worked, partly, sent)
                before = on_cpu(running.pid)
                milliseconds, answer = ask(client, varied)
                worked.setdefault(name, []).append(on_cpu(running.pid) - before)
                print(f"{milliseconds:8.0f} ms  {name}", file=sys.stderr, flush=True)
                took[name].append(milliseconds)
                sent[name] = max(sent.get(name, 0.0), sizes.of(answer))
                if "Looked through" in answer.text:
                    partly.add(name)
            took["/events (first byte)"].append(first_event(running))
    return Asked(took, worked, partly, sent)


def commands(running: Monitors, directory: Path) -> dict[str, float]:
    """Seconds that commands take, start of the process included."""
    took = {}
    for name, words in COMMANDS.items():
        where = ["--config", str(directory / "gaugeway.toml"), "--data-dir", str(running.data)]
        begin = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "gaugeway", *words, *where], capture_output=True, check=False, timeout=600
        )
        took[name] = time.perf_counter() - begin
        if done.returncode not in (0, 1, 3):
            raise SystemExit(f"{name}: {done.returncode} {done.stderr.decode()[-500:]}")
    return took


def percentile(values: list[float], share: float) -> float:
    """The value that so many lie below."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def table(found: Asked) -> list[str]:
    """Markdown, the slowest marked."""
    lines = ["| asked | median ms | p99 ms | of it at work, ms | KB sent | |", "|---|---:|---:|---:|---:|---|"]
    for name, values in found.took.items():
        middle, worst = statistics.median(values), percentile(values, 0.99)
        work = f"{statistics.median(found.worked[name]):.0f}" if name in found.worked else ""
        notes = ["says how far back it looked"] if name in found.partly else []
        notes += ["**median over the promise**"] if middle > PROMISE_MS else []
        notes += ["p99 over the promise"] if middle <= PROMISE_MS < worst else []
        size = found.sent.get(name)
        notes += ["**size over the promise**"] if size is not None and size > PROMISE_KB else []
        kilobytes = "" if size is None else f"{size:.0f}"
        lines.append(f"| {name} | {middle:.0f} | {worst:.0f} | {work} | {kilobytes} | {'; '.join(notes)} |")
    return lines


def main() -> None:
    asking = argparse.ArgumentParser()
    asking.add_argument("--engine", choices=["sqlite", "postgres"], required=True)
    asking.add_argument("--evaluations", type=int, default=5_000_000)
    asking.add_argument("--rounds", type=int, default=30)
    asking.add_argument("--minutes", type=float, default=60.0, help="the longest it asks")
    asking.add_argument("--only", default="")
    asking.add_argument("--store", default="", help="filled before: a file, or the URL of a database")
    asking.add_argument("--window", type=float, default=WINDOW_S, help="monitors.window_s")
    asked = asking.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started must not outlive us
    count = asked.evaluations // len(METRICS)
    with tempfile.TemporaryDirectory(prefix="gaugeway-millions-") as scratch:
        directory = Path(scratch)
        with (
            filled(asked.engine, count, directory, asked.store) as (engines, queue, filling_s),
            monitors(directory, engines=engines, window_s=asked.window) as (running, start_s),
            Feed(queue, PER_S) as feed,
        ):
            found = rounds(running, asked.rounds, asked.only, asked.minutes)
            print("\n".join(table(found)), file=sys.stderr, flush=True)
            by_hand = {} if asked.only else commands(running, directory)
            queued = running.get("/api/status")["queue"]
    other = "" if asked.window == WINDOW_S else f" --window {asked.window:g}"
    command = f"python benchmarks/millions/run.py --engine {asked.engine} --evaluations {asked.evaluations}"
    command += f" --rounds {asked.rounds}{other}{' --store FILLED' if asked.store else ''}"
    least = min(map(len, found.took.values()))
    lines = [
        f"# {asked.evaluations:,} stored evaluations: {asked.engine}",
        "",
        f"`{command}`, {time.strftime('%Y-%m-%d', time.gmtime())}: {count:,} exchanges over 30 days, four apps,",
        f"three models, five prompts, two tags. Store ready after {filling_s:.0f} s; the monitors answered",
        f"{start_s:.1f} s after their start. Each line {least} times at least, in turn with all",
        f"others, while {feed.put:,} samples came in ({PER_S:g} a second;",
        f"{queued['ready'] + queued['leased']} waited at the end). {platform.machine()}, Python",
        f"{platform.python_version()}, SQLite {sqlite3.sqlite_version}, two cores that other work shares: load",
        f'{os.getloadavg()[1]:.0f} over five minutes at the end. "At work" is the',
        "median of the time that the monitors' threads had a processor meanwhile, their other work included. KB are",
        "compressed; those of a page include its scripts and styles, which a browser keeps.",
        "",
        *table(found),
        *(["", "| command | s |", "|---|---:|"] if by_hand else []),
        *[f"| {name} | {seconds:.1f} |" for name, seconds in by_hand.items()],
        "",
    ]
    text = "\n".join(lines)
    print(text)
    if not asked.only:
        RESULTS.mkdir(exist_ok=True)
        suffix = f"-window-{asked.window / 86_400:g}d" if other else ""
        (RESULTS / f"millions-{asked.engine}{suffix}.md").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
