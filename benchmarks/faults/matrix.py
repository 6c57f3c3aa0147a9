"""The faults, each a function that does it to a stand under load and returns when it is over."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.faults.engines import FILLER, fill
from benchmarks.faults.paths import HOSTED, PROXIED, STRAIGHT, Proxied
from benchmarks.faults.processes import Replica
from benchmarks.faults.stand import Stand, Wanted

ALL = frozenset({"postgres", "sqlite", "redis"})
SERVERS = frozenset({"postgres", "redis"})
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
HOUR_S = 3600


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One row. `amount` is seconds, or how many kills; with `planted` the answers of one app get worse meanwhile.

    With `late_drop` they do so after it. Only one that `loses` may cost exchanges, and only one that `blinds` scores.
    """

    name: str
    do: Callable[[Stand, int], None]
    amount: int
    quick: int
    planted: bool = False
    late_drop: bool = False
    loses: bool = False
    blinds: bool = False
    engines: frozenset[str] = ALL
    wanted: Wanted = field(default_factory=Wanted)


def _kill_in_turn(stand: Stand, replicas: list[Replica], times: int) -> None:
    draw = random.Random(times)
    for number in range(times):
        replica = replicas[number % len(replicas)]
        time.sleep(draw.uniform(0.2, 1.5))
        stand.look(replica)
        moments = replica.kill()
        if replica in stand.gateways:
            stand.kills.append((stand.gateways.index(replica), *moments))
        replica.start()


def kill_gateways(stand: Stand, times: int) -> None:
    """One of two at a time."""
    _kill_in_turn(stand, stand.gateways, times)


def kill_monitors(stand: Stand, times: int) -> None:
    """One at a time, the leader every other time; SQLite has only one."""
    _kill_in_turn(stand, stand.monitors, times)


