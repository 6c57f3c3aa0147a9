"""The store in ClickHouse on the real engine: its contract, and what it takes for a minute.

python benchmarks/clickhouse/contract.py [--seconds 60] [--at-once 8,32,128] [--skip-contract]

Needs `python benchmarks/clickhouse/installs.py`: chdb, ClickHouse's engine as a library, behind a small HTTP server.
First the tests of tests/contracts/test_store_contract.py run against it. Then, for each number of callers at once,
samples with five evaluations each are added for so long, every caller adding the next one when the last is in; all of
them are looked for, and the engine is killed and asked again. Writes results/contract.md.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import installs

from gaugeway.records import Context, Evaluation, Sample, Score
from gaugeway.storage.engines.clickhouse.store import ClickHouseStore
from gaugeway.storage.stores import Query
from tests.support.clickhouse import ClickHouse

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results" / "contract.md"
METRICS = ("lexical_groundedness", "faithfulness", "answer_relevancy", "context_relevancy", "hallucination")
TEXT = "Mars has two moons, Phobos and Deimos, found in 1877. " * 12
DAY_S = 86_400.0


def sample(number: int) -> Sample:
    """One with 3 KB of text."""
    return Sample(
        id=f"{number * 2654435761 % 2**32:08x}-{number:08}",  # as random as real ones
        started_at=time.time(),
        app=f"app{number % 3}",
        model=f"model{number % 2}",
        question="How many moons has Mars?",
        contexts=tuple(Context(text=f"{k} {TEXT}", id=str(k)) for k in range(4)),
        context_source="explicit",
        response=TEXT,
        tags={"tenant": str(number % 5)},
        trace_id=f"{number:032x}",
    )


def evaluations(one: Sample) -> list[Evaluation]:
    """Five scores with a reason and a piece of evidence."""
    outcome = Score(0.5, "a reason", ({"claim": "a claim"},))
    return [Evaluation(sample_id=one.id, metric=metric, version="1", outcome=outcome) for metric in METRICS]


def at(values: list[float], share: float) -> float:
    """A quantile, in ms."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] * 1000


async def minute(store: ClickHouseStore, seconds: float, callers: int) -> dict[str, Any]:
    """Add for so long; say how many, how long one took, and how long the questions of a tick take then."""
    begun, numbers, taken = time.time(), count(), []
    deadline = time.monotonic() + seconds

    async def caller() -> None:
        while time.monotonic() < deadline:
            one = sample(next(numbers))
            start = time.monotonic()
            await store.supplements_of(one)
            assert len(await store.add(one, evaluations(one))) == len(METRICS)
            taken.append(time.monotonic() - start)

    start = time.monotonic()
    await asyncio.gather(*(caller() for _ in range(callers)))
    spent = time.monotonic() - start
    span = Query(since=begun - 1, until=time.time() + 1)
    asked = {}
    for name, ask in (
        ("summary of all", lambda: store.summary(span)),
        (
            "points of 60 s, one metric",
            lambda: store.series(Query(since=span.until - 60, until=span.until, metric="faithfulness", limit=1000)),
        ),
        ("paired of all", lambda: store.paired(span, METRICS[0])),
        ("one sample", lambda: store.sample(sample(0).id)),
    ):
        start = time.monotonic()
        await ask()
        asked[name] = (time.monotonic() - start) * 1000
    there = sum(one.n for one in await store.summary(span))
    return {
        "n": len(taken),
        "rate": len(taken) / spent,
        "p50": at(taken, 0.5),
        "p99": at(taken, 0.99),
        "there": there,
        "asked": asked,
    }


def measure(server: ClickHouse, seconds: float, callers: int) -> dict[str, Any]:
    """One number of callers, in a database of its own; then the engine is killed and asked again."""
    url = server.database().partition("?")[0]

    async def run() -> dict[str, Any]:
        store = ClickHouseStore(url)
        try:
            await store.load()
            ours, theirs = time.process_time(), server.cpu_s()
            found = await minute(store, seconds, callers)
            spent = {"client": time.process_time() - ours, "engine": server.cpu_s() - theirs}
            return found | {name: taken / found["n"] * 1000 for name, taken in spent.items()}
        finally:
            await store.aclose()

    found = asyncio.run(run())
    database = url.rpartition("/")[2]
    where = f"WHERE database = '{database}' AND active"
    ((parts,),) = server.ask(f"SELECT max(n) FROM (SELECT count() AS n FROM system.parts {where} GROUP BY table)")
    server.stop()
    server.start()
    ((after,),) = server.ask("SELECT count() FROM evaluations FINAL", database)
    assert found["there"] == int(after) == found["n"] * len(METRICS), (found, after)
    return found | {"parts": int(parts)}


def contract() -> str:
    """Run the store's contract against the engine; return the last line of what the tests say."""
    tests = ["tests/contracts/test_store_contract.py", "tests/contracts/test_clickhouse.py"]
    command = [sys.executable, "-m", "pytest", "-o", "addopts=", "--import-mode=importlib", "-k", "clickhouse", *tests]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False)
    print(done.stdout[-2000:])
    if done.returncode:
        raise SystemExit("the contract is broken")
    return done.stdout.strip().splitlines()[-1].strip("= ")


def report(lines: list[str]) -> None:
    """Write the results."""
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("\n".join(lines) + "\n")
    print(RESULTS.read_text())


def main() -> int:
    """Run it all and write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--at-once", default="8,32,128")
    parser.add_argument("--skip-contract", action="store_true")
    arguments = parser.parse_args()
    said = "not run" if arguments.skip_contract else contract()
    server = ClickHouse()
    server.start()
    try:
        runs = {
            callers: measure(server, arguments.seconds, callers) for callers in map(int, arguments.at_once.split(","))
        }
    finally:
        server.destroy()
    report(table(runs, arguments.seconds, str(said)))
    return 0


def table(runs: dict[int, dict[str, Any]], seconds: float, said: str) -> list[str]:
    """The results as Markdown."""
    engine = f"chdb-core {installs.version()} behind `benchmarks/clickhouse/server.py`"
    machine = f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores"
    lines = [
        "# The store in ClickHouse",
        "",
        f"{engine}, {machine}, load {os.getloadavg()[1]:.0f}, {time.strftime('%Y-%m-%d')}. Contract: {said}.",
        "",
        f"Samples of 3 KB with five evaluations, added for {seconds:g} s by so many callers at once; each asks first",
        "for what was said about the sample, as the worker does. Client and engine share the machine's cores. All",
        "evaluations were found again, also after the engine had been killed.",
        "",
        "Where the machine does other things at the same time, processor time says more than rates: two idle cores do",
        "two hundred times a second what takes a core 10 ms.",
        "",
        "| callers | samples/s | evaluations/s | p50, ms | p99, ms | CPU ms, client | CPU ms, engine | added | parts |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for callers, one in runs.items():
        rates = f"{one['rate']:.0f} | {one['rate'] * len(METRICS):.0f}"
        waits = f"{one['p50']:.0f} | {one['p99']:.0f}"
        works = f"{one['client']:.2f} | {one['engine']:.2f}"
        lines.append(f"| {callers} | {rates} | {waits} | {works} | {one['n']} | {one['parts']} |")
    last = runs[max(runs)]
    lines += [
        "",
        f"Questions to the last of these ({last['n']} samples), each asked once, ms:",
        "",
        "| question | ms |",
        "|---|---|",
    ]
    lines += [f"| {name} | {taken:.0f} |" for name, taken in last["asked"].items()]
    return lines


if __name__ == "__main__":
    sys.exit(main())
