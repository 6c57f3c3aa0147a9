"""Child processes forked from this one, which share the memory of the code that it has loaded.

Forking is safe only while a process has one thread and no event loop. So a child is forked before those, and waits; it
runs when it is started. Later processes of the same kind are new interpreters.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from gaugeway.settings import child_environment

_START = b"\n"
_STANDARD_ERROR = 2


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
