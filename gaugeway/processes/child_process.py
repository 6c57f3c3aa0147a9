"""Child processes that are kept running."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import logging
import os
import runpy
import signal
import socket
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Sequence
from functools import partial

from gaugeway.processes import interpreter
from gaugeway.processes.forked import ForkedChild, fork
from gaugeway.processes.worker_metrics import FD_VARIABLE, WorkersTotal
from gaugeway.runtime.retry import Backoff
from gaugeway.runtime.tasks import happens_within, spawn

_log = logging.getLogger("gaugeway")
BAD_INPUT = 2
_FIRST_START_S, _STEADY_S = 30.0, 60.0
_FIRST_BACK_OFF_S = 0.5
_MAX_BACK_OFF_S = 30.0  # internal bound: time between our own attempts
_LAST_REPORT_S = 5.0
_NAMES = {"monitors.scoring_process": "a scoring worker"}


class ChildProcess:
    """A child process (`python -m MODULE`) that is restarted, with back-off, until it is stopped.

    The child's standard input stays open: if the supervisor dies, the child sees it close and stops, so no process is
    orphaned. `setup` is written to it first. With `total` the child gets a socket on which it reports its metrics.
    After `fork`, the first run is a fork of this process, which shares loaded code; later ones are new interpreters.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        *,
        total: WorkersTotal | None = None,
        descriptors: Sequence[int] = (),
        setup: bytes = b"",
    ) -> None:
        self._module = module
        self._name = _NAMES.get(module, module)
        self._arguments = arguments
        self._total = total
        self._descriptors = descriptors
        self._setup = setup
        self._process: Process | ForkedChild | None = None
        self._forked: ForkedChild | None = None
        self._ends: tuple[socket.socket, socket.socket] | None = None
        self._stopping = False
        self._no_more = asyncio.Event()
        self._restarting = False

    def fork(self, load: Sequence[str] = ()) -> None:
        """Fork the process of the first run, which loads the modules `load` and waits for the run.

        Call it before this process has another thread or an event loop.
        """
        if self._total is not None:
            self._ends = socket.socketpair()
        number = None if self._ends is None else self._ends[1].fileno()
        run = partial(_run_as_main, self._module, self._arguments, _variables(number))
        self._forked = fork(run, prepare=partial(_load, load), descriptors=self._inherited(number), session=True)

    async def run(self) -> int:
        """Keep the process running; return its exit code when stopped, or when its first start ended with bad input."""
        back_off = Backoff(_FIRST_BACK_OFF_S, _MAX_BACK_OFF_S)
        for start in itertools.count():
            started = time.monotonic()
            code = await self._run_once()
            lived_s = time.monotonic() - started
            bad_input = start == 0 and code == BAD_INPUT and lived_s < _FIRST_START_S
            if self._stopping or bad_input:
                return code
            if self._no_more.is_set():
                if code:
                    _log.error("%s %s", self._name, _ending(code))
                return 0
            if self._restarting:
                self._restarting = False
                continue
            if lived_s > _STEADY_S:
                back_off.reset()
            pause_s = back_off.failed()
            _log.error("%s %s; restarting in %.1f s", self._name, _ending(code), pause_s)
            if await happens_within(self._no_more, pause_s):
                return 0  # it ended before it was stopped, which is logged
        raise AssertionError("counting does not end")

    async def _run_once(self) -> int:
        """Start the process and wait for its end; a start that the system refuses counts as exit code 1."""
        try:
            return await (self._run_process() if self._total is None else self._run_worker(self._total))
        except OSError as error:
            _log.error("%s could not be started: %s", self._module, error.strerror)
            return 1

    async def _run_worker(self, total: WorkersTotal) -> int:
        ours, theirs = self._ends or socket.socketpair()
        self._ends = None
        following = spawn(total.follow(ours), name="metrics of a worker")
        try:
            return await self._run_process(theirs)
        finally:
            theirs.close()
            await asyncio.wait([following], timeout=_LAST_REPORT_S)
            following.cancel()

    async def _run_process(self, metrics: socket.socket | None = None) -> int:
        self._process = await self._start(None if metrics is None else metrics.fileno())
        if metrics is not None:
            metrics.close()  # the worker's copy alone keeps the socket open
        self._write(self._setup)
        if self._stopping:
            self.signal(signal.SIGTERM)
        return await self._process.wait()

    async def _start(self, metrics: int | None) -> Process | ForkedChild:
        forked, self._forked = self._forked, None
        return await interpreter.start(
            forked,
            self._module,
            *self._arguments,
            variables=_variables(metrics),
            descriptors=self._inherited(metrics),
            session=True,
        )

    def _inherited(self, metrics: int | None) -> Sequence[int]:
        return (*self._descriptors, *(() if metrics is None else (metrics,)))

    def retire(self) -> None:
        """Do not start the process again once it has ended."""
        self._no_more.set()

    def stop(self) -> None:
        """Ask the process to shut down."""
        self._stopping = True
        self._no_more.set()
        self.signal(signal.SIGTERM)

    def restart(self) -> None:
        """Ask the process to shut down, and start it again at once."""
        self._restarting = True
        self.signal(signal.SIGTERM)

    def write_line(self, line: str) -> None:
        """Write a line to the standard input of the process, if it is running."""
        self._write(line.encode() + b"\n")

    def _write(self, data: bytes) -> None:
        """Write to the standard input of the process; nothing once it has ended, which may be at once."""
        pipe = self._process.stdin if self._process is not None and self._process.returncode is None else None
        if data and pipe is not None and not pipe.is_closing():  # closed: it ended, and its exit code is not there yet
            pipe.write(data)

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal, if it is running."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)


def _variables(metrics: int | None) -> dict[str, str]:
    return {} if metrics is None else {FD_VARIABLE: str(metrics)}


def _load(modules: Sequence[str]) -> None:
    for module in modules:
        importlib.import_module(module)


def _run_as_main(module: str, arguments: Sequence[str], variables: dict[str, str]) -> None:
    """Run a module as `python -m MODULE` does."""
    os.environ.update(variables)  # noqa: TID251 - handed to this process, which is the child
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _ending(code: int) -> str:
    """Describe how a process ended.

    >>> _ending(1), _ending(-9), _ending(-99)
    ('exited with code 1', 'was killed by SIGKILL', 'was killed by signal 99')
    """
    if code >= 0:
        return f"exited with code {code}"
    known = {int(known_signal): known_signal.name for known_signal in signal.Signals}
    return f"was killed by {known.get(-code, f'signal {-code}')}"
