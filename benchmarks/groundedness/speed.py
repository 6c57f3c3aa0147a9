"""What the lexical score costs: milliseconds of CPU an answer, and how they grow with the text.

    python benchmarks/groundedness/speed.py [--rounds 50]

The text is that of `corpus/`, with numbers, dates and names put in. The first table is what is usual: six passages that
were never seen before, and a response that is drawn apart from them, beside the time of plain word overlap (`overlap`
of auroc.py). In the second response and passages grow together: with time linear in the text its last column stays
about the same.
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
sys.path[:0] = [str(ROOT), str(HERE)]

from auroc import overlap  # noqa: E402 - beside this file

from gaugeway.records import Context, Sample  # noqa: E402
from monitors.metrics.lexical_groundedness import LexicalGroundedness  # noqa: E402 - the tree may not be installed

PUT_IN = (
    "On 6 May 2024 the Orla lamp cost $1,234.50.",
    "It rose by 12 % to 3.4 million euros in Ghent.",
    "Sarah Ode was not at the Bank of Tessaro at 9:45 p.m.",
    "Between 10 and 12 kg of it were sold in 1987.",
)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    print(f"Python {platform.python_version()}, {platform.machine()}; median CPU ms of {rounds} rounds\n")
    print(f"Metric version {LexicalGroundedness.version}\n")
    print("| response | passages together | ms | word overlap, ms |\n|---|---|---|---|")
    for response, kilobytes in ((1_700, 1), (1_700, 8), (1_700, 64), (8_192, 8), (8_192, 64)):
        count = max(7, rounds * 8 // max(8, kilobytes))
        new = [usual(response, kilobytes, seed, 100 + seed) for seed in range(count)]
        plain = statistics.median(timed(overlap, row_of(sample)) for sample in new) * 1e3
        print(f"| {response:,} | {kilobytes} KB | {milliseconds(new):.2f} | {plain:.2f} |")
    print("\n| words: contexts + response | ms | ms per 1,000 words |\n|---|---|---|")
    for times in (1, 4, 16, 64, 256):
        sample = text_sample(500 * times, 150 * times)
        took = milliseconds([sample] * max(3, rounds // times), [sample])
        print(f"| {500 * times:,} + {150 * times:,} | {took:.2f} | {took / 0.65 / times:.2f} |")


def usual(response, kilobytes, seed, passages):
    """A response of so many characters and six passages; the two are drawn apart."""
    lines = (HERE / "corpus" / "en.txt").read_text("utf-8").splitlines()
    draw, drawn = random.Random(seed), random.Random(passages)
    contexts = tuple(Context(text=characters(kilobytes * 1024 // 6, lines, drawn)) for _ in range(6))
    return Sample(id="s", started_at=0.0, response=characters(response, lines, draw), contexts=contexts)


def characters(count, lines, draw):
    found: list[str] = []
    while sum(map(len, found)) + len(found) < count:
        found.append(draw.choice(PUT_IN if draw.random() < 0.1 else lines))
    return " ".join(found)


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


def row_of(sample):
    return {"response": sample.response, "retrieved_contexts": [context.text for context in sample.contexts]}


def timed(work, argument):
    started = time.process_time()
    work(argument)
    return time.process_time() - started


def milliseconds(samples, warm=()):
    """The median time of one of these samples, scored one after the other by one metric after those of `warm`."""
    metric = LexicalGroundedness()
    for sample in warm:
        asyncio.run(metric.score(sample))
    return statistics.median(timed(metric._score, sample) for sample in samples) * 1e3  # noqa: SLF001 - without a loop


if __name__ == "__main__":
    main()
