"""Reaping of processes that lost their parent, which PID 1 of a container adopts."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

EVERY_S = 5.0


async def reap_orphans(every_s: float = EVERY_S) -> None:
    """Reap the zombies among this process's children that are still there at the next look, for ever.

    Those of this process's own are reaped as soon as they end.
    """
    seen: set[int] = set()
    while True:
        await asyncio.sleep(every_s)
        zombies = _zombies()
        _reap(zombies & seen)
        seen = zombies


def _reap(pids: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _zombies() -> set[int]:
    found = set()
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text().split():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                    found.add(int(pid))
    return found
