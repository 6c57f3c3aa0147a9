"""What adding up hour after hour leaves in a process's memory, and how long it takes: thirty days, each in its turn.

    python benchmarks/millions/adding_up.py [--count 200000]

A SQLite file is filled with a month of exchanges, five evaluations each. Then the store's clock goes on from day to
day, and after each one retention's hourly task runs, which adds up what is over, and once more, when nothing is left to
add up. Seen: the process's resident memory and the seconds of both. Results: results/adding-up.md.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import platform
import sqlite3
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.millions.fill import DAY_S, DAYS, METRICS, fill_sqlite
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.stores import Query

RESULTS = Path(__file__).parent / "results"
SHOWN = 1, 2, 3, 5, 10, 15, 20, 25, 30


@dataclass(frozen=True)
class Day:
    """One line: MiB of resident memory after it, seconds of the first run and of the one after."""

    number: int
    mib: float
    first_s: float
    again_s: float


def fill(path: Path, count: int, now: float) -> None:
    """In a process of its own, so that it leaves nothing in the memory of the one that is watched."""
    asyncio.run(fill_sqlite(path, count, now))


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def timed(store: SQLiteStore, before: float) -> float:
    begin = time.monotonic()
    await store.prune(before)
    return time.monotonic() - begin


async def watch(path: Path, now: float) -> tuple[float, list[Day]]:
    """The memory before, and each day; nothing is removed meanwhile."""
    store, since = SQLiteStore(path), now - (DAYS + 1) * DAY_S
    try:
        await store.series(Query(since=now - 60.0, until=now))
        before, days = resident_mib(), []
        for number in range(1, DAYS + 1):
            today = now - (DAYS - number) * DAY_S
            # The clock that it asks has no other door: a store lives in the present.
            store._sums._clock = lambda today=today: today  # type: ignore[misc]  # noqa: SLF001
            first_s, again_s = await timed(store, since), await timed(store, since)
            days.append(Day(number, resident_mib(), first_s, again_s))
    finally:
        await store.aclose()
    return before, days


def page(count: int, before: float, days: list[Day]) -> str:
    rows = [
        f"| {one.number} | {one.mib:.1f} | {one.first_s:.1f} | {one.again_s:.2f} |"
        for one in days
        if one.number in SHOWN
    ]
    machine = f"{os.cpu_count()} x {platform.machine()}, Python {platform.python_version()}"
    about = (
        f"`python benchmarks/millions/adding_up.py --count {count}`, {time.strftime('%Y-%m-%d')}; {machine}, SQLite "
        f"{sqlite3.sqlite_version}; load {os.getloadavg()[0]:.1f}; {count * len(METRICS):,} evaluations in {DAYS} days"
        f". Resident memory before: {before:.1f} MiB; it rests for as long as it reads."
    )
    head = ["# Adding up, day after day", "", about, "", "| day | resident MiB | seconds | once more |"]
    return "\n".join([*head, "|---:|---:|---:|---:|", *rows, ""])


def main() -> None:
    """Fill, watch, write."""
    asking = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asking.add_argument("--count", type=int, default=200_000, help="exchanges")
    count = asking.parse_args().count
    now = time.time()
    with tempfile.TemporaryDirectory(prefix="gaugeway-adding-up-") as scratch:
        path = Path(scratch) / "store.db"
        filling = multiprocessing.get_context("spawn").Process(target=fill, args=(path, count, now))
        filling.start()
        filling.join()
        before, days = asyncio.run(watch(path, now))
    text = page(count, before, days)
    (RESULTS / "adding-up.md").write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()