def kill_samplers(stand: Stand, times: int) -> None:
    """The process in which a gateway has samples made."""
    killed, draw = 0, random.Random(times)
    for number in range(times):
        time.sleep(draw.uniform(0.2, 1.5))
        for child in stand.gateways[number % len(stand.gateways)].children("gaugeway: sampler"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
                killed += 1
    stand.note(f"{killed} killed")


def kill_engine(stand: Stand, times: int) -> None:
    draw = random.Random(times)
    for _ in range(times):
        time.sleep(draw.uniform(1.0, 3.0))
        stand.engine.kill()
        time.sleep(draw.uniform(0.1, 1.0))
        stand.engine.start()


def restart_engine(stand: Stand, seconds: int) -> None:
    stand.engine.quit()
    time.sleep(seconds)
    stand.engine.start()


def lose_engine(stand: Stand, seconds: int) -> None:
    stand.engine.kill()
    stand.engine.quit()
    time.sleep(seconds)
    stand.engine.start()


def freeze_engine(stand: Stand, seconds: int) -> None:
    with stand.engine.frozen():
        time.sleep(seconds)


def _freeze(replicas: Iterable[Replica], seconds: int) -> None:
    for one in replicas:
        one.send(signal.SIGSTOP)
    time.sleep(seconds)
    for one in replicas:
        one.send(signal.SIGCONT)


def freeze_gateway(stand: Stand, seconds: int) -> None:
    """One of two: what was sent to it waits, and is answered when it goes on."""
    _freeze(stand.gateways[:1], seconds)


def freeze_monitors(stand: Stand, seconds: int) -> None:
    _freeze(stand.monitors, seconds)


def fill_disk(stand: Stand, seconds: int) -> None:
    assert stand.disk is not None
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        fill(stand.disk)
        time.sleep(0.5)
    (stand.disk / FILLER).unlink()
    if stand.engine.port:
        stand.engine.start()  # if it ended: its supervisor would


def turn_clock(hours: int) -> Callable[[Stand, int], None]:
    """The monitors' wall clock jumps, and after a while jumps back."""

    def turn(stand: Stand, seconds: int) -> None:
        clock = stand.directory / "clock"
        clock.write_text(f"{hours * HOUR_S:+d}\n")
        time.sleep(seconds)
        clock.write_text("+0\n")

    return turn


def _faked(directory: Path) -> Mapping[str, str]:
    if not FAKETIME.exists():
        raise OSError("libfaketime is not installed")
    clock = directory / "clock"
    clock.write_text("+0\n")
    return {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


def cut(plane: str, service: str) -> Callable[[Stand, int], None]:
    """No packet between all processes of a plane and a service."""

    def do(stand: Stand, seconds: int) -> None:
        machines = [one.name for one in stand.machines if one.plane == plane]
        for one in machines:
            stand.paths.cut(one, service)
        time.sleep(seconds)
        for one in machines:
            stand.paths.mend(one, service)
        stand.note(stand.paths.kind)

    return do


def storm(stand: Stand, seconds: int) -> None:
    stand.judge.set(status=429, retry_after="2")
    time.sleep(seconds)
    refused = stand.judge.told()["refused"]
    stand.judge.set(status=200)
    stand.note(f"{refused} times 429")


def flap(stand: Stand, seconds: int) -> None:
    """One of two upstreams is gone for 2 s, back for 2 s."""
    assert isinstance(stand.paths, Proxied)
    wires = [wire for one in stand.gateways for wire in stand.paths.between(one.name, "upstream")]
    until, down = time.monotonic() + seconds, False
    while time.monotonic() < until or down:
        down = not down
        for wire in wires:
            wire.set("refuse" if down else "pass")
        time.sleep(2)
    answered = {name: len(numbers) for name, numbers in stand.upstream.told()["answered"].items()}
    stand.note(f"answered by {answered}")


def forget_upstream(stand: Stand, seconds: int) -> None:
    """The connections to the upstream that lie ready lose their other end without a word."""
    stand.upstream.set(delay=0.3)
    time.sleep(3)
    found = sum(stand.paths.forget(one.name, "upstream") for one in stand.gateways)
    stand.note(f"{stand.paths.kind}, {found} connections")
    time.sleep(seconds)


def forget_engine(stand: Stand, seconds: int) -> None:
    found = sum(stand.paths.forget(one.name, "engine") for one in stand.machines)
    stand.note(f"{stand.paths.kind}, {found} connections")
    time.sleep(seconds)


_HOSTS = Wanted(kind=HOSTED)
_DISK = Wanted(disk_mb={"postgres": 300, "sqlite": 60, "redis": 60})
_TWO = Wanted(kind=PROXIED, upstreams=("a", "b"))
_AGAIN = Wanted(kind=HOSTED, upstream="max_retries = 2")
_CLOCK = Wanted(kind=STRAIGHT, env=_faked, per_s=8.0)
FAULTS = (
    Fault(name="kill9-gateway", do=kill_gateways, amount=100, quick=8, loses=True),
    Fault(name="kill9-sampling-process", do=kill_samplers, amount=40, quick=6),
    Fault(name="kill9-monitors", do=kill_monitors, amount=100, quick=8, planted=True),
    Fault(name="kill9-engine", do=kill_engine, amount=20, quick=4, planted=True, engines=SERVERS),
    Fault(name="stop-gateway", do=freeze_gateway, amount=60, quick=10),
    Fault(name="stop-monitors", do=freeze_monitors, amount=60, quick=10, planted=True),
    Fault(name="stop-engine", do=freeze_engine, amount=60, quick=10, planted=True),
    Fault(name="restart-engine", do=restart_engine, amount=2, quick=2, planted=True, engines=SERVERS),
    Fault(name="engine-gone", do=lose_engine, amount=600, quick=60, planted=True, engines=SERVERS),
    Fault(name="disk-full", do=fill_disk, amount=60, quick=15, wanted=_DISK),
    Fault(name="clock-1h-ahead", do=turn_clock(1), amount=30, quick=12, planted=True, late_drop=True, wanted=_CLOCK),
    Fault(name="clock-1h-behind", do=turn_clock(-1), amount=30, quick=12, planted=True, late_drop=True, wanted=_CLOCK),
    Fault(name="cut-gateway-engine", do=cut("gateway", "engine"), amount=30, quick=12, engines=SERVERS, wanted=_HOSTS),
    Fault(
        name="cut-monitors-engine", do=cut("monitors", "engine"), amount=30, quick=12, engines=SERVERS, wanted=_HOSTS
    ),
    Fault(name="cut-monitors-judge", do=cut("monitors", "judge"), amount=30, quick=12, blinds=True, wanted=_HOSTS),
    Fault(name="judge-429-storm", do=storm, amount=60, quick=15, blinds=True),
    Fault(name="upstream-flapping", do=flap, amount=60, quick=12, wanted=_TWO),
    Fault(name="half-open-upstream", do=forget_upstream, amount=45, quick=40, wanted=_AGAIN),
    Fault(name="half-open-engine", do=forget_engine, amount=45, quick=40, engines=SERVERS, wanted=_HOSTS),
)
