"""The operator's page while traffic runs and other programs keep every core busy: time to its frame, and until filled.

python benchmarks/page/under_load.py [--exchanges 100000] [--busy 4] [--per-s 20] [--rounds 5] [--root before=PATH ...]

Runs `gaugeway serve` over a filled store, loopback only. Each `--root NAME=PATH` is a checkout to measure; they take
turns, one start of the product each round, so that the machine's other load meets all alike. A view is asked for as a
browser does: once for its frame, then as long as the page says that a part of it is still being read. `/healthz` needs
nothing but the event loop. With `--write` the table goes to results/under-load.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import httpx

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.millions.fill import fill_sqlite
from tests.support.in_thread import in_thread
from tests.support.product import Product
from tests.support.scenario import TOPICS, Script, passages

RESULTS = Path(__file__).parent / "results" / "under-load.md"
HERE = Path(__file__).parents[2]
PAUSE_S = 0.5
WARM_S = 15.0
CONFIG = """
[[upstreams]]
base_url = "{script}/app/v1"

[judge]
base_url = "{script}/judge/v1"
model = "judge-large"

[metrics.faithfulness]
rate = 0.25
"""
VIEWS = {
    "/healthz": "/healthz",
    "Overview": "/?sort=app",
    "app": "/apps/support?since=24h&metric=faithfulness",
    "Alerts": "/alerts",
    "Explore": "/explore?since=24h",
    "Explore by topic": "/explore?metric=faithfulness&app=support&since=30d&group=topic",
    "exchange": "/exchanges/{exchange}",
    "Conversations": "/conversations",
    "Sources": "/sources?app=support&since=30d",
    "Topics": "/topics?app=handbook&since=30d",
    "Compare": "/compare?by=model&a=chat-1&b=chat-2&since=30d",
    "Prompts": "/prompts",
    "Review": "/review",
    "Pipeline": "/pipeline?since=30d",
    "Settings": "/settings",
}
_UNREAD = re.compile(r"data-pending|data-incomplete")


class Traffic:
    """Requests of a RAG app through the gateway at a steady pace, from a thread."""

    def __init__(self, base_url: str, per_s: float) -> None:
        self._url, self._pause_s = f"{base_url}/chat/completions", 1.0 / per_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent = 0
        self.took: list[float] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(30)

    def _run(self) -> None:
        draw, begin = random.Random(3), time.monotonic()
        with httpx.Client(timeout=60) as client:
            while not self._stopping.is_set():
                topic = draw.choice(list(TOPICS))
                question = TOPICS[topic].format(n=draw.randrange(10**6))
                text = passages(topic, draw.randrange(50))
                messages = [
                    {"role": "system", "content": "You answer for support. Stay with the context."},
                    {"role": "user", "content": f"Question: {question} \n\nContext: {text}"},
                ]
                body = {
                    "model": "chat-1",
                    "messages": messages,
                    "gaugeway": {"question": question, "contexts": [text], "app": "support"},
                }
                at = time.perf_counter()
                with contextlib.suppress(httpx.HTTPError):
                    client.post(self._url, json=body)
                    self.took.append(time.perf_counter() - at)
                self.sent += 1
                time.sleep(max(0.0, begin + self.sent * self._pause_s - time.monotonic()))


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """So many programs that compute all the time, each in a session of its own as programs of other users are."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for one in loops:
            one.kill()
            one.wait()


def timed(client: httpx.Client, path: str, limit_s: float) -> tuple[float, float | None]:
    """Seconds until the frame was there, and until nothing was missing; None if something still was at the end."""
    begin = time.perf_counter()
    frame: float | None = None
    while time.perf_counter() - begin < limit_s:
        wait = "&wait=1" if frame is not None and "?" in path else "?wait=1" if frame is not None else ""
        try:
            answer = client.get(path + wait, headers={"accept": "text/html"})
        except httpx.TimeoutException:
            break
        assert answer.status_code == httpx.codes.OK, f"{path}: {answer.status_code} {answer.text[:300]}"
        now = time.perf_counter() - begin
        frame = now if frame is None else frame
        if not _UNREAD.search(answer.text):
            return frame, now
        time.sleep(PAUSE_S)
    return frame if frame is not None else limit_s, None


