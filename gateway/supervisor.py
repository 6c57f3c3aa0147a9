"""`gaugeway serve`: starts, restarts, reloads and stops the processes of both planes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from asyncio.subprocess import PIPE
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from gateway.config import Config, listeners
from gateway.reload import REFUSED, RestartNeeded, Snapshot, check_live, report_refusal
from gaugeway.processes import child_process
from gaugeway.processes.child_process import ChildProcess
from gaugeway.processes.worker_metrics import WorkersTotal
from gaugeway.runtime import audit
from gaugeway.runtime.system import reap_orphans
from gaugeway.runtime.tasks import spawn
from gaugeway.settings import ConfigError
from gaugeway.settings.endpoints import wait_until_free

_log = logging.getLogger("gaugeway")
_STOP_S = 15.0
_LOOK_AT_FILE_S = 1.0
_SHARED = (
    "litestar",
    "gaugeway.redaction",
    "gaugeway.runtime.serving",
    "gaugeway.storage.engines.sqlite.queue",
    "gaugeway.storage.templates",
    "uvicorn.protocols.http.httptools_impl",
    "uvloop",
)
"""What the processes of both planes load."""
_MONITORS = ("monitors.app", "dashboards.web.app")
"""What the monitors load besides, while this process loads the gateway."""


class Supervisor:
    """Runs `workers` gateway processes and, unless `monitors` is False, one monitors process.

    A SIGHUP, or a change of the configuration file, reloads: the file is checked first; one that is invalid, or needs a
    restart of a gateway, changes nothing. The gateways apply it without a pause; the monitors, which serve no traffic,
    are restarted. All processes read a snapshot of the accepted file, so that a process that is restarted does not read
    a refused one. `arguments` returns the command line of the processes for a configuration file, `read` its content.
    """

    def __init__(
        self,
        arguments: Callable[[Path | None], Sequence[str]],
        read: Callable[[Path | None], Config],
        *,
        config: Path | None,
        monitors: bool,
    ) -> None:
        self._arguments, self._read = arguments, read
        self._config = config
        self._stamp = _stamp(config)
        self._snapshot = None if config is None else Snapshot(config)
        if self._snapshot is not None:
            self._snapshot.take()
        self._accepted = read(self._path)
        workers = self._accepted.gateway.workers
        total = WorkersTotal() if workers > 1 else None
        given, inherited = arguments(self._path), self._snapshot.inherited if self._snapshot is not None else ()
        given = (*given, "--supervised")
        self._gateways = [ChildProcess("gateway", given, total=total, descriptors=inherited) for _ in range(workers)]
        self._monitors = [ChildProcess("monitors", given, descriptors=inherited)] if monitors else []

    @property
    def _path(self) -> Path | None:
        return self._snapshot.path if self._snapshot is not None else None

    def fork(self) -> None:
        """Fork the first processes, which then share loaded code. Call it before this process has threads or a loop."""
        for module in _SHARED:
            import_module(module)
        for process in self._monitors:
            process.fork(_MONITORS)
        import_module("gateway.app")
        for process in self._gateways:
            process.fork()

    async def run(self) -> int:
        """Run until SIGTERM or SIGINT; return the exit code. Raises OSError, before a start, if an address is in use.

        The gateways stop first, so that what they still capture reaches the queue; the traffic does not depend on the
        monitors.
        """
        planes = ("gateway.", "monitors.") if self._monitors else ("gateway.",)
        await wait_until_free((host, port) for key, host, port in listeners(self._accepted) if key.startswith(planes))
        stop, reload = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGHUP, reload.set)
        gateways = [spawn(process.run(), name="gateway") for process in self._gateways]
        monitors = [spawn(process.run(), name="monitors") for process in self._monitors]
        stopped = spawn(stop.wait(), name="stop")
        helpers = [stopped, spawn(self._reload_on(reload), name="reload"), spawn(self._watch(reload), name="watch")]
        if os.getpid() == 1:
            helpers.append(spawn(reap_orphans(), name="orphans"))
        await asyncio.wait({*gateways, *monitors, stopped}, return_when=asyncio.FIRST_COMPLETED)
        for helper in helpers:
            helper.cancel()
        settings, log = self._accepted.gateway, _log.info if stop.is_set() else _log.debug
        log("draining: requests in progress have up to %.0f s", settings.drain_delay_s + settings.drain_s)
        for process in self._monitors:
            process.retire()
        codes = await _stop(self._gateways, gateways, settings.drain_delay_s + settings.drain_s + _STOP_S)
        log("drained: all gateways have stopped")
        codes += await _stop(self._monitors, monitors, _STOP_S)
        return max(0, *codes)

    async def _watch(self, reload: asyncio.Event) -> None:
        """Trigger a reload when the configuration file changes."""
        while self._config is not None:
            await asyncio.sleep(_LOOK_AT_FILE_S)
            if (stamp := _stamp(self._config)) not in (self._stamp, None):
                self._stamp = stamp
                reload.set()

    async def _reload_on(self, asked: asyncio.Event) -> None:
        while True:
            await asked.wait()
            asked.clear()
            if self._config is None or self._snapshot is None:
                _log.info("SIGHUP: no configuration file to reload")
                continue
            self._stamp = _stamp(self._config) or self._stamp  # SIGHUP after a change: it is applied once
            candidate = Snapshot(self._config)
            try:
                await self._reload(candidate, self._snapshot)
            except (OSError, ConfigError) as error:
                self._refuse(str(error))
            finally:
                candidate.close()

    async def _reload(self, candidate: Snapshot, accepted: Snapshot) -> None:
        """Apply a new configuration in all processes, or in none. Raises OSError and ConfigError."""
        candidate.take()
        if (problems := await self._problems(candidate)) is not None:
            self._refuse(problems)
            return
        config = self._read(candidate.path)
        try:
            check_live(self._accepted, config)
        except RestartNeeded as error:
            report_refusal(error)
            self._count_refusal(error.keys)
            return
        self._accepted = config
        accepted.replace(candidate)
        _log.info("configuration reloaded from %s", self._config)
        for process in self._gateways:
            process.signal(signal.SIGHUP)
        for process in self._monitors:
            process.restart()

    async def _problems(self, candidate: Snapshot) -> str | None:
        """Check a configuration in a separate process, as it may load the user's classes; None when it is valid."""
        check = await asyncio.create_subprocess_exec(
            *child_process.command("gaugeway", "check", *self._arguments(candidate.path), "--supervised"),
            env=child_process.environment(),
            stdout=PIPE,
            stderr=PIPE,
            pass_fds=candidate.inherited,
        )
        _, problems = await check.communicate()
        if check.returncode == 0:
            return None
        return problems.decode(errors="replace").strip().replace(str(candidate.path), str(candidate.file))

    def _refuse(self, problems: str) -> None:
        audit.tell("reload", outcome="refused", process=os.getpid())
        lines = (line.removeprefix("gaugeway: ") for line in problems.splitlines())
        _log.error(
            "reload refused, configuration unchanged: %s",
            "; ".join(line for line in lines if line and not line.startswith("warning: ")),
        )
        self._count_refusal(())

    def _count_refusal(self, keys: Sequence[str]) -> None:
        for process in self._gateways:
            process.write_line(" ".join([REFUSED, *keys]))


async def _stop(processes: Sequence[ChildProcess], running: Sequence[asyncio.Task[int]], within_s: float) -> list[int]:
    """Stop processes; kill those that take longer. Return their exit codes."""
    for process in processes:
        process.stop()
    if running and (late := (await asyncio.wait(running, timeout=within_s))[1]):
        _log.error("killing what did not stop within %.0f s: %d of %d processes", within_s, len(late), len(running))
        for process in processes:
            process.signal(signal.SIGKILL)
    return list(await asyncio.gather(*running))


def _stamp(path: Path | None) -> tuple[int, int] | None:
    try:
        found = path.stat() if path is not None else None
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size) if found is not None else None
