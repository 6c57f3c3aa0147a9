"""How well three gateways keep to one limit: real processes, real traffic at three times the limit, real engines.

    python benchmarks/limits/shared.py                  # about nine minutes; writes results/shared.md

One key is limited in requests, another in tokens. Clients send to all three gateways at random moments, together three
times what is allowed. After the stock (a minute's worth) is used up comes a minute of steady load, then the engine is
killed for ten seconds, then another minute. Without an engine each gateway counts for itself.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import itertools
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.llm_server import LLMServer, Reply
from tests.support.postgres import own_server
from tests.support.product import Product
from tests.support.redis import own_redis
from tests.support.shared_limits import most_admitted

ROOT = Path(__file__).parents[2]
GATEWAYS = 3
TIMES = 3
PER_MIN = 120
TOKENS = 15  # of each answer
STOCK_S, STEADY_S, DOWN_S, AFTER_S = 40, 60, 10, 60
KINDS = "requests", "tokens"


@dataclass
class Traffic:
    """What came back: (seconds since the start, status), by kind of limit."""

    began: float = 0.0
    came: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    lost: int = 0

    def now(self) -> float:
        return time.monotonic() - self.began

    def admitted(self, kind: str, start: float, end: float) -> int:
        return sum(start <= at < end and status == 200 for at, status in self.came[kind])

    def most(self, kind: str, seconds: float) -> int:
        starts = [at for at, status in self.came[kind] if status == 200]
        return max((self.admitted(kind, start, start + seconds) for start in starts), default=0)


def configuration(base_url: str, keys_url: str, limits_url: str | None) -> str:
    shared = f'[limits]\nurl = "{limits_url}"\n' if limits_url else ""
    return f"""
