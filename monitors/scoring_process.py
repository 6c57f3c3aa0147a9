"""`python -m monitors.scoring_process`: a worker of a monitors process, which writes its `Setup` to standard input."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from pathlib import Path

import msgspec
from setproctitle import setproctitle

from gaugeway.processes.worker_metrics import CountsOnly, WorkerMetrics, inherited, next_frame
from gaugeway.runtime import serving
from gaugeway.runtime.system import lower_priority
from monitors.app import assemble
from monitors.scoring_workers import GAUGES, Setup


async def score(setup: Setup, reports: socket.socket) -> None:
    """Score until SIGTERM, or until the monitors process ends."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    loop.add_reader(0, lambda: None if os.read(0, 4096) else _orphaned(loop, stopping))
    parts = assemble(setup.config, Path(setup.data_dir), leads=False)
    metrics = WorkerMetrics(reports, CountsOnly(parts.instruments.registry, GAUGES), GAUGES)
    await metrics.start()
    parts.scheduler.start_scoring()
    if setup.niceness is not None:
        lower_priority(setup.niceness - os.nice(0), own_session=True)
    try:
        await stopping.wait()
    finally:
        await parts.aclose()
        await metrics.aclose()


def _orphaned(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    loop.remove_reader(0)
    stopping.set()


def main() -> None:
    """Read the set-up and score; nothing where either the set-up or the socket for the counts is missing."""
    setproctitle("gaugeway: scoring worker")
    body, reports = next_frame(_read), inherited()
    if not body or reports is None:
        return
    setup = msgspec.msgpack.decode(body, type=Setup)
    with contextlib.suppress(KeyboardInterrupt):
        serving.run(score(setup, reports), setup.log_format)


def _read(count: int) -> bytes:
    """Read so many bytes and none beyond them: the event loop watches the rest."""
    found = bytearray()
    while len(found) < count and (part := os.read(0, count - len(found))):
        found += part
    return bytes(found)


if __name__ == "__main__":
    main()
