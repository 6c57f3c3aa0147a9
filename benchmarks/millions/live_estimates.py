"""The live estimates of a busy app: rows of the whole window read each time, or only those that may still change.

    python benchmarks/millions/live_estimates.py --exchanges 800000     # an hour: 222 a second

Fills a SQLite store with exchanges of the last two hours and of the first one of the last six, each with
lexical_groundedness and six signals. Then, `--rounds` times, adds those of another minute and adds up the last hour and
the last six in both ways, as the monitors do once a minute and once in six minutes. What both find must be the same.
Writes results/live-estimates.md. Exit status 1 when the sums differ.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import math
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from gaugeway.records import Evaluation, Sample, Score
from gaugeway.signals import VERSION
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.stores import Query, Summary
from gaugeway.storage.stores.rollup_windows import add_summaries
from monitors.analysis.recent_sums import RecentSums

RESULTS = Path(__file__).parent / "results"
HOUR_S, STEP_S, BATCH = 3600.0, 60.0, 500
LONGER_H = 6
ONE, ONE_KEPT, SIX, SIX_KEPT = (
    f"{hours}: {rows}"
    for hours in ("the last hour", f"the last {LONGER_H} hours")
    for rows in ("all rows without a stored sum", "those that may still change")
)
SIGNALS = ("no_contexts", "contexts_per_answer", "abstained", "truncated", "slow", "language_mismatch")


async def fill(store: SQLiteStore, numbers: Sequence[int], begin: float, every_s: float, apps: int) -> None:
    """Store exchanges with these numbers, of which the first began at `begin`."""
    draw, batch = random.Random(numbers[0]), []
    for place, number in enumerate(numbers):
        app, at = f"app-{number % apps}", begin + place * every_s
        sample = Sample(id=f"{number:032x}", started_at=at, app=app, model="m", response="Thirty days.")
        scores = [("lexical_groundedness", "3", draw.random())]
        scores += [(one, VERSION, float(draw.random() < 0.1)) for one in SIGNALS]
        found = [
            Evaluation(sample_id=sample.id, metric=metric, version=version, outcome=Score(value=value))
            for metric, version, value in scores
        ]
        batch.append((sample, found))
        if len(batch) == BATCH:
            await store.add_each(batch)
            batch = []
    await store.add_each(batch)


async def timed(asked: Awaitable[Sequence[Summary]]) -> tuple[float, Sequence[Summary]]:
    """Seconds, and what was found."""
    began = time.perf_counter()
    found = await asked
    return time.perf_counter() - began, found


def same(one: Sequence[Summary], other: Sequence[Summary]) -> bool:
    """Whether the sums are the same but for rounding."""
    first, second = ({(it.app, it.metric): (it.n, it.wx) for it in some} for some in (one, other))
    return first.keys() == second.keys() and all(
        n == second[key][0] and math.isclose(wx, second[key][1], rel_tol=1e-9) for key, (n, wx) in first.items()
    )


async def six_hours(store: SQLiteStore, recent: RecentSums, now: float) -> Sequence[Summary]:
    """The sums of a longer window as `GrowingWindow` adds them up."""
    older = await store.summary(Query(since=now - LONGER_H * HOUR_S, until=recent.whole_hour(now)))
    return add_summaries([*older, *await recent.since_whole_hour(now)])


async def measure(count: int, apps: int, rounds: int, scratch: Path) -> tuple[dict[str, list[float]], bool]:
    """Seconds of each round by what was added up, and whether all sums were the same."""
    store, now, every_s = SQLiteStore(str(scratch / "store.db")), time.time(), HOUR_S / count
    seconds: dict[str, list[float]] = {name: [] for name in (ONE, ONE_KEPT, SIX, SIX_KEPT)}
    more, filled = round(STEP_S / every_s), 3 * count
    try:
        await fill(store, range(count), now - LONGER_H * HOUR_S, every_s, apps)
        await fill(store, range(count, filled), now - 2 * HOUR_S, every_s, apps)
        recent, fine = RecentSums(store, HOUR_S), True
        await six_hours(store, recent, now)
        for one in range(rounds):
            begin = now + one * STEP_S
            await fill(store, range(filled + one * more, filled + (one + 1) * more), begin, every_s, apps)
            at = begin + STEP_S
            for hours, names in ((1, (ONE, ONE_KEPT)), (LONGER_H, (SIX, SIX_KEPT))):
                took, expected = await timed(store.summary(Query(since=at - hours * HOUR_S, until=at + HOUR_S)))
                seconds[names[0]].append(took)
                took, found = await timed(recent.summary(at) if hours == 1 else six_hours(store, recent, at))
                seconds[names[1]].append(took)
                fine = fine and same(expected, found)
        return seconds, fine
    finally:
        await store.aclose()


def page(options: argparse.Namespace, seconds: dict[str, list[float]], *, fine: bool) -> str:
    """The results as Markdown."""
    lines = [
        f"| {name} | {statistics.median(some):.2f} | {min(some):.2f} to {max(some):.2f} |"
        for name, some in seconds.items()
    ]
    ratios = [
        statistics.median(one / other for one, other in zip(seconds[rows], seconds[kept], strict=True))
        for rows, kept in ((ONE, ONE_KEPT), (SIX, SIX_KEPT))
    ]
    about = (
        f"`python benchmarks/millions/live_estimates.py --exchanges {options.exchanges} --apps {options.apps} "
        f"--rounds {options.rounds}`, {dt.datetime.now(dt.UTC):%Y-%m-%d, %H:%M UTC}: SQLite, three hours with so many "
        f"exchanges each (the first and the last two of six), seven scores each, a minute later each round. "
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}."
    )
    said = (
        f"Median ratios {ratios[0]:.1f} and {ratios[1]:.1f}. "
        f"The sums are {'the same in every round' if fine else '**not the same**'}."
    )
    table = ["| added up | seconds, median | |", "|---|---|---|", *lines]
    return "\n".join(["# Live estimates of a busy app", "", about, "", *table, "", said, ""])


def main() -> None:
    asking = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asking.add_argument("--exchanges", type=int, default=800_000)
    asking.add_argument("--apps", type=int, default=1)
    asking.add_argument("--rounds", type=int, default=9)
    asking.add_argument("--out", type=Path, default=RESULTS)
    options = asking.parse_args()
    with tempfile.TemporaryDirectory(prefix="gaugeway-estimates-") as scratch:
        seconds, fine = asyncio.run(measure(options.exchanges, options.apps, options.rounds, Path(scratch)))
    text = page(options, seconds, fine=fine)
    options.out.mkdir(exist_ok=True)
    (options.out / "live-estimates.md").write_text(text, "utf-8")
    print(text)
    sys.exit(not fine)


if __name__ == "__main__":
    main()