[[upstreams]]
base_url = "{base_url}"
api_key = "sk-upstream"
[keys]
enabled = true
url = "{keys_url}"
{shared}
"""


def make_key(config: Path, data: Path, *limit: str) -> str:
    words = ["keys", "create", "--app", "shop", *limit, "--config", str(config), "--data-dir", str(data)]
    done = subprocess.run(
        [sys.executable, "-m", "gaugeway", *words], capture_output=True, check=True, text=True, cwd=ROOT
    )
    return done.stdout.strip()


async def client(  # one of six, side by side
    kind: str, key: str, gateway: Product, *, traffic: Traffic, until_s: float, seed: int
) -> None:
    """Send at random moments, on as many connections as it takes, and never wait for an answer."""
    draw = random.Random(seed)
    per_s = PER_MIN / 60 * TIMES / GATEWAYS
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    pending: set[asyncio.Task[None]] = set()
    async with httpx.AsyncClient(timeout=30) as http:

        async def one() -> None:
            try:
                answer = await http.post(
                    f"{gateway.base_url}/chat/completions", json=body, headers={"authorization": f"Bearer {key}"}
                )
            except httpx.HTTPError:
                traffic.lost += 1
            else:
                traffic.came[kind].append((traffic.now(), answer.status_code))

        due = 0.0
        while (due := due + draw.expovariate(per_s)) < until_s:
            await asyncio.sleep(max(due - traffic.now(), 0))
            task = asyncio.ensure_future(one())
            pending.add(task)
            task.add_done_callback(pending.discard)
        await asyncio.gather(*pending)


async def load(gateways: list[Product], keys: dict[str, str], engine, seconds: float) -> Traffic:
    traffic = Traffic(began=time.monotonic())
    tasks = [
        asyncio.ensure_future(client(kind, keys[kind], gateway, traffic=traffic, until_s=seconds, seed=seed))
        for seed, (gateway, kind) in enumerate(itertools.product(gateways, KINDS))
    ]
    if engine is not None:
        await asyncio.sleep(STOCK_S + STEADY_S)
        await asyncio.to_thread(engine.stop, signal.SIGQUIT if hasattr(engine, "database") else signal.SIGKILL)
        await asyncio.sleep(STOCK_S + STEADY_S + DOWN_S - traffic.now())
        await asyncio.to_thread(engine.start)
    await asyncio.gather(*tasks)
    return traffic


def run(name: str, directory: Path) -> tuple[list[str], Traffic]:
    keys_server = own_server()
    engine = {"Redis": own_redis, "PostgreSQL": own_server}[name]() if name != "none" else None
    url = None if engine is None else engine.database() if name == "PostgreSQL" else engine.url()
    gateways: list[Product] = []
    try:
        with LLMServer(Reply(content="yes", tokens=(TOKENS - 5, 5))) as model:
            text = configuration(model.url, keys_server.database(), url)
            for number in range(GATEWAYS):
                (place := directory / f"{name}-{number}").mkdir()
                gateways.append(Product(place, text, command="gateway"))
                gateways[-1].start()
            config, data = directory / f"{name}-0" / "gaugeway.toml", gateways[0].data
            keys = {
                "requests": make_key(config, data, "--requests-per-min", str(PER_MIN)),
                "tokens": make_key(config, data, "--tokens-per-min", str(PER_MIN * TOKENS)),
            }
            time.sleep(5)  # every gateway knows the keys
            seconds = STOCK_S + STEADY_S + (DOWN_S + AFTER_S if engine else 0)
            traffic = asyncio.run(load(gateways, keys, engine, seconds))
            served = len(model.requests)
    finally:
        for gateway in gateways:
            gateway.stop()
        for server in (keys_server, engine):
            if server is not None:
                server.destroy()
    return rows(name, traffic, served), traffic


def rows(name: str, traffic: Traffic, served: int) -> list[str]:
    rate = PER_MIN / 60
    marks = [0, STOCK_S, STOCK_S + STEADY_S, STOCK_S + STEADY_S + DOWN_S, STOCK_S + STEADY_S + DOWN_S + AFTER_S]
    lines = []
    for kind in KINDS:
        cells = [name, kind, str(len(traffic.came[kind]))]
        for start, end in itertools.pairwise(marks):
            allowed = rate * (end - start) + (PER_MIN if start == 0 else 0)
            measured = name != "none" or end <= marks[2]
            cells.append(f"{traffic.admitted(kind, start, end)} / {allowed:.0f}" if measured else "-")
        most, promised = traffic.most(kind, 60), most_admitted(PER_MIN, GATEWAYS, 1.0, 60)
        cells.append(f"{most} / {promised:.0f}" if name != "none" else str(most))
        statuses = sorted({status for _, status in traffic.came[kind]})
        cells.append(", ".join(map(str, statuses)))
        lines.append("| " + " | ".join(cells) + " |")
    admitted = sum(traffic.admitted(kind, 0, 1e9) for kind in KINDS)
    print(*lines, f"{name}: {admitted} admitted, {served} at the upstream, {traffic.lost} lost", sep="\n", flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--engines", nargs="*", default=["none", "Redis", "PostgreSQL"])
    arguments = parser.parse_args()
    lines: list[str] = []
    lost = 0
    with tempfile.TemporaryDirectory() as directory:
        for name in arguments.engines:
            more, traffic = run(name, Path(directory))
            lines += more
            lost += traffic.lost
    write(lines, lost)


def write(lines: list[str], lost: int) -> None:
    date = dt.datetime.now(dt.UTC).date()
    text = f"""# Three gateways, one limit

`python benchmarks/limits/shared.py`, {date}; {platform.machine()}, {os.cpu_count()} cores that have other work too,
Python {platform.python_version()}. Three `gaugeway gateway` processes with `[keys] url` in PostgreSQL; two keys, one
with {PER_MIN} requests a minute, one with {PER_MIN * TOKENS} tokens (answers have {TOKENS}, so that it is as many
requests); traffic at random moments on all three, together {TIMES} times the limit; one sync a second.

Each cell is *let in / allowed*. Allowed at first is the stock of a minute and what fills in, later what fills in. While
the engine is down (killed, and started again without its memory in the case of Redis) each gateway keeps to its third.
The last figure is the most within any 60 s, and the most that is promised
([where from](../../../docs/explanation/shared-limits.md)). Requests that failed: {lost}.

| shared through | limit | sent | first {STOCK_S} s | next {STEADY_S} s | engine down {DOWN_S} s | next {AFTER_S} s | most in 60 s | statuses |
|---|---|---|---|---|---|---|---|---|
"""  # noqa: E501
    (Path(__file__).parent / "results" / "shared.md").write_text(text + "\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
