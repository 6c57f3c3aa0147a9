"""What /proc says about processes that may end at any moment."""

from __future__ import annotations

from pathlib import Path


def children(pid: int) -> list[int]:
    """The process ids of a process's children, whichever of its threads started them."""
    return [int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]


def arguments(pid: int) -> list[bytes]:
    """The command line of a process, the titles of ours included; empty for one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
