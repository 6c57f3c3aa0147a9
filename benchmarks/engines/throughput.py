"""What queue and store do in a second: SQLite, PostgreSQL and Redis side by side, one process, this machine.

python benchmarks/engines/throughput.py [--exchanges 4000]

PostgreSQL is Debian's with its defaults, reached over loopback: every commit waits for the disk. The column beside it
has `synchronous_commit = off`, which like SQLite's `synchronous = NORMAL` may lose the last moment when the machine
(not the process) dies. Redis is a queue only: the store beside it is SQLite. It logs its writes, and flushes the log
once a second (its default, may lose that second when the machine dies) or before every answer. Writes
results/throughput.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from gaugeway.records import Context, Evaluation, Sample, Score
from gaugeway.storage.engines.postgres.queue import PostgresQueue
from gaugeway.storage.engines.postgres.store import PostgresStore
from gaugeway.storage.engines.redis.queue import RedisQueue
from gaugeway.storage.engines.sqlite.queue import SQLiteQueue
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.stores import Query
from tests.support.postgres import own_server
from tests.support.redis import own_redis

RESULTS = Path(__file__).parent / "results" / "throughput.md"
METRICS = ("lexical_groundedness", "faithfulness", "answer_relevancy", "context_relevancy", "hallucination")
DAYS, DAY_S, BATCH, AT_ONCE = 30, 86_400.0, 100, 8
T0 = 1_760_000_000.0 // DAY_S * DAY_S
TEXT = "Mars has two moons, Phobos and Deimos, found in 1877. " * 12


def sample(number: int, count: int) -> Sample:
    return Sample(
        id=f"x{number:08}",
        started_at=T0 + DAYS * DAY_S * number / count,
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
    return [
        Evaluation(
            sample_id=one.id, metric=metric, version="1", outcome=Score(0.5, "a reason", ({"claim": "a claim"},))
        )
        for metric in METRICS
    ]


async def at_once(work: list[Callable[[], Awaitable[Any]]]) -> None:
    waiting = iter(work)

    async def one() -> None:
        for job in waiting:
            await job()

    await asyncio.gather(*(one() for _ in range(AT_ONCE)))


async def writes(queue: Any, store: Any, count: int) -> dict[str, float]:
    """Rates, a second: batches put, samples worked off, samples added."""
    made = [sample(number, count) for number in range(count)]
    rates = {}
    begin = time.perf_counter()
    for start in range(0, count, BATCH):
        await queue.put(made[start : start + BATCH])
    rates[f"put, {BATCH} at a time"] = count / (time.perf_counter() - begin)

    begin, half = time.perf_counter(), count // 2
    for _ in range(half // AT_ONCE):
        leases = await queue.lease(AT_ONCE)
        await asyncio.gather(*(queue.ack([lease.sample.id]) for lease in leases))
    rates[f"lease {AT_ONCE}, ack each"] = half / (time.perf_counter() - begin)

    async def work_off(one: Sample) -> None:
        if hasattr(store, "settle"):
            await store.settle(one, evaluations(one))
        else:
            await store.add(one, evaluations(one))
            await queue.ack([one.id])

    begin, done = time.perf_counter(), 0
    while leases := await queue.lease(AT_ONCE):
        await asyncio.gather(*(work_off(lease.sample) for lease in leases))
        done += len(leases)
    rates[f"lease {AT_ONCE}, store {len(METRICS)} evaluations each, ack"] = done / (time.perf_counter() - begin)

    rest = made[: count - done]
    begin = time.perf_counter()
    await at_once([lambda one=one: store.add(one, evaluations(one)) for one in rest])
    rates[f"add with {len(METRICS)} evaluations, {AT_ONCE} at once"] = len(rest) / (time.perf_counter() - begin)
    return rates


async def reads(store: Any, count: int) -> dict[str, float]:
    """Medians of milliseconds, the first answer not counted."""
    end = T0 + DAYS * DAY_S
    day, month = Query(since=end - DAY_S, until=end), Query(since=T0, until=end)
    questions = {
        "sample by its id": lambda: store.sample(f"x{count // 2:08}"),
        "series of one metric, one day": lambda: store.series(Query(since=end - DAY_S, until=end, metric=METRICS[0])),
        "newest 50 of one app, 30 days": lambda: store.series(
            Query(since=T0, until=end, app="app1", order="newest", limit=50)
        ),
        "summary, one day": lambda: store.summary(day),
        "summary, 30 days": lambda: store.summary(month),
        "summary by tag, 30 days": lambda: store.summary(month, "tag:tenant"),
        "paired, 30 days": lambda: store.paired(month, METRICS[0]),
        "samples of a trace": lambda: store.supplements_of(sample(5, count)),
    }
    found = {}
    for name, ask in questions.items():
        seconds = []
        for _ in range(8):
            begin = time.perf_counter()
            await ask()
            seconds.append(time.perf_counter() - begin)
        found[name] = 1000 * statistics.median(seconds[1:])
    return found


async def memory(count: int) -> float:
    """Bytes of Redis' memory for each sample that waits in it."""
    server = own_redis()
    queue = RedisQueue.from_url(server.url(), 600.0, 5)

    def used() -> int:
        return int(server.ask("INFO", "memory")["used_memory"])  # type: ignore[index]

    try:
        await queue.put([sample(0, 1)])
        before = used()
        for start in range(1, count, BATCH):
            await queue.put([sample(number, count) for number in range(start, start + BATCH)])
        return (used() - before) / (await queue.depth()).ready
    finally:
        await queue.aclose()
        server.destroy()


