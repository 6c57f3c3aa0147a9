"""One gateway and one monitors process beside two and three: how much they evaluate, and whether they agree.

    python benchmarks/fleet/run.py [--exchanges 3000] [--rounds 3] [--only throughput,drop]

Every run starts afresh, with empty engines, and sends the same requests (ids of traces included) through the gateways.
Throughput is from the first request until the queue is empty, with a judge that takes its time and one that takes none;
the stands take turns, and the medians of the rounds are shown. After each run: the evaluations in the store against
those of the first run of the embedded stand, and the counters of all processes against what was sent. Then a drop is
played to each, bucket by bucket at the same moments of the clock; a fleet's leader is killed with 9 meanwhile, and
looked for every 50 ms. Writes results/fleet.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from stands import upstream
from table import written

from tests.support.fleet import (
    ALERTS,
    CONFIG,
    RATES,
    Drop,
    Fleet,
    Leaders,
    Told,
    evaluated,
    told,
    wait_closed,
)
from tests.support.postgres import Postgres, own_server
from tests.support.product import Webhook
from tests.support.redis import own_redis
from tests.support.traffic import Sent, request_of, send

RESULTS = Path(__file__).parent / "results" / "fleet.md"
DELAYS = (0.2, 0.0)
DROP = Drop(bucket_s=2.0, healthy=12, broken=8, per_bucket=24)
KILLED_AFTER = 5


@dataclass(frozen=True, kw_only=True)
class Stand:
    """So many processes over these engines."""

    name: str
    queue: str
    gateways: int = 1
    monitors: int = 1


STANDS = (
    Stand(name="1 + 1, SQLite (embedded)", queue="sqlite"),
    Stand(name="1 + 1, PostgreSQL", queue="postgres"),
    Stand(name="2 + 3, PostgreSQL", queue="postgres", gateways=2, monitors=3),
    Stand(name="2 + 3, Redis + PostgreSQL", queue="redis", gateways=2, monitors=3),
)


@dataclass(kw_only=True)
class Run:
    """What one run showed."""

    per_s: float
    median_ms: float
    p99_ms: float
    unharmed: bool
    rows: int
    other: int
    missing: int
    counters: dict[str, tuple[float, float]]


@dataclass(kw_only=True)
class Played:
    """What came of the drop."""

    told: Told
    unharmed: bool
    looks: int = 0
    leaders: tuple[int, int, float] = (0, 0, 0.0)
    terms: tuple[int, int] = (0, 0)


@dataclass(kw_only=True)
class Results:
    """All of it, by stand (and delay)."""

    exchanges: int
    runs: dict[tuple[str, float], list[Run]] = field(default_factory=dict)
    played: dict[str, Played] = field(default_factory=dict)


@contextlib.contextmanager
def engines(stand: Stand, server: Postgres, directory: Path) -> Iterator[tuple[str, str]]:
    """Empty engines; yields the URLs of queue and store."""
    if stand.queue == "sqlite":
        yield f"sqlite:///{directory}/queue.db", f"sqlite:///{directory}/store.db"
        return
    store = server.database()
    if stand.queue == "postgres":
        yield store, store
        return
    redis = own_redis(durable=True, options={"appendfsync": "everysec"})
    try:
        yield redis.url(), store
    finally:
        redis.destroy()


def throughput(stand: Stand, server: Postgres, delay_s: float, requests: list[bytes]) -> tuple[Run, list]:
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        directory = Path(scratch)
        url = stack.enter_context(upstream(delay_s))
        queue, store = stack.enter_context(engines(stand, server, directory))
        config = CONFIG.format(url=url, queue=queue, store=store, **RATES)
        fleet = stack.enter_context(Fleet(directory, config, gateways=stand.gateways, monitors=stand.monitors))
        sent, began = Sent(), time.monotonic()
        asyncio.run(send(fleet.ports, requests, sent))
        took = fleet.settle(sent.count, within_s=900) - began
        rows = evaluated(store)
        samples = len({trace for trace, *_ in rows})
        counters = {
            "requests_total": (fleet.reach(sent.count, "requests_total"), sent.count),
            "exchanges_total": (fleet.reach(sent.count, "exchanges_total"), sent.count),
            "captured": (fleet.counted("exchanges_total", outcome="captured"), samples),
            "evaluations_total": (fleet.reach(len(rows), "evaluations_total"), len(rows)),
        }
    slowest = sorted(sent.seconds)
    run = Run(
        per_s=samples / took,
        median_ms=1000 * slowest[len(slowest) // 2],
        p99_ms=1000 * slowest[len(slowest) * 99 // 100],
        unharmed=sent.unharmed,
        rows=len(rows),
        other=0,
        missing=0,
        counters=counters,
    )
    return run, rows


def compared(rows: list, first: list) -> tuple[int, int]:
    """How many evaluations have another outcome than in the first run, and how many only one of both has, or twice."""
    here, there = ({tuple(row[:3]): row[3:] for row in some} for some in (rows, first))
    doubled = len(rows) - len(here)
    return sum(here[key] != there[key] for key in here.keys() & there.keys()), len(here.keys() ^ there.keys()) + doubled


def drop(stand: Stand, server: Postgres) -> Played:
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        directory, hook, sent = Path(scratch), stack.enter_context(contextlib.closing(Webhook())), Sent()
        url = stack.enter_context(upstream(0.0))
        queue, store = stack.enter_context(engines(stand, server, directory))
        values = {"url": url, "queue": queue, "store": store, "hook": hook.url, "bucket_s": DROP.bucket_s}
        config = (CONFIG + ALERTS).format(**values, **(RATES | {"faithfulness": 0.8}), budget=60)
        fleet = stack.enter_context(Fleet(directory, config, gateways=stand.gateways, monitors=stand.monitors))
        many = stand.monitors > 1
        leaders = stack.enter_context(Leaders(server, store, fleet.monitors)) if many else None
        terms: list[int] = []

        def after(bucket: int) -> None:
            if leaders is not None and bucket == KILLED_AFTER:
                pid, term = leaders.holder()
                terms.append(term)
                fleet.kill(pid)

        broken_at = DROP.play([fleet], [sent], after)
        fleet.settle(sent.count)
        wait_closed(store, broken_at + DROP.broken * DROP.bucket_s)
        time.sleep(3)  # a second message would come by now
        played = Played(told=told(store, hook, broken_at), unharmed=sent.unharmed)
        if leaders is not None:
            played.looks = leaders.looks
            played.leaders = leaders.many, leaders.acting_many, leaders.longest_without
            played.terms = terms[0], leaders.holder()[1]
    return played


def main() -> None:
    asking = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asking.add_argument("--exchanges", type=int, default=3000)
    asking.add_argument("--rounds", type=int, default=3)
    asking.add_argument("--only", default="throughput,drop")
    asking.add_argument("--out", type=Path, default=RESULTS)
    options = asking.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by an exception, so that what was started is stopped
    results = Results(exchanges=options.exchanges)
    requests = [request_of(number) for number in range(options.exchanges)]
    server = own_server(fsync="on", max_connections="120", shared_buffers="128MB")
    first: list = []
    try:
        for turn in range(options.rounds if "throughput" in options.only else 0):
            for delay_s in DELAYS:
                for stand in STANDS if turn % 2 == 0 else STANDS[::-1]:
                    run, rows = throughput(stand, server, delay_s, requests)
                    first = first or rows
                    run.other, run.missing = compared(rows, first)
                    results.runs.setdefault((stand.name, delay_s), []).append(run)
                    print(f"{stand.name}, judge {delay_s:g} s: {run}", flush=True)
        for stand in STANDS if "drop" in options.only else ():
            results.played[stand.name] = played = drop(stand, server)
            print(f"{stand.name}: {played}", flush=True)
    finally:
        server.destroy()
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    text = written(results, [one.name for one in STANDS], f"{Path(sys.argv[0]).name} {' '.join(sys.argv[1:])}", machine)
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()
