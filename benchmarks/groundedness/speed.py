"""What the lexical score costs: milliseconds of CPU an answer, and how they grow with the text.

    python benchmarks/groundedness/speed.py [--rounds 50]

The text is that of `corpus/`, with numbers, dates and names put in. The first line is the size the aim is stated for:
500 words of contexts, 150 of response, at most 8 ms. Below, both grow together: with time linear in the text the last
column stays about the same. `learning` is with weights learnt from the traffic, as the monitors have them.
"""

from __future__ import annotations

import argparse
import asyncio
import platform
import random
import statistics
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from monitors.metrics.lexical.idf import shipped  # noqa: E402 - the tree is not installed everywhere
from monitors.metrics.lexical.idf.traffic import TrafficIdf  # noqa: E402
from monitors.metrics.lexical_groundedness import LexicalGroundedness  # noqa: E402
from monitors.records import Context, Sample  # noqa: E402

AIM_MS = 8.0
PUT_IN = (
    "On 6 May 2024 the Orla lamp cost $1,234.50.",
    "It rose by 12 % to 3.4 million euros in Ghent.",
    "Sarah Ode was not at the Bank of Tessaro at 9:45 p.m.",
    "Between 10 and 12 kg of it were sold in 1987.",
)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    rounds = parser.parse_args().rounds
    print(f"Python {platform.python_version()}, {platform.machine()}; median CPU ms of {rounds} rounds\n")
    print("| words: contexts + response | shipped weights | learning | ms per 1,000 words |")
    print("|---|---|---|---|")
    first = 0.0
    for times in (1, 4, 16, 64, 256):
        sample = text_sample(500 * times, 150 * times)
        fixed, learning = (
            milliseconds(metric, sample, max(3, rounds // times))
            for metric in (LexicalGroundedness(), LexicalGroundedness(TrafficIdf(shipped())))
        )
        first = first or fixed
        print(f"| {500 * times:,} + {150 * times:,} | {fixed:.2f} | {learning:.2f} | {fixed / 0.65 / times:.2f} |")
    print(f"\nAim: {AIM_MS:g} ms; {'met' if first <= AIM_MS else 'MISSED'} with {first:.2f} ms")


def text_sample(context_words, response_words):
    """Three contexts, and a response of which half the sentences are in them."""
    lines = (HERE / "corpus" / "en.txt").read_text("utf-8").splitlines()
    draw = random.Random(7)
    context = text(context_words, lines, draw)
    taken = [line for line in lines if draw.random() < 0.5]
    third = len(context) // 3
    contexts = tuple(Context(text=context[at : at + third]) for at in range(0, third * 3, third))
    return Sample(id="s", started_at=0.0, response=text(response_words, taken, draw), contexts=contexts)


def text(count, lines, draw):
    found: list[str] = []
    while len(found) < count:
        found += draw.choice(PUT_IN if draw.random() < 0.25 else lines).split()
    return " ".join(found[:count])


def milliseconds(metric, sample, rounds):
    asyncio.run(metric.score(sample))
    took = []
    for _ in range(rounds):
        started = time.process_time()
        asyncio.run(metric.score(sample))
        took.append(time.process_time() - started)
    return statistics.median(took) * 1e3


if __name__ == "__main__":
    main()
