"""What can be seen of a running fleet from outside, as rows of numbers."""

from __future__ import annotations

import contextlib
import csv
import os
import time
from pathlib import Path

import httpx
from stands import MIB, Place

from tests.support.fleet import Fleet
from tests.support.product import Product

PAGE = os.sysconf("SC_PAGE_SIZE")


def _rss_mib(about: Path) -> float:
    return int((about / "statm").read_text().split()[1]) * PAGE / MIB


def _processes(fleet: Fleet) -> dict[str, Product]:
    named = {"gateway": fleet.gateways, "monitors": fleet.monitors}
    return {f"{name} {n}": one for name, some in named.items() for n, one in enumerate(some, 1)}


def _descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def descriptors(fleet: Fleet) -> dict[str, int]:
    """How many descriptors each process has open."""
    return {name: _descriptors(one.pid) for name, one in _processes(fleet).items()}


class Looks:
    """The rows so far; what could not be asked is missing from its row, and the others stay."""

    def __init__(self, fleet: Fleet, place: Place) -> None:
        self.rows: list[dict[str, float]] = []
        self._fleet, self._place = fleet, place
        self._began = time.monotonic()
        self._processes = _processes(fleet)

    def look(self, sent: int, seconds: list[float]) -> None:
        """Add a row."""
        row = {"t_s": time.monotonic() - self._began, "sent": float(sent)}
        for name, one in self._processes.items():
            with contextlib.suppress(OSError, httpx.HTTPError):
                row |= {f"{name}: {what}": value for what, value in self._process(one).items()}
        with contextlib.suppress(OSError, httpx.HTTPError, AssertionError):
            row["queue depth"] = self._fleet.waiting()
            leader = self._fleet.monitors[0]
            row["queue age s"] = leader.value(leader.monitors, "gaugeway_queue_oldest_seconds")
        with contextlib.suppress(OSError):
            row["write-ahead log MiB"] = self._place.log_mib()
            row["store MiB"] = self._place.store_mib()
        if seconds:
            seconds = sorted(seconds)
            row["request p50 ms"] = 1000 * seconds[len(seconds) // 2]
            row["request p99 ms"] = 1000 * seconds[len(seconds) * 99 // 100]
        self.rows.append(row)

    def _process(self, one: Product) -> dict[str, float]:
        about = Path(f"/proc/{one.pid}")
        url = f"http://127.0.0.1:{one.port}/healthz" if one in self._fleet.gateways else f"{one.monitors}/healthz"
        with httpx.Client(timeout=10) as client:
            client.get(url)
            began = time.monotonic()
            client.get(url)  # the connection is open: what is left is the process's turn
            late = time.monotonic() - began
        children = (about / "task" / str(one.pid) / "children").read_text().split()
        helpers = sum(_rss_mib(Path(f"/proc/{child}")) for child in children)
        return {
            "RSS MiB": _rss_mib(about),
            **({"its processes: RSS MiB": helpers} if children else {}),
            "descriptors": _descriptors(one.pid),
            "threads": len(list((about / "task").iterdir())),
            "answers after ms": 1000 * late,
        }

    def write(self, path: Path) -> None:
        """Write the rows as CSV."""
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            for row in self.rows:
                writer.writerow({name: f"{value:.6g}" for name, value in row.items()})
