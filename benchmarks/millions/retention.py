"""Retention over millions of evaluations: a day is dropped while samples are added.

python benchmarks/millions/retention.py --engine sqlite [--evaluations 5000000] [--store FILE]

Says how long it took, what `add` took beside it and before it, and what became of the file. Writes
results/retention-ENGINE.md.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.millions.fill import METRICS
from benchmarks.millions.run import RESULTS, filled, percentile
from gaugeway.records import Context, Evaluation, Sample, Score
from gaugeway.runtime.tasks import spawn
from gaugeway.storage.stores import from_url

PER_S, QUIET_S, DAY_S = 20.0, 20.0, 86_400.0


async def adding(store: Any, took: list[float]) -> None:
    """Add samples at a steady pace; seconds of each."""
    draw, begin = random.Random(3), time.monotonic()
    while True:
        sample = Sample(
            id=f"{draw.getrandbits(128):032x}",
            started_at=time.time(),
            app="support",
            model="chat-1",
            question="How long?",
            contexts=(Context(text="Two years. " * 60),),
            response="Two years.",
            tags={"tenant": "tenant-1"},
        )
        made = [
            Evaluation(sample_id=sample.id, metric=metric, version="1", outcome=Score(round(draw.random(), 3)))
            for metric in METRICS
        ]
        start = time.perf_counter()
        await store.add(sample, made)
        took.append(time.perf_counter() - start)
        await asyncio.sleep(max(0.0, begin + len(took) / PER_S - time.monotonic()))


def size_of(path: Path | None) -> int:
    """Bytes of a file; 0 without one."""
    return path.stat().st_size if path is not None else 0


async def measure(url: str, path: Path | None) -> list[str]:
    """Lines of a table."""
    store, before, beside = from_url(url), [], []  # type: ignore[var-annotated]
    begin = time.perf_counter()
    await store.prune(0.0)  # what the first start after filling does: hours that are over are added up
    first = time.perf_counter() - begin
    # as in the product, who prunes has the same store as who adds
    task = spawn(adding(store, before), name="adding")
    await asyncio.sleep(QUIET_S)
    task.cancel()
    size = size_of(path)
    task = spawn(adding(store, beside), name="adding")
    begin = time.perf_counter()
    removed = await store.prune(time.time() - 29 * DAY_S)
    seconds = time.perf_counter() - begin
    task.cancel()
    begin = time.perf_counter()
    await store.prune(time.time() - 29 * DAY_S)
    again = time.perf_counter() - begin
    after = size_of(path)
    await store.aclose()

    def latency(values: list[float]) -> str:
        ms = [1000 * one for one in values]
        return f"{percentile(ms, 0.5):.1f} / {percentile(ms, 0.99):.1f} / {max(ms):.1f} ({len(ms)})"

    return [
        "| | |",
        "|---|---|",
        f"| samples removed | {removed:,} |",
        f"| seconds | {seconds:.1f} |",
        f"| samples a second | {removed / seconds:,.0f} |",
        f"| `add` before: median / p99 / longest ms (n) | {latency(before)} |",
        f"| `add` meanwhile: median / p99 / longest ms (n) | {latency(beside or [0.0])} |",
        f"| pruning when nothing is due, s | {again:.3f} |",
        f"| adding up, at leisure, what had not been yet, s | {first:.0f} |",
        *([f"| file before and after, MB | {size / 1e6:,.0f}, {after / 1e6:,.0f} |"] if path is not None else []),
    ]


def main() -> None:
    asking = argparse.ArgumentParser()
    asking.add_argument("--engine", choices=["sqlite", "postgres"], required=True)
    asking.add_argument("--evaluations", type=int, default=5_000_000)
    asking.add_argument("--store", default="", help="filled before: a file, or the URL of a database")
    asked = asking.parse_args()
    with tempfile.TemporaryDirectory(prefix="gaugeway-millions-") as scratch:
        directory = Path(scratch)
        count = asked.evaluations // len(METRICS)
        with filled(asked.engine, count, directory, asked.store) as (_, queue, _):
            path = directory / "data" / "store.db" if asked.engine == "sqlite" else None
            lines = asyncio.run(measure(queue if path is None else f"sqlite:///{path}", path))
    head = f"# A day dropped out of {asked.evaluations:,} evaluations: {asked.engine}"
    about = f"`python benchmarks/millions/retention.py --engine {asked.engine} --evaluations {asked.evaluations}`, "
    about += f"{time.strftime('%Y-%m-%d', time.gmtime())}; {PER_S:g} samples a second are added. Two cores, other work."
    text = "\n".join([head, "", about, "", *lines, ""])
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"retention-{asked.engine}.md").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
