"""Side by side: every contender in front of the same upstream, in interleaved rounds, on one core.

    python benchmarks/gateway/run.py                                             # all, three rounds
    python benchmarks/gateway/run.py --only nginx,gaugeway-on --rounds 1 --quick  # a quick look

Writes results/bench.json and results/bench.md (`--out` names others). See README.md for how to read them.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import installs
import load
import machine
import peers
import table
import uvloop

SETTLE_S = 3.0
FOREIGN_LIMIT = 0.25  # cores; a phase disturbed by more is measured once more


@dataclass(frozen=True)
class Size:
    """How long each phase takes at the most."""

    requests: int
    sequential_s: float
    loop_s: float
    streams: int
    streams_s: float
    waves: int
    retries: int


FULL = Size(requests=1500, sequential_s=4, loop_s=3, streams=15, streams_s=5, waves=2, retries=1)
QUICK = Size(requests=300, sequential_s=1.5, loop_s=1.0, streams=4, streams_s=2, waves=1, retries=0)

Phase = tuple[str, dict[str, float], Callable[[load.Target], dict[str, float]]]


def phases(size: Size) -> list[Phase]:
    """(name, how the upstream answers, what to do)."""

    def closed(target: load.Target, connections: int) -> dict[str, float]:
        return uvloop.run(load.closed_loop(target, connections, size.loop_s))

    def many(target: load.Target, connections: int, seconds: float, each: int | None) -> dict[str, float]:
        return uvloop.run(load.streams(target, connections, seconds, each))

    plain = {"delay": 0.0, "interval": 0.0, "chunks": 100}
    return [
        ("seq", plain, lambda t: load.sequential(t, size.requests, size.sequential_s, warm_up=50)),
        ("stream1", plain | {"interval": 0.002}, lambda t: load.single_streams(t, size.streams, size.streams_s)),
        ("c32", plain, lambda t: closed(t, 32)),
        ("c64", plain, lambda t: closed(t, 64)),
        ("delayed", plain | {"delay": 0.1}, lambda t: closed(t, 64)),
        ("streams16", plain, lambda t: many(t, 16, size.loop_s, None)),
        ("streams200", plain | {"interval": 0.02}, lambda t: many(t, 200, 2.0 + 4.0 * size.waves, size.waves)),
    ]


class Bench:
    """One run: the upstream, the samples, what is missing."""

    def __init__(self, size: Size, upstream: int, upstream_pid: int, core: int | None, client: str | None) -> None:
        self._phases = phases(size)
        self._retries = size.retries
        self._upstream, self._upstream_pid = upstream, upstream_pid
        self._core, self._client = core, client
        self.samples: dict[str, list[dict[str, Any]]] = {}
        self.missing: dict[str, str] = {}

    def contender(self, contender: peers.Contender) -> None:
        """Start it, put it through every phase, stop it."""
        if contender.name in self.missing:
            return
        running = peers.Running(contender, self._upstream, core=self._core, upstream_client=self._client)
        load.control(self._upstream, delay=0.0, interval=0.0)
        try:
            with running:
                self.samples.setdefault(contender.name, []).append(self._measure(running))
        except peers.Missing as error:
            self.missing[contender.name] = str(error)
            print(f"  {contender.name:<15} MISSING: {error}", flush=True)

    def _measure(self, running: peers.Running) -> dict[str, Any]:
        contender = running.contender
        target = load.Target(
            port=running.port,
            path=f"{contender.base}/chat/completions",
            model=contender.model.format("bench"),
            key=peers.KEY,
            headers=contender.headers(self._upstream),
        )
        found: dict[str, Any] = {}
        self._settle(running)
        found["idle"] = self._memory(running) | {"ready_s": running.ready_s}
        for name, settings, work in self._phases:
            load.control(self._upstream, **settings)
            found[name] = self._phase(running, target, work)
            for _ in range(self._retries):
                disturbed = found[name].get("foreign_cores", 0.0)
                if disturbed < FOREIGN_LIMIT:
                    break
                again = self._phase(running, target, work)
                if again.get("foreign_cores", 9.0) < disturbed:
                    found[name] = again
        found["after"] = self._memory(running)
        _say(contender.name, found)
        return found

    def _phase(
        self, running: peers.Running, target: load.Target, work: Callable[[load.Target], dict[str, float]]
    ) -> dict[str, Any]:
        pids = running.pids()
        own = [os.getpid(), self._upstream_pid]
        before, ours = machine.cpu_by_process(pids), machine.cpu_ns(own)
        busy, begun = machine.busy_ns(), time.monotonic_ns()
        try:
            found: dict[str, Any] = work(target)
        except OSError as error:
            return {"error": f"{type(error).__name__}: {error}", "settled": self._settle(running)}
        settled = self._settle(running)
        after = machine.cpu_by_process(running.pids())
        if gone := sorted(set(before) - set(after)):
            # Its CPU cannot be read any more, and what was measured is not what the row's name says.
            return {"error": f"ended during the phase: {', '.join(gone)}; {running.log()[-200:]!r}", "settled": settled}
        each = {name: used - before.get(name, 0) for name, used in after.items()}
        spent = sum(each.values())
        elapsed = time.monotonic_ns() - begun
        foreign = machine.busy_ns() - busy - spent - (machine.cpu_ns(own) - ours)
        units = 1000 * max(1.0, found["units"])
        return found | {
            "cpu_us": spent / units,
            "cpu_us_by_process": {name.partition(" ")[2]: used / units for name, used in each.items() if used},
            "foreign_cores": max(0.0, foreign / elapsed),
            "settled": settled,
        }

    @staticmethod
    def _settle(running: peers.Running) -> bool:
        """Wait until it rests, so that work it put off is counted where it came from; at most SETTLE_S."""
        pids = running.pids()
        deadline = time.monotonic() + SETTLE_S
        last = machine.cpu_ns(pids)
        while pids and time.monotonic() < deadline:
            time.sleep(0.15)
            now = machine.cpu_ns(pids)
            if now - last < 6_000_000:
                return True
            last = now
        return not pids

    @staticmethod
    def _memory(running: peers.Running) -> dict[str, float]:
        rss, pss = machine.memory_mib(running.pids())
        return {"rss_mib": rss, "pss_mib": pss} if rss else {}


def _say(name: str, found: dict[str, Any]) -> None:
    def value(phase: str, key: str, scale: float = 1.0) -> str:
        return f"{found[phase][key] / scale:,.1f}" if key in found[phase] else "failed"

    print(
        f"  {name:<15} seq p50 {value('seq', 'p50_us')} us, c64 {value('c64', 'rps')} req/s at "
        f"{value('c64', 'cpu_us')} us CPU, first chunk {value('stream1', 'first_p50_us')} us, "
        f"16 streams {value('streams16', 'chunks_per_s')} chunks/s",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help=f"comma-separated; of {', '.join(peers.CONTENDERS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="short phases")
    parser.add_argument("--upstream-client", help="[gateway] upstream_client for Gaugeway (default: its own default)")
    parser.add_argument("--no-pin", action="store_true", help="let the system place the processes")
    parser.add_argument("--before", type=Path, help="bin/ of an environment with an older Gaugeway: beside today's")
    parser.add_argument("--out", type=Path, help="results/bench (.json and .md), with --quick results/quick")
    arguments = parser.parse_args()
    machine.clean_up_on_sigterm()
    if arguments.before:
        peers.CONTENDERS |= {c.name: c for c in peers.gaugeways("@before", arguments.before.resolve())}
    chosen = peers.select(arguments.only)
    contenders = {c.name: {"label": c.label, "version": c.version()} for c in chosen}
    peers.compile_bytecode()
    pinned = not arguments.no_pin and (os.cpu_count() or 1) > 1
    if pinned:
        machine.pin(1)
    port = machine.free_port()
    script = Path(__file__).with_name("upstream.py")
    upstream = subprocess.Popen([sys.executable, str(script), str(port)], stdout=subprocess.PIPE)
    try:
        assert upstream.stdout is not None
        upstream.stdout.readline()
        size = QUICK if arguments.quick else FULL
        bench = Bench(size, port, upstream.pid, 0 if pinned else None, arguments.upstream_client)
        gc.freeze()
        for index in range(arguments.rounds):
            print(f"round {index + 1} of {arguments.rounds}", flush=True)
            for contender in chosen if index % 2 == 0 else reversed(chosen):
                bench.contender(contender)
                gc.collect()
    finally:
        upstream.terminate()
        upstream.wait(timeout=5)
    placement = "Contender on core 0, upstream and load on core 1." if pinned else "Nothing pinned."
    result = {
        "machine": machine.describe(),
        "placement": placement,
        "command": shlex.join(["python", *sys.argv]),
        "rounds": arguments.rounds,
        "contenders": contenders,
        "missing": bench.missing,
        "samples": bench.samples,
    }
    out = arguments.out or installs.HERE / "results" / ("quick" if arguments.quick else "bench")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    report = table.render(result)
    out.with_suffix(".md").write_text(report)
    print(f"\n{report}\n{out.with_suffix('.md')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
