"""Child processes: forked from this one or started as new interpreters, and kept running.

A fork shares the memory of the code that this process has loaded. Forking is safe only while a process has one thread
and no event loop: so a child is forked before those, and waits; it runs when it is started.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import itertools
import logging
import os
import runpy
import signal
import socket
import sys
import threading
import time
import traceback
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path

from gaugeway.processes.worker_metrics import FD_VARIABLE, WorkersTotal
from gaugeway.runtime.retry import Backoff
from gaugeway.runtime.tasks import happens_within, spawn
from gaugeway.settings import child_environment

_log = logging.getLogger("gaugeway")
BAD_INPUT = 2
_FIRST_START_S, _STEADY_S = 30.0, 60.0
_FIRST_BACK_OFF_S = 0.5
_MAX_BACK_OFF_S = 30.0  # internal bound: time between our own attempts
_LAST_REPORT_S = 5.0
_NAMES = {"monitors.scoring_process": "a scoring worker"}
_ROOT = Path(__file__).parents[2]
_START = b"\n"
_STANDARD_ERROR = 2


@dataclass(eq=False)
class ChildProcess:
    """A child process (`python -m MODULE`) that is restarted, with back-off, until it is stopped.

    The child's standard input stays open: if the supervisor dies, the child sees it close and stops, so no process is
    orphaned. `setup` is written to it first. With `total` the child gets a socket on which it reports its metrics.
    After `fork`, the first run is a fork of this process, which shares loaded code; later ones are new interpreters.
    """

    module: str
    arguments: Sequence[str] = ()
    _: KW_ONLY
    total: WorkersTotal | None = None
    descriptors: Sequence[int] = ()
    setup: bytes = b""

    def __post_init__(self) -> None:
        self._name = _NAMES.get(self.module, self.module)
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
        if self.total is not None:
            self._ends = socket.socketpair()
        number = None if self._ends is None else self._ends[1].fileno()
        run = partial(_run_as_main, self.module, self.arguments, _variables(number))
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
            return await (self._run_process() if self.total is None else self._run_worker(self.total))
        except OSError as error:
            _log.error("%s could not be started: %s", self.module, error.strerror)
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
        self._write(self.setup)
        if self._stopping:
            self.signal(signal.SIGTERM)
        return await self._process.wait()

    async def _start(self, metrics: int | None) -> Process | ForkedChild:
        forked, self._forked = self._forked, None
        return await start(
            forked,
            self.module,
            *self.arguments,
            variables=_variables(metrics),
            descriptors=self._inherited(metrics),
            session=True,
        )

    def _inherited(self, metrics: int | None) -> Sequence[int]:
        return (*self.descriptors, *(() if metrics is None else (metrics,)))

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


def command(module: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs a module like `python -m`, but imports nothing from the working directory.

    A file there could hide one of this project or of the standard library.
    """
    return sys.executable, "-P", "-m", module, *arguments


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for such a command: it loads the code that this process runs, a source tree's as well."""
    given = child_environment(extra or {})
    if _ROOT.name in ("site-packages", "dist-packages"):  # found anyway, and after the standard library
        return given
    return given | {"PYTHONPATH": os.pathsep.join(filter(None, (str(_ROOT), given.get("PYTHONPATH"))))}


async def start(
    forked: ForkedChild | None,
    module: str,
    *arguments: str,
    variables: Mapping[str, str] | None = None,
    descriptors: Sequence[int] = (),
    session: bool = False,
    output: bool = False,
) -> Process | ForkedChild:
    """Start the fork; without one, a new interpreter that gets what a fork was given. Raises OSError."""
    if forked is not None:
        await forked.start()
        return forked
    return await asyncio.create_subprocess_exec(
        *command(module, *arguments),
        stdin=PIPE,
        stdout=PIPE if output else None,
        start_new_session=session,
        env=environment(variables),
        pass_fds=descriptors,
    )


class ForkedChild:
    """A child process that waits until `start`; its standard input, and its output if asked for, are a socket to here.

    It has the interface of `asyncio.subprocess.Process`, as far as it is used. If this process ends, or drops the
    child before `start`, the child ends.
    """

    def __init__(self, pid: int, end: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdin: asyncio.StreamWriter | None = None
        self.stdout: asyncio.StreamReader | None = None
        self._end = end
        self._ended = asyncio.Event()

    async def start(self) -> None:
        """Let it run. Raises OSError."""
        self.stdout, self.stdin = await asyncio.open_unix_connection(sock=self._end)
        watched = os.pidfd_open(self.pid)
        asyncio.get_running_loop().add_reader(watched, self._reap, watched)
        self.stdin.write(_START)

    def close(self) -> None:
        """Let it end without having run."""
        self._end.close()

    async def wait(self) -> int:
        """Wait for its end; return its exit code, or the negative number of the signal that ended it."""
        await self._ended.wait()
        assert self.returncode is not None  # noqa: S101 - for the type checker: set before the event
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it is running."""
        if self.returncode is None:  # until it is reaped, no other process has its number
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)

    def _reap(self, watched: int) -> None:
        asyncio.get_running_loop().remove_reader(watched)
        os.close(watched)
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if self.stdin is not None:
            self.stdin.close()
        self._ended.set()


def fork(
    run: Callable[[], None],
    *,
    prepare: Callable[[], None] = lambda: None,
    descriptors: Sequence[int] = (),
    session: bool = False,
    output: bool = False,
) -> ForkedChild | None:
    """Fork a child that calls `prepare` at once, and `run` once it is started; None where a fork is not possible.

    Of the open files the child keeps the standard ones and `descriptors`. `session` gives it a session of its own,
    `output` connects its standard output to the socket, too. What was loaded before is excluded from garbage
    collection in both processes, which would write to, and so copy, every page of it.
    """
    if not _can_fork():
        return None
    ours, theirs = socket.socketpair()
    _flush()
    gc.collect()
    gc.freeze()
    try:
        pid = os.fork()
    except OSError:
        ours.close()
        theirs.close()
        return None
    if pid:
        theirs.close()
        return ForkedChild(pid, ours)
    code = 1
    try:
        _become(theirs, descriptors, session=session, output=output)
        prepare()
        if os.read(0, len(_START)) == _START:  # else the parent has ended, or does not need the child
            code = _exit_code(run)
    finally:
        os._exit(code)


def _can_fork() -> bool:
    """Whether the system can watch a child, and a copy of this process would be like a new one."""
    if not hasattr(os, "pidfd_open") or threading.active_count() > 1 or child_environment({}) != dict(os.environ):  # noqa: TID251 - compared, not read
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:  # an old kernel, or a sandbox
        return False
    return True


def _become(end: socket.socket, descriptors: Sequence[int], *, session: bool, output: bool) -> None:
    """Take the socket for standard input, and close what is the parent's."""
    if session:
        os.setsid()
    os.dup2(end.fileno(), 0)
    if output:
        os.dup2(end.fileno(), 1)
    end.detach()
    for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if number > _STANDARD_ERROR and number not in descriptors:
            with contextlib.suppress(OSError):  # that of the directory is closed by now
                os.close(number)


def _exit_code(run: Callable[[], None]) -> int:
    """Call `run` as the main program; return the exit code of the process."""
    code = 0
    try:
        run()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as Python does at the top
        traceback.print_exc()
        code = 1
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    logging.shutdown()
    _flush()
    return code


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            if stream is not None:  # it was closed before the start
                stream.flush()
