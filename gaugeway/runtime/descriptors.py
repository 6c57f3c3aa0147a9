"""The limit on open file descriptors: every connection takes one, and the usual soft limit is 1,024."""

from __future__ import annotations

import logging
import os
import resource

MAX_DESCRIPTORS = 65_536
"""The soft limit is raised to the hard one, but not beyond this: some systems allow a billion."""
MAX_RESERVED = 256
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
    now = limit()
    if now != before:
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
