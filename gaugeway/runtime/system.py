"""What a process asks of the operating system: file descriptors, its priority, the end of orphaned processes.

Every connection takes a descriptor, and the usual soft limit is 1,024.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
from pathlib import Path

MAX_DESCRIPTORS = 65_536
"""The soft limit is raised to the hard one, but not beyond this: some systems allow a billion."""
MAX_RESERVED = 256
ORPHANS_EVERY_S = 5.0
_AUTOGROUP = Path("/proc/self/autogroup")
_log = logging.getLogger("gaugeway")


def open_standard() -> None:
    """Open what is closed of standard input, output and error, so that no other file takes its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one


def raise_limit() -> int:
    """Raise this process's soft limit as far as the system allows; return it; a change is logged."""
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if before != resource.RLIM_INFINITY and before < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:
            _log.warning("cannot raise the file descriptor limit of %d: %s", before, error)
    if (now := limit()) != before:
        _log.info("file descriptor limit: %d (was %d)", now, before)
    return now


def limit() -> int:
    """Return how many descriptors this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def shares(descriptors: int) -> tuple[int, int]:
    """Return how many connections the first listener of a process may have, and how many every other one.

    The first one carries the traffic, of which each connection may need a second one to the upstream. A reserve is
    left to files and databases, and to the others: they show what is wrong when the first one is full.

    >>> shares(65_536), shares(1024), shares(256)
    ((32640, 128), (384, 128), (96, 32))
    """
    reserve = min(MAX_RESERVED, descriptors // 4)
    return max(1, (descriptors - reserve) // 2), max(1, reserve // 2)


async def reap_orphans(every_s: float = ORPHANS_EVERY_S) -> None:
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


def lower_priority(niceness: int, *, own_session: bool = False) -> None:
    """Let other processes have the processor first; nothing where the system does not allow it.

    Call it after start-up: with a low priority from the start, a busy processor might never finish it. Linux may share
    the processor among sessions first (sched_autogroup): with `own_session` the session gives way, too.
    """
    with contextlib.suppress(OSError):
        os.nice(niceness)
    if own_session:
        with contextlib.suppress(OSError):
            _AUTOGROUP.write_text(str(niceness), "ascii")