def one_round(
    root: Path, store: Path, scratch: Path, asked: argparse.Namespace, exchange: str
) -> dict[str, tuple[float, float | None]]:
    """Start the product of a checkout on a copy of the store, load the machine, and ask for every view once."""
    data = scratch / "data"
    data.mkdir()
    shutil.copyfile(store, data / "store.db")
    with in_thread(Script()) as script:
        running = Product(scratch, CONFIG.format(script=script), root=root)
        try:
            running.start()
            with busy_loops(asked.busy), Traffic(running.base_url, asked.per_s) as traffic:
                time.sleep(WARM_S)
                found = {}
                with httpx.Client(base_url=running.monitors, timeout=asked.limit_s, follow_redirects=True) as client:
                    for name, path in VIEWS.items():
                        if re.search(asked.only, name):
                            found[name] = timed(client, path.format(exchange=exchange), asked.limit_s)
                            print(f"  {name:18} {found[name]}", file=sys.stderr, flush=True)
                print(f"  {traffic.sent} requests sent", file=sys.stderr, flush=True)
                return found
        finally:
            running.stop()


def words(values: list[float | None], limit_s: float) -> str:
    """Median and maximum in seconds; those that never came count as more than the limit."""
    known = [limit_s if one is None else one for one in values]
    never = sum(one is None for one in values)
    return f"{statistics.median(known):.2f}, {max(known):.2f}" + (
        f" ({never} not within {limit_s:.0f})" if never else ""
    )


def table(found: dict[str, list[dict[str, tuple[float, float | None]]]], limit_s: float) -> list[str]:
    """Markdown: a row per view, two columns per checkout."""
    names = list(found)
    lines = ["| view | " + " | ".join(f"frame, {name} | filled, {name}" for name in names) + " |"]
    lines.append("|---|" + "---:|---:|" * len(names))
    for view in next(iter(found.values()))[0]:
        cells = []
        for name in names:
            times = [one[view] for one in found[name]]
            cells += [words([frame for frame, _ in times], limit_s), words([filled for _, filled in times], limit_s)]
        lines.append(f"| {view} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    asking = argparse.ArgumentParser()
    asking.add_argument("--exchanges", type=int, default=100_000)
    asking.add_argument("--busy", type=int, default=4)
    asking.add_argument("--per-s", type=float, default=20.0)
    asking.add_argument("--rounds", type=int, default=5)
    asking.add_argument("--root", action="append", default=[], help="NAME=PATH of a checkout; without it, this one")
    asking.add_argument("--limit-s", type=float, default=120.0, help="a view is given up after so long")
    asking.add_argument("--only", default="")
    asking.add_argument("--write", action="store_true")
    asked = asking.parse_args()
    roots = dict(one.split("=", 1) for one in asked.root) or {"this checkout": str(HERE)}
    found: dict[str, list[dict[str, tuple[float, float | None]]]] = {name: [] for name in roots}
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory) / "store.db"
        asyncio.run(fill_sqlite(store, asked.exchanges, time.time()))
        import sqlite3  # noqa: PLC0415 - only here

        with contextlib.closing(sqlite3.connect(store)) as connection:
            exchange = connection.execute("SELECT id FROM samples ORDER BY started_at DESC LIMIT 1").fetchone()[0]
        for number in range(asked.rounds):
            for name, root in roots.items():
                print(f"round {number + 1}, {name}", file=sys.stderr, flush=True)
                with tempfile.TemporaryDirectory(dir=directory) as scratch:
                    found[name].append(one_round(Path(root), store, Path(scratch), asked, exchange))
    about = (
        f"{asked.exchanges:,} exchanges over 30 days, {asked.busy} busy loops, {asked.per_s:g} requests a second, "
        f"{os.cpu_count()} cores ({platform.machine()}), {asked.rounds} rounds in turn. Seconds, median and maximum."
    )
    lines = [
        "# The page under load",
        "",
        f"`{' '.join(['python', *sys.argv])}`",
        "",
        about,
        "",
        *table(found, asked.limit_s),
        "",
    ]
    print("\n".join(lines))
    if asked.write:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text("\n".join(lines), "utf-8")


if __name__ == "__main__":
    main()
