"""One row from beginning to end: start everything, do the fault under load, wait for everything, count."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass

from benchmarks.faults.matrix import Fault
from benchmarks.faults.rows import Row, count, recovered
from benchmarks.faults.stand import LOOK_S, Stand, settle, standing

SHOWN = (
    "gaugeway_exchanges_total",
    "gaugeway_quality_alarm",
    "gaugeway_quality_evidence",
    "gaugeway_late",
    "gaugeway_uncovered",
    "gaugeway_judge_blind",
    "gaugeway_notifications",
    "gaugeway_worker_errors",
    "gaugeway_upstream_errors",
    "gaugeway_queue_",
)


@dataclass(frozen=True, kw_only=True)
class Times:
    """Seconds of traffic before the fault, after it, and at most until a planted drop is told."""

    before: float = 5.0
    after: float = 6.0
    alert: float = 90.0


class Watch:
    """Looks how much of what was sent until `since` is evaluated."""

    def __init__(self, stand: Stand, since: float) -> None:
        self._stand = stand
        self._since = since
        self.seen: list[tuple[float, int]] = []

    def look(self) -> None:
        with contextlib.suppress(Exception):  # an engine that is not back yet fails in its own ways
            self.seen.append((time.time(), self._stand.evaluated(self._since)))


def play(fault: Fault, engine: str, *, seed: int, amount: int, times: Times = Times()) -> Row:
    """Do one fault; the row of it."""
    row = Row(fault=fault.name, may_lose=fault.loses, may_be_blind=fault.blinds)
    began = time.monotonic()
    with standing(engine, fault.wanted, seed) as stand:
        with stand.traffic:
            time.sleep(times.before)
            begin = time.time()
            if fault.planted and not fault.late_drop:
                stand.plant()
            fault.do(stand, amount)
            end = time.time()
            if fault.late_drop:
                stand.plant()
            watch = Watch(stand, end)
            while (waited := time.time() - end) < times.after or (
                fault.planted and waited < times.alert and not stand.told("shop")
            ):
                watch.look()
                time.sleep(LOOK_S)
        settled = settle(stand, watch.look)
        stand.note(f"fault {end - begin:.0f} s")
        count(stand, row, planted=fault.planted)
        row.recovered_s = recovered(watch.seen, end) if settled else None
        row.notes += stand.notes
        show(stand, row)
    row.took_s = round(time.monotonic() - began)
    return row


def show(stand: Stand, row: Row) -> None:
    """Print what there is to look at, of a row that is not as it should be."""
    if row.fine:
        return
    for one in stand.machines:
        print(f"--- {one.name}\n{one.log.read_text(errors='replace')[-1200:]}")
        shown = {name: value for name, value in one.counters().items() if name.startswith(SHOWN)}
        print("\n".join(f"{name} {value:g}" for name, value in shown.items()))
    for one in stand.alerts():
        print(f"told at {one['at']:.1f}: {one['status']} {one['labels']} from {one['startsAt']}")
