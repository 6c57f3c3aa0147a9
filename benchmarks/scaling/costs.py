"""What an exchange costs: processor time of each process, bytes in the store, calls to the judge; one machine, one run.

python benchmarks/scaling/costs.py [--exchanges 1000] [--per-s 25]

Requests have six passages, 8 KB in all, as contexts of a RAG app. Four ways, in turn, `--rounds` times; medians:
nothing captured; everything captured and scored without an LLM; everything judged as well (four metrics, fused, a judge
that takes no time), in SQLite and in PostgreSQL. Steady traffic far below the maximum: what a process costs at rest is
in the figures, so at high load an exchange costs less. Tokens are a quarter of the characters, schemas included. Writes
results/costs.md; sizing.py calculates with it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "fleet"))

from stands import MIB, engines, upstream

from tests.support.fleet import Fleet
from tests.support.scenario import PROMPT, STAY, TOPICS, passages
from tests.support.traffic import Line, Sent, request_with

RESULTS = Path(__file__).parent / "results"
TICKS = os.sysconf("SC_CLK_TCK")
FILLER = "Parcels that nobody fetches within fourteen days go back, and the counter keeps a note of each of them. " * 13
CONFIG = """
[[upstreams]]
base_url = "{url}/app/v1"

[capture]
rate = {capture}

[judge]
base_url = "{url}/judge/v1"
model = "judge-1"
cache = "off"

[queue]
url = "{queue}"

[store]
url = "{store}"
"""
JUDGED = ("faithfulness", "answer_relevancy", "context_relevancy", "hallucination")
WAYS = {
    "nothing captured": ("sqlite", 0.0, 0.0),
    "captured, scored without an LLM": ("sqlite", 1.0, 0.0),
    "… and judged": ("sqlite", 1.0, 1.0),
    "… judged, PostgreSQL": ("postgres", 1.0, 1.0),
}
Row = dict[str, float]


def descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in descendants(int(child)))]


def cpu_s(pid: int) -> dict[int, float]:
    """Seconds of processor time of a process and those it started."""
    found = {}
    for one in descendants(pid):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        found[one] = (int(fields[11]) + int(fields[12])) / TICKS
    return found


def request(number: int) -> bytes:
    topic = list(TOPICS)[number % 4]
    contexts = "\n\n".join([passages(topic, number), *[f"Note {k}. {FILLER}" for k in range(5)]])
    content = PROMPT.format(question=TOPICS[topic].format(n=number), contexts=contexts)
    return request_with(number, [("system", f"You answer for shop. {STAY}"), ("user", content)])


async def steady(port: int, count: int, per_s: float, sent: Sent, first: int) -> None:
    lines = [Line(port) for _ in range(16)]
    places = asyncio.Semaphore(len(lines))
    began = time.monotonic()

    async def one(line: Line, number: int) -> None:
        await line.ask(request(number), sent)
        lines.append(line)
        places.release()

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / per_s - time.monotonic()))
            await places.acquire()
            group.create_task(one(lines.pop(0), first + number))
    for line in lines:
        line.close()


def measure(engine: str, capture: float, judged: float, options: argparse.Namespace) -> Row:
    with tempfile.TemporaryDirectory(prefix="gaugeway-costs-") as scratch:
        directory = Path(scratch)
        with upstream(0.0) as url, engines(engine, directory) as place:
            config = CONFIG.format(url=url, queue=place.queue, store=place.store, capture=capture)
            config += "".join(f"\n[metrics.{name}]\nrate = {judged}\n" for name in JUDGED)
            with Fleet(directory, config) as fleet:
                sent = Sent()
                warm = options.exchanges // 10
                asyncio.run(steady(fleet.ports[0], warm, options.per_s, sent, 0))
                fleet.settle(warm)
                (gateway,), (monitors,) = fleet.gateways, fleet.monitors
                pids = gateway.pid, monitors.pid
                before, size = [cpu_s(pid) for pid in pids], place.store_mib()
                began = time.monotonic()
                asyncio.run(steady(fleet.ports[0], options.exchanges, options.per_s, sent, warm))
                fleet.settle(warm + options.exchanges)
                seconds = time.monotonic() - began
                after, grown = [cpu_s(pid) for pid in pids], place.store_mib() - size
                assert sent.unharmed, sent.statuses
                rows = place.rows("evaluations")
                tokens = [fleet.counted("judge_tokens_total", type=kind) for kind in ("input", "output")]
    spent = [{pid: at - was.get(pid, 0.0) for pid, at in now.items()} for was, now in zip(before, after, strict=True)]
    of = 1000.0 / options.exchanges
    return {
        "gateway, CPU ms": spent[0][pids[0]] * of,
        "making samples, CPU ms": sum(s for pid, s in spent[0].items() if pid != pids[0]) * of,
        "monitors, CPU ms": sum(spent[1].values()) * of,
        "evaluations": rows / (warm + options.exchanges),
        "store, KiB": grown * MIB / 1024 / options.exchanges,
        "judge reads, tokens": tokens[0] / (warm + options.exchanges),
        "judge writes, tokens": tokens[1] / (warm + options.exchanges),
        "exchanges a second": options.exchanges / seconds,
    }


def main() -> None:
    asking = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asking.add_argument("--exchanges", type=int, default=1000)
    asking.add_argument("--per-s", type=float, default=25.0)
    asking.add_argument("--rounds", type=int, default=3)
    asking.add_argument("--out", type=Path, default=RESULTS / "costs.md")
    options = asking.parse_args()
    found: dict[str, list[Row]] = {name: [] for name in WAYS}
    for _ in range(options.rounds):
        for name, way in WAYS.items():
            found[name].append(measure(*way, options))
            print(name, {key: round(value, 2) for key, value in found[name][-1].items()}, flush=True)
    columns = list(found["nothing captured"][0])
    size = len(request(0)) / 1024
    command = f"python benchmarks/scaling/costs.py --exchanges {options.exchanges} --per-s {options.per_s:g}"
    about = (
        f"`{command} --rounds {options.rounds}`, {date.today()}: requests of {size:.1f} KiB;\n"  # noqa: DTZ011 - the day is for people
        f"medians of {options.rounds}; 1 gateway, 1 monitors process, engine, model and judge on {os.cpu_count()}\n"
        f"cores ({platform.machine()}, Python {platform.python_version()}). The engine itself is not counted.\n"
    )
    head = "| of each exchange | " + " | ".join(columns) + " |"
    lines = ["# What an exchange costs", "", about, head, "| --- | " + " | ".join("---:" for _ in columns) + " |"]
    for name, rows in found.items():
        medians = (statistics.median(row[column] for row in rows) for column in columns)
        lines.append(f"| {name} | " + " | ".join(f"{value:.2f}" for value in medians) + " |")
    text = "\n".join(lines) + "\n"
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()
