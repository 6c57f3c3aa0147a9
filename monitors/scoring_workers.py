"""Processes that share the scoring of one monitors process (`[monitors] workers`)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry

from gaugeway.processes.child_process import ChildProcess
from gaugeway.processes.worker_metrics import Mode, SummedRegistry, WorkersTotal, framed
from gaugeway.runtime.tasks import spawn
from gaugeway.settings.shared import Config
from monitors.scheduler import replica_of

NICENESS = 5
"""Of the monitors beside a gateway: on a busy core the traffic gets three times as much of it. They serve the page, too
(benchmarks/page/niceness.py)."""
STOP_S = 12.0
"""How long a worker may take to stop: more than its scheduler takes to finish what it scores."""
GAUGES: Mapping[str, Mode] = {"gaugeway_judge_blind": "max", "gaugeway_judge_budget_spent_usd": "livesum"}
"""How the gauges of all processes are combined; all others are those of the first process."""


class Setup(msgspec.Struct, frozen=True):
    """What a worker reads first. `niceness` is its own, 0 to 19, to give way to a gateway on the same machine."""

    config: Config
    data_dir: str
    log_format: str
    niceness: int | None


class ScoringWorkers:
    """All workers but the first, which is the monitors process itself.

    Each leases samples from the queue and stores scores, as another monitors process on the same store would.
    Estimates, alerts, retention and the page stay with the first one. A worker that dies is started again; its leases
    run out, and others score what it had.
    """

    def __init__(self, config: Config, data_dir: Path, *, supervised: bool, log_format: str) -> None:
        self._total = WorkersTotal()
        niceness = os.nice(0) + NICENESS if supervised else None  # now: this process lowers its own priority later
        self._processes = [
            ChildProcess(
                "monitors.scoring_process",
                total=self._total,
                setup=framed(Setup(_numbered(config, number), str(data_dir.absolute()), log_format, niceness)),
            )
            for number in range(2, config.monitors.workers + 1)
        ]
        self._running: list[asyncio.Task[int]] = []

    def registry(self, own: CollectorRegistry) -> CollectorRegistry:
        """Return `own` with the workers' counts added."""
        return SummedRegistry(own, self._total, GAUGES) if self._processes else own

    def fork(self) -> None:
        """Fork the processes, so that they share loaded code. Call it before this process has threads or a loop."""
        for process in self._processes:
            process.fork()

    def start(self) -> None:
        """Start the processes."""
        self._running = [spawn(child.run(), name="scoring worker") for child in self._processes]

    def stop(self) -> None:
        """Ask the processes to finish what they score."""
        for process in self._processes:
            process.stop()

    async def aclose(self) -> None:
        """Wait for their end."""
        if self._running and (await asyncio.wait(self._running, timeout=STOP_S))[1]:
            for process in self._processes:
                process.signal(signal.SIGKILL)
            await asyncio.wait(self._running)


def _numbered(config: Config, number: int) -> Config:
    """Return the configuration with a replica name of the worker's own."""
    monitors = msgspec.structs.replace(config.monitors, replica=f"{replica_of(config)}/{number}")
    return msgspec.structs.replace(config, monitors=monitors)