@contextlib.asynccontextmanager
async def engines(name: str, directory: Path) -> AsyncIterator[tuple[Any, Any]]:
    if name == "SQLite":
        queue: Any = SQLiteQueue(directory / "queue.db", 600.0, 5)
        store: Any = SQLiteStore(directory / "store.db")
        server: Any = None
    elif name.startswith("Redis"):
        server = own_redis(durable=True, options={"appendfsync": name.rsplit(maxsplit=1)[-1]})
        queue, store = RedisQueue.from_url(server.url(), 600.0, 5), SQLiteStore(directory / "store.db")
    else:
        settings = {"fsync": "on", "shared_buffers": "256MB"}
        settings |= {"synchronous_commit": "off"} if "off" in name else {}
        server = own_server(**settings)
        url = server.database()
        queue, store = PostgresQueue(url, 600.0, 5), PostgresStore(url)
    try:
        yield queue, store
    finally:
        await queue.aclose()
        await store.aclose()
        if server is not None:
            server.destroy()


async def main() -> None:
    asking = argparse.ArgumentParser()
    asking.add_argument("--exchanges", type=int, default=4000)
    count = asking.parse_args().exchanges
    stores = ["SQLite", "PostgreSQL", "PostgreSQL, synchronous_commit off"]
    names = [*stores, "Redis, appendfsync everysec", "Redis, appendfsync always"]
    results = {}
    for name in names:
        with tempfile.TemporaryDirectory() as directory:
            async with engines(name, Path(directory)) as (queue, store):
                results[name] = await writes(queue, store, count), await reads(store, count) if name in stores else {}
    kb = len(TEXT) * 5 / 1000
    said = (
        f"`python benchmarks/engines/throughput.py --exchanges {count}`: {count} exchanges of {kb:.1f} KB over {DAYS} "
        f"days, {len(METRICS)} evaluations each; one process, engine on the same machine ({platform.machine()}, Python "
        f"{platform.python_version()}), which has other work: take the columns against each other. Redis is a queue "
        f"only, with SQLite's store; a sample that waits in it takes {await memory(count) / 1000:.1f} KB of memory."
    )
    lines = [
        "# What queue and store do in a second",
        "",
        said,
        "",
        "| a second | " + " | ".join(names) + " |",
        "|---|" + "---|" * len(names),
        *(
            f"| {row} | " + " | ".join(f"{results[n][0][row]:,.0f}" for n in names) + " |"
            for row in results[names[0]][0]
        ),
        "",
        "| ms (median of 7) | " + " | ".join(stores) + " |",
        "|---|" + "---|" * len(stores),
        *(
            f"| {row} | " + " | ".join(f"{results[n][1][row]:.1f}" for n in stores) + " |"
            for row in results[names[0]][1]
        ),
        "",
    ]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("\n".join(lines), "utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    asyncio.run(main())
