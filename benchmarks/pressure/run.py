"""A judge for a fifth of the traffic, then a fast one; a queue that is killed for two minutes: what becomes of it all.

    python benchmarks/pressure/run.py [--per-s 10] [--scale 1.0]

The product with a Redis queue and a SQLite store, between two scripted servers. The answers are worse while the judge
is slow, so that an unweighted mean would be wrong. `--scale` shortens all phases alike. Writes results/pressure.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import platform
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).parents[2]))

from gaugeway.records import Score
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from monitors.statistics.weighted_mean import hajek
from tests.support.llm_server import LLMServer, Reply
from tests.support.product import Product, product
from tests.support.redis import RedisServer, own_redis

RESULTS = Path(__file__).parent / "results" / "pressure.md"
CONCURRENCY, FAST_S = 4, 0.02
GOOD = {"calm": 0.95, "slow": 0.6}
CONFIG = """
[[upstreams]]
base_url = "{upstream}"
[judge]
base_url = "{judge}"
model = "scripted"
concurrency = 4
cache = "off"
[queue]
url = "{queue}"
spill_bytes = 100000000
[monitors]
join_window_s = 0
[metrics.faithfulness]
rate = 1.0
[metrics.answer_relevancy]
enabled = false
[metrics.context_relevancy]
enabled = false
[metrics.hallucination]
enabled = false
[metrics.context_utilization]
enabled = false
"""
SHOWN = {
    "judge": ("monitors", "gaugeway_judge_pace_factor"),
    "depth": ("monitors", "gaugeway_queue_depth"),
    "oldest": ("monitors", "gaugeway_queue_oldest_seconds"),
    "capture": ("gateway", "gaugeway_capture_factor"),
    "memory": ("gateway", "gaugeway_handoff_waiting"),
    "spilled": ("gateway", "gaugeway_spilled_total"),
}


@dataclass
class World:
    """What the scripted servers do now, and what was sent and seen."""

    judge_s: float = FAST_S
    good: float = GOOD["calm"]
    sent: int = 0
    failed: int = 0
    slowest_s: float = 0.0
    truth: list[bool] = field(default_factory=list)
    seen: list[tuple[str, float, dict[str, float]]] = field(default_factory=list)
    phase: str = ""


@dataclass(frozen=True)
class Phase:
    """So many seconds of traffic."""

    name: str
    seconds: float
    judge_s: float
    good: float
    queue: bool = True


def verdict(world: World):
    """Answer as a judge would: what says GOOD is supported."""

    def answer(request):
        claim = {"claim": "The moon", "verdict": "contradicted", "contexts": [0], "relevance": "relevant"}
        claim["quote"] = "The moon is one."
        if "GOOD" in request.text:
            claim["verdict"] = "supported"
        return Reply(content={"noncommittal": False, "claims": [claim]}, delay_s=world.judge_s)

    return answer


def reply(request):
    """Answer as the question wants it."""
    return Reply(content="The moon is one: GOOD." if "GOOD" in request.text else "The moons are nine: BAD.")


async def ask(client: httpx.AsyncClient, url: str, world: World) -> None:
    good = random.random() < world.good
    world.sent += 1
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": f"{world.sent}: how many moons? {'GOOD' if good else 'BAD'}"}],
        "gaugeway": {"contexts": ["The moon is one."]},
    }
    began = time.monotonic()
    try:
        response = await client.post(f"{url}/chat/completions", json=body)
        world.failed += response.status_code != 200
    except httpx.HTTPError:
        world.failed += 1
    world.truth.append(good)
    world.slowest_s = max(world.slowest_s, time.monotonic() - began)


async def traffic(url: str, world: World, per_s: float) -> None:
    async with httpx.AsyncClient(timeout=30) as client, asyncio.TaskGroup() as group:
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                group.create_task(ask(client, url, world))
                await asyncio.sleep(random.expovariate(per_s))


async def watch(running: Product, world: World) -> None:
    planes = {"monitors": running.monitors, "gateway": running.admin}
    while True:
        with contextlib.suppress(httpx.HTTPError):
            values = {
                name: await asyncio.to_thread(running.value, planes[plane], series)
                for name, (plane, series) in SHOWN.items()
            }
            world.seen.append((world.phase, time.monotonic(), values))
        await asyncio.sleep(2.0)


async def play(running: Product, engine: RedisServer, world: World, phases: list[Phase], per_s: float) -> float:
    """Play all phases; return how long it took afterwards until nothing waited."""
    sending = asyncio.ensure_future(traffic(running.base_url, world, per_s))
    watching = asyncio.ensure_future(watch(running, world))
    for phase in phases:
        world.phase, world.judge_s, world.good = phase.name, phase.judge_s, phase.good
        if not phase.queue:
            await asyncio.to_thread(engine.stop)
        await asyncio.sleep(phase.seconds)
        if not phase.queue:
            await asyncio.to_thread(engine.start)
    sending.cancel()
    await asyncio.wait([sending])
    world.phase, began = "afterwards", time.monotonic()
    await asyncio.to_thread(running.until, lambda: drained(running), 300, what="all of it is evaluated")
    watching.cancel()
    await asyncio.wait([watching])
    return time.monotonic() - began


def drained(running: Product) -> bool:
    def spilled(step: str) -> float:
        return running.value(running.admin, "gaugeway_spilled_total", result=step)

    waiting = running.value(running.admin, "gaugeway_handoff_waiting")
    depth = running.value(running.monitors, "gaugeway_queue_depth")
    time.sleep(1.0)
    return not (waiting or depth or spilled("spilled") != spilled("returned"))


def outcomes(running: Product) -> dict[str, int]:
    names = "captured", "sampled_out", "back_pressure", "opted_out", "overflow", "too_large", "error"
    return {name: round(running.value(running.admin, "gaugeway_exchanges_total", outcome=name)) for name in names}


async def judged(path: Path) -> tuple[int, list[tuple[float, float]], Counter[str]]:
    """The samples in the store; value and rate of each score; what other outcomes there are."""
    store = SQLiteStore(path)
    total, after, scores, others = 0, "", [], Counter[str]()
    while ids := await store.ids(after, 500):
        after = ids[-1]
        for name in ids:
            total += 1
            found = await store.sample(name)
            for one in found[1] if found else ():
                if one.metric == "faithfulness":
                    if isinstance(one.outcome, Score):
                        scores.append((one.outcome.value, one.rate))
                    else:
                        others[type(one.outcome).__name__] += 1
    await store.aclose()
    return total, scores, others


def table(world: World, phases: list[Phase]) -> list[str]:
    lines = [
        (
            "| phase | seconds | judge's factor, mean (least) | in its second half | oldest, s, at most "
            "| waiting, at most | capture's factor, least | in memory, at most | spilled and returned |"
        ),
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for phase in phases:
        rows = [values for name, _, values in world.seen if name == phase.name]
        factors, later = [row["judge"] for row in rows], [row["judge"] for row in rows[len(rows) // 2 :]]
        oldest = f"{max(row['oldest'] for row in rows):.0f}" if phase.queue else "-"
        lines.append(
            f"| {phase.name} | {phase.seconds:.0f} | {statistics.mean(factors):.2f} ({min(factors):.2f}) "
            f"| {statistics.mean(later):.2f} ± {statistics.pstdev(later):.2f} | {oldest} "
            f"| {max(row['depth'] for row in rows):.0f} | {min(row['capture'] for row in rows):.2f} "
            f"| {max(row['memory'] for row in rows):.0f} | {rows[-1]['spilled'] - rows[0]['spilled']:.0f} |"
        )
    return lines


@dataclass(frozen=True, kw_only=True)
class Played:
    """What it came to."""

    phases: list[Phase]
    per_s: float
    after_s: float
    ended: dict[str, int]
    store: Path


def report(world: World, played: Played) -> str:
    phases, per_s = played.phases, played.per_s
    total, scores, others = asyncio.run(judged(played.store))
    found = hajek([value for value, _ in scores], [rate for _, rate in scores])
    error = 1.96 * found.sd / found.n_eff**0.5
    began = next(at for name, at, _ in world.seen if name == phases[2].name)
    fast = next((at for name, at, row in world.seen if name == phases[2].name and row["judge"] == 1.0), None)
    return "\n".join(
        [
            "# Back-pressure",
            "",
            (
                f"`python benchmarks/pressure/run.py --per-s {per_s:g}`, {datetime.now(UTC):%Y-%m-%d}; "
                f"{platform.machine()}, {platform.python_implementation()} {platform.python_version()}, "
                "Redis with an append-only file, on a machine that others used too. "
                f"{per_s:g} exchanges a second; "
                f"the slow judge does {CONCURRENCY / phases[1].judge_s:g} samples a second."
            ),
            "",
            *table(world, phases),
            "",
            (
                f"- Exchanges: {world.sent} sent, {world.failed} failed, slowest {world.slowest_s:.2f} s. "
                f"Outcomes: {', '.join(f'{name} {count}' for name, count in played.ended.items() if count)}."
            ),
            f"- In the store: {total} samples. Not captured or not stored: {world.sent - total}.",
            f"- Judged: {len(scores)} ({len(scores) / total:.0%}); other outcomes: {dict(others) or 'none'}.",
            (
                f"- Mean of all answers {statistics.mean(world.truth):.3f}; of the judged, weighted by 1/rate "
                f"{found.mean:.3f} ± {error:.3f}; unweighted {statistics.mean(value for value, _ in scores):.3f}."
            ),
            (
                f"- Back at factor 1 after {'?' if fast is None else f'{fast - began:.0f}'} s with the fast judge. "
                f"All evaluated {played.after_s:.0f} s after the last exchange."
            ),
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--per-s", type=float, default=10.0)
    parser.add_argument("--scale", type=float, default=1.0)
    given = parser.parse_args()
    slow_s = 5 * CONCURRENCY / given.per_s
    phases = [
        Phase("fast judge", 60 * given.scale, FAST_S, GOOD["calm"]),
        Phase("slow judge", 240 * given.scale, slow_s, GOOD["slow"]),
        Phase("fast again", 120 * given.scale, FAST_S, GOOD["calm"]),
        Phase("no queue", 120 * given.scale, FAST_S, GOOD["calm"], queue=False),
        Phase("queue is back", 60 * given.scale, FAST_S, GOOD["calm"]),
    ]
    world, engine = World(), own_redis(durable=True)
    try:
        with (
            LLMServer(reply) as upstream,
            LLMServer(verdict(world)) as judge,
            tempfile.TemporaryDirectory() as directory,
        ):
            config = CONFIG.format(upstream=upstream.url, judge=judge.url, queue=engine.url())
            with product(Path(directory), config) as running:
                after_s = asyncio.run(play(running, engine, world, phases, given.per_s))
                ended = outcomes(running)
            store = Path(directory) / "data" / "store.db"
            played = Played(phases=phases, per_s=given.per_s, after_s=after_s, ended=ended, store=store)
            text = report(world, played)
    finally:
        engine.destroy()
    print(text)
    if given.scale == 1.0:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
