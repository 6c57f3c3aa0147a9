"""What /proc says about processes and the machine: CPU, memory, children, cores."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import socket
import sys
import time
from pathlib import Path

PROC = Path("/proc")
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def cpu_ns(pids: list[int]) -> int:
    """CPU time of these processes, all their threads, from each process's own clock (not in 10 ms ticks)."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += time.clock_gettime_ns((~pid << 3) | 2)
    return total


def cpu_by_process(pids: list[int]) -> dict[str, int]:
    """CPU time of each of these, by "pid name"; `python -m X` is called X."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            words = (PROC / str(pid) / "cmdline").read_text().split("\0")
            module = words[words.index("-m") + 1] if "-m" in words[:4] else Path(words[0]).name
            found[f"{pid} {module}"] = cpu_ns([pid])
    return found


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name: state, parent, ..."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def tree(root: int) -> list[int]:
    """The process and all its descendants that are alive."""
    parents: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))) and fields[0] != "Z":
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, queue = [], [root]
    while queue:
        pid = queue.pop()
        if _stat(pid):
            found.append(pid)
        queue += parents.get(pid, [])
    return found


def memory_mib(pids: list[int]) -> tuple[float, float]:
    """(RSS, PSS) of these processes together."""
    rss = pss = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
                if line.startswith("Rss:"):
                    rss += int(line.split()[1])
                elif line.startswith("Pss:"):
                    pss += int(line.split()[1])
    return rss / 1024, pss / 1024


def busy_ns() -> int:
    """CPU time of everything on the machine since boot, without interrupts."""
    fields = (PROC / "stat").read_text().split("\n", 1)[0].split()
    return sum(int(fields[i]) for i in (1, 2, 3)) * TICK_NS


def stop(root: int, grace_s: float = 8.0) -> None:
    """End a process and its descendants: SIGTERM to the root, then SIGKILL to whatever of the tree is left."""
    members = {pid: fields[19] for pid in tree(root) if (fields := _stat(pid))}
    with contextlib.suppress(ProcessLookupError):
        os.kill(root, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline and any(_same(pid, started) for pid, started in members.items()):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(root, os.WNOHANG)
        time.sleep(0.05)
    for pid, started in members.items():
        if _same(pid, started):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _same(pid: int, started: str) -> bool:
    fields = _stat(pid)
    return bool(fields) and fields[0] != "Z" and fields[19] == started


def clean_up_on_sigterm() -> None:
    """End by an exception, so that what was started is stopped (a contender has a session of its own)."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def pin(core: int) -> None:
    """Keep this process, and those it starts, on one core; on a machine with a single one, do nothing."""
    if (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, {core})


def describe() -> dict[str, object]:
    """The machine: CPU model, cores, memory, kernel, Python."""
    cpu = [
        line.split(":", 1)[1].strip() for line in (PROC / "cpuinfo").read_text().splitlines() if "model name" in line
    ]
    memory = (PROC / "meminfo").read_text().split("\n", 1)[0].split()[1]
    return {
        "cpu": cpu[0] if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(int(memory) / 1024**2, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
