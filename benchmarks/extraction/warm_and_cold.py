"""What it costs to find question and passages in prompts of 8 KB, before their app's template is learned and after.

    python benchmarks/extraction/warm_and_cold.py [--requests 60]

Each layout of the tests is one app. Its requests hold passages of a pool of 24, which recur, and a question of their
own. "cold" is the chain of extractors, "warm" the learned template with what it costs to go on learning. Printed are
microseconds of CPU for one request: the median over the layouts of each layout's median, and the slowest layout. Also
the memory that 200 apps with 5 prompts each take, learning included (bytes as the learner counts them, and resident).
"""

from __future__ import annotations

import argparse
import platform
import random
import resource
import statistics
import sys
import time
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from gateway.capture.exchange_reader import extract  # noqa: E402 - the tree is not installed everywhere
from gateway.capture.factory import capture_of  # noqa: E402
from gateway.config import Capture as Settings  # noqa: E402
from gaugeway.exchange import Exchange, Request, Response  # noqa: E402
from tests.gaugeway.prompts.layouts import LAYOUTS  # noqa: E402

SIZE = 8_192
POOL = 24
LEARNED_BY = 30
NOUNS = ["valve", "shelf", "ferry", "orchard", "ledger", "boiler", "harbour", "meter", "garden", "bridge", "engine"]
VERBS = [
    "opens",
    "closes",
    "carries",
    "needs",
    "shows",
    "stores",
    "measures",
    "replaces",
    "follows",
    "reaches",
    "marks",
]
ANSWER = {"choices": [{"message": {"role": "assistant", "content": "Two hundred."}, "finish_reason": "stop"}]}


def sentences(rng, length):
    said = []
    while sum(map(len, said)) < length:
        one, other = rng.sample(NOUNS, 2)
        said.append(f"The {one} {rng.choice(VERBS)} the {other} after {rng.randint(2, 900)} days. ")
    return "".join(said).strip()


def exchange(app, prompt):
    body = {"messages": [{"role": "user", "content": prompt}]}
    return Exchange(
        id="0",
        started_at=0.0,
        duration_s=1.0,
        first_chunk_s=None,
        ending="complete",
        stream=False,
        model="m",
        app=app,
        request=Request(route="chat_completions", headers={}, body=body),
        response=Response(status=200, body=ANSWER, text="Two hundred.", finish_reason="stop"),
    )


def traffic(layout, number, rng, size=SIZE):
    """Yield prompts of a layout, each with other passages of its pool and another question."""
    length = max((size - len(layout.prompt)) // len(layout.passages), 80)
    pool = [sentences(rng, length) for _ in range(POOL)]
    while True:
        prompt = layout.prompt
        for old, new in zip(layout.passages, rng.sample(pool, len(layout.passages)), strict=True):
            prompt = prompt.replace(old, new)
        asked = (
            f"Which {rng.choice(NOUNS)} {rng.choice(VERBS)} the {rng.choice(NOUNS)} {number} after {rng.random():.4f}?"
        )
        yield prompt.replace(layout.question, asked)


def timed(work, exchanges):
    """Return the median of CPU microseconds that the work takes for each."""
    times = []
    for one in exchanges:
        begin = time.process_time_ns()
        work(one)
        times.append((time.process_time_ns() - begin) / 1_000)
    return statistics.median(times)


def costs(requests):
    cold, warm = {}, {}
    for number, layout in enumerate(LAYOUTS):
        prompts = traffic(layout, number, random.Random(number))
        capture = capture_of(Settings(), "key", lambda _: None)
        seen = [exchange("app", next(prompts)) for _ in range(LEARNED_BY + requests)]
        cold[layout.name] = timed(partial(extract, extractors=capture.extractors), seen)  # without learning
        for one in seen[:LEARNED_BY]:
            capture.make(one)
        if capture.make(seen[LEARNED_BY - 1]).context_source == "learned":
            warm[layout.name] = timed(partial(capture._extract, learns=True), seen[LEARNED_BY:])  # noqa: SLF001 - as above
    return cold, warm


def row(name, found):
    slowest = max(found, key=found.get)
    print(f"| {name} | {statistics.median(found.values()):.0f} | {found[slowest]:.0f} ({slowest}) | {len(found)} |")


def memory(apps=200, prompts=5, requests=40):
    capture = capture_of(Settings(), "key", lambda _: None)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    most = 0
    for app in range(apps):
        each = [traffic(layout, app, random.Random(f"{app} {layout.name}"), 2_048) for layout in LAYOUTS[:prompts]]
        for _ in range(requests):
            for one in each:
                capture.make(exchange(f"app-{app}", f"You work for department {app}.\n{next(one)}"))
        most = max(most, capture.learned.learner.size)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    templates = len(capture.learned.learner.templates())
    print(f"\n{apps} apps with {prompts} prompts, {apps * prompts * requests} requests: {templates} templates learned,")
    print(f"at most {most / 1e6:.1f} MB held for learning, {grown:.0f} MB more resident")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=60)
    cold, warm = costs(parser.parse_args().requests)
    print(f"Python {platform.python_version()}, {platform.machine()}\n")
    print("| 8 KB, microseconds of CPU | median | slowest layout | layouts |\n|---|---:|---:|---:|")
    row("cold", cold)
    row("warm", warm)
    memory()


if __name__ == "__main__":
    main()
