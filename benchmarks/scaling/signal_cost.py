"""What the signals of an exchange cost the monitors: computing them, and storing them in SQLite.

    python benchmarks/scaling/signal_cost.py [--exchanges 3000] [--there 20000] [--before PATH] [--rounds 3]

Exchanges have four passages with scores, an answer of 100, 500 or 1,500 characters in English or German, one in twenty
declines; all have a duration and a cost, and one in ten calls tools. Computing is timed alone. Storing is the time of
`SQLiteStore.add` with a score of one metric and the signals, less that with the score alone, which take turns; 32
exchanges at a time are added, as the worker does, to stores that hold `--there` exchanges already. Printed are
microseconds of CPU per exchange, all threads of the process, medians of the rounds. `--before` is another checkout of
the project, measured in the same way, interleaved.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
TREE = Path(sys.argv[sys.argv.index("--tree") + 1]) if "--tree" in sys.argv else ROOT
sys.path[:0] = [str(TREE)]

from gaugeway.records import Context, Evaluation, Sample, Score, ToolChecks  # noqa: E402
from gaugeway.signals import SIGNALS  # noqa: E402
from gaugeway.storage.engines.sqlite.store import SQLiteStore  # noqa: E402
from monitors.evaluation.signals import Signals  # noqa: E402 - of the tree that is measured

AT_ONCE, CHUNK = 32, 256
WARM_UP = 2000
"""Exchanges by which the signals learn what is usual; not timed."""
ENGLISH = (
    "You can return the parcel within thirty days of delivery. Print the label from your account, put it on the box "
    "and bring it to any of our shops or to a post office. The refund takes five working days once the parcel is back. "
)
GERMAN = (
    "Sie können das Paket innerhalb von dreißig Tagen zurückgeben. Drucken Sie das Etikett aus Ihrem Konto aus, "
    "kleben Sie es auf den Karton und bringen Sie es in einen unserer Läden. Das Geld kommt nach fünf Werktagen auf "
    "das Konto. "
)
DECLINES = "I'm sorry, but the documents do not mention that. Please contact our support."
LENGTHS = (100, 500, 1500)


def exchanges(count: int, seed: int, began: float) -> list[Sample]:
    """Made-up exchanges of five apps, a second apart."""
    draw = random.Random(seed)
    made = []
    for number in range(count):
        german = draw.random() < 0.2
        text = answer(GERMAN if german else ENGLISH, draw.randrange(3), draw.choice(LENGTHS))
        asked = "Wie kann ich ein Paket zurückgeben, und wann" if german else "How do I return a parcel, and when will"
        made.append(
            Sample(
                id=f"{int(1000 * (began + number)):012x}{draw.getrandbits(80):020x}",
                started_at=began + number,
                app=f"app-{number % 5}",
                model="model-1",
                question=f"{asked} I get the money for order {number}?",
                contexts=tuple(
                    Context(text=f"The policy gives {number + k} days. " * 8, score=0.6 + draw.random() / 3, id=str(k))
                    for k in range(4)
                ),
                context_source="structure",
                response=DECLINES if draw.random() < 0.05 else text,
                tags={"tenant": f"tenant-{number % 20}", "release": "30"},
                duration_s=draw.lognormvariate(0.0, 0.5),
                cost_usd=draw.lognormvariate(-6.0, 0.5),
                prompt="f00dfeedbeef",
                tool_checks=ToolChecks(calls=1, offered=4, validated=1, results=1) if draw.random() < 0.1 else None,
            )
        )
    return made


def answer(text: str, first: int, length: int) -> str:
    """Whole sentences of a text, from one of them on, of about this length."""
    sentences = [f"{one}." for one in text.strip(". ").split(". ")]
    made = ""
    while len(made) < length:
        made, first = f"{made} {sentences[first % len(sentences)]}".strip(), first + 1
    return made


def score(sample: Sample) -> Evaluation:
    """The score of a metric without a judge."""
    return Evaluation(sample_id=sample.id, metric="lexical_groundedness", version="4", outcome=Score(0.75), weight=1.0)


async def stored(folder: Path, there: int, pairs: Sequence[tuple[Sample, Sequence[Evaluation]]]) -> tuple[float, float]:
    """Seconds of CPU to add exchanges to stores that hold `there` others: with one score, and with signals, too.

    The two take turns, so that what else the machine does meets both.
    """
    stores = SQLiteStore(folder / "alone.db"), SQLiteStore(folder / "together.db")
    signals = Signals(SIGNALS)
    gate = asyncio.Semaphore(AT_ONCE)

    async def add(store: SQLiteStore, some: Sequence[tuple[Sample, Sequence[Evaluation]]]) -> float:
        async def one(sample: Sample, evaluations: Sequence[Evaluation]) -> None:
            async with gate:
                await store.add(sample, evaluations)

        begin = time.process_time()
        await asyncio.gather(*(one(*each) for each in some))
        return time.process_time() - begin

    for store in stores:
        await add(store, [(one, [score(one), *signals.evaluations(one, 1.0)]) for one in exchanges(there, 1, 0.0)])
    took = [0.0, 0.0]
    for start in range(0, len(pairs), CHUNK):
        some = pairs[start : start + CHUNK]
        took[0] += await add(stores[0], [(one, [score(one)]) for one, _ in some])
        took[1] += await add(stores[1], [(one, [score(one), *values]) for one, values in some])
    for store in stores:
        await store.aclose()
    return took[0], took[1]


def measure(count: int, there: int) -> dict[str, float]:
    """Measure one tree once."""
    samples = exchanges(WARM_UP + count, 2, 1_000_000.0)
    signals = Signals(SIGNALS)
    for one in samples[:WARM_UP]:
        signals.evaluations(one, 1.0)
    measured = samples[WARM_UP:]
    begin = time.process_time()
    found = [signals.evaluations(one, 1.0) for one in measured]
    computing = time.process_time() - begin
    with tempfile.TemporaryDirectory(prefix="gaugeway-signals-") as folder:
        alone, together = asyncio.run(stored(Path(folder), there, list(zip(measured, found, strict=True))))
    each = 1e6 / count
    return {
        "values": sum(map(len, found)) / count,
        "computing": computing * each,
        "storing": (together - alone) * each,
        "a score": alone * each,
    }


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exchanges", type=int, default=3000)
    parser.add_argument("--there", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", type=Path, help="another checkout of the project")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--tree", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.exchanges, arguments.there)))
        return
    trees = {"now": ROOT} | ({"before": arguments.before.resolve()} if arguments.before else {})
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
    for _ in range(arguments.rounds):
        for name, where in trees.items():
            command = [sys.executable, __file__, "--one", "--exchanges", str(arguments.exchanges)]
            command += ["--there", str(arguments.there), "--tree", str(where)]
            done = subprocess.run(command, cwd=where, check=True, stdout=subprocess.PIPE)
            taken[name].append(json.loads(done.stdout))
    machine = f"{platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores"
    print(f"{machine}; medians of {arguments.rounds} rounds")
    print("\n| tree | values per exchange | computing, µs | storing, µs | both, µs | the sample with one score, µs |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, some in taken.items():
        values, computing, storing, alone = (
            statistics.median(one[key] for one in some) for key in ("values", "computing", "storing", "a score")
        )
        print(f"| {name} | {values:.1f} | {computing:.0f} | {storing:.0f} | {computing + storing:.0f} | {alone:.0f} |")


if __name__ == "__main__":
    main()
