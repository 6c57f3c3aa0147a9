"""Joins scripted conversations: how many exchanges are joined rightly and wrongly, and what it costs.

python benchmarks/conversations/run.py [--conversations 1000] [--seed 1] [--store URL]

Two gateways with one key make the samples, two joiners on one store take them in an order that is shuffled within a
second, as of two workers. An exchange that continues another one is joined right if it is joined to one of its own
conversation, and wrong if to one of another. It is whole if it has the conversation of that conversation's first
exchange and the right turn: one exchange that cannot be told from another's splits its conversation in two.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.conversations.scripted import Call, conversations
from examples.storage_engine.gaugeway_memory.queue import MemoryQueue
from gateway.capture.conversation import ConversationReader
from gateway.capture.exchange_reader import Capture
from gateway.capture.factory import extractors_of
from gateway.config import Capture as Settings
from gaugeway.records import Sample
from gaugeway.storage.conversations import Linked
from gaugeway.storage.stores import Store, from_url
from monitors.evaluation.conversations import ConversationJoiner
from monitors.evaluation.persist import Persistence, WorkerObserver

_LIMIT = 10_000_000
_BATCH = 16


class Counted(WorkerObserver):
    """Counts the results of joining."""

    def __init__(self) -> None:
        self.results: Counter[str] = Counter()

    def linked(self, result: str, count: int) -> None:
        self.results[result] += count


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """What became of one set of conversations, by kind of app: exchanges that continue others, right and wrong ones."""

    due: Counter[str]
    right: Counter[str]
    placed: Counter[str]
    wrong: Counter[str]
    results: Counter[str]
    link_us: float
    join_us: float


def samples_of(
    calls: Sequence[Call], *, keys: tuple[str, str] = ("k", "k"), rate: float = 1.0
) -> tuple[list[Sample], float]:
    """Make the samples of two gateways; return them with the processor time that links take, in µs for each."""
    settings = Settings()
    gateways = [Capture(extractors_of(settings), rate=rate, salt=key, limit=_LIMIT) for key in keys]
    samples, exchanges = [], []
    for number, call in enumerate(calls):
        gateway = gateways[number % 2]
        recording = call.recording(f"e{number:06}")
        if gateway.decide(recording) == "captured":
            exchanges.append(gateway.read(recording))
            samples.append(gateway.make(exchanges[-1]))
    reader = ConversationReader(keys[0], history_turns=0)
    gc.collect()
    gc.freeze()  # a sampler holds one batch, not all exchanges
    spent = []
    for _ in range(3):
        began = time.process_time()
        for exchange, sample in zip(exchanges, samples, strict=True):
            reader.read(exchange, sample.question)
        spent.append(time.process_time() - began)
    return samples, 1e6 * min(spent) / len(samples)


async def join(
    samples: Sequence[Sample], stores: Sequence[Store], seed: int, *, jitter_s: float = 1.0
) -> tuple[float, Counter[str]]:
    """Join the samples by several joiners; return the processor time for each, in µs, and the results."""
    draw = random.Random(seed)
    counted = Counted()
    joiners = [
        ConversationJoiner(
            store, Persistence(MemoryQueue(), store, on_error=lambda _: None, stopping=asyncio.Event()), counted
        )
        for store in stores
    ]
    ordered = sorted(samples, key=lambda one: one.started_at + (one.duration_s or 0.0) + draw.uniform(0.0, jitter_s))
    began, start = time.process_time(), 0
    while start < len(ordered):
        batches = []
        for joiner in joiners:
            size = draw.randint(1, _BATCH)
            batches.append(joiner.join(ordered[start : start + size]))
            start += size
        await asyncio.gather(*batches)
    return 1e6 * (time.process_time() - began) / len(ordered), counted.results


async def links_of(samples: Sequence[Sample], store: Store) -> dict[str, Linked]:
    """Return the stored links of the samples by id."""
    ids = [sample.id for sample in samples]
    pages = [await store.links(ids[start : start + 500]) for start in range(0, len(ids), 500)]
    return {one.id: one for page in pages for one in page}


async def check(calls: Sequence[Call], samples: Sequence[Sample], store: Store) -> tuple[Counter[str], ...]:
    """Compare the places in the store with the truth."""
    truth = {f"e{number:06}": call for number, call in enumerate(calls)}
    found = await links_of(samples, store)
    first: dict[str, str] = {}
    for name, call in truth.items():
        if name in found:
            first.setdefault(call.conversation, name)
    due, right, placed, wrong = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for name, one in found.items():
        call = truth[name]
        if one.place.before is not None and truth[one.place.before].conversation != call.conversation:
            wrong[call.kind] += 1
        if name == first[call.conversation]:
            continue
        due[call.kind] += 1
        before = one.place.before
        right[call.kind] += before is not None and truth[before].conversation == call.conversation
        first_place = found[first[call.conversation]].place
        placed[call.kind] += (
            one.place.conversation == first_place.conversation
            and one.place.turn == call.turn
            and one.place.inner == call.inner
        )
    return due, right, placed, wrong


async def measure(n: int, seed: int, url: str, *, canned: float, users: float, rate: float = 1.0) -> Joined:
    """Join `n` conversations in the store at `url`."""
    calls = list(conversations(n, seed, canned=canned, users=users))
    samples, link_us = samples_of(calls, rate=rate)
    stores = [from_url(url) for _ in range(2)]
    try:
        join_us, results = await join(samples, stores, seed)
        due, right, placed, wrong = await check(calls, samples, stores[0])
    finally:
        for store in stores:
            await store.aclose()
    return Joined(due=due, right=right, placed=placed, wrong=wrong, results=results, link_us=link_us, join_us=join_us)


def report(found: Joined) -> str:
    """The table of one measurement."""
    lines = ["| app | exchanges that continue one | joined right | whole | wrong |", "|---|--:|--:|--:|--:|"]
    for kind, n in [*sorted(found.due.items()), ("all", found.due.total())]:
        right, placed, wrong = (
            one.total() if kind == "all" else one[kind] for one in (found.right, found.placed, found.wrong)
        )
        lines.append(f"| {kind} | {n:,} | {100 * right / n:.2f} % | {100 * placed / n:.2f} % | {wrong} |")
    results = ", ".join(f"{name} {n:,}" for name, n in found.results.most_common())
    lines += ["", f"Results: {results}.", ""]
    lines.append(
        f"Processor time: links {found.link_us:.1f} µs an exchange in the sampler, joining {found.join_us:.0f} µs."
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--conversations", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--canned", type=float, default=0.1)
    parser.add_argument("--users", type=float, default=0.5)
    parser.add_argument("--rate", type=float, default=1.0)
    parser.add_argument("--store")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        url = given.store or f"sqlite:///{directory}/store.db"
        more = {"canned": given.canned, "users": given.users, "rate": given.rate}
        print(report(asyncio.run(measure(given.conversations, given.seed, url, **more))))


if __name__ == "__main__":
    main()
