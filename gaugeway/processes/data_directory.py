"""Data directories: whether they can be written, and the locks for one gateway and one monitors process in each."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias

ProcessKind: TypeAlias = Literal["gateway", "monitors"]
TAKE_OVER_S = 15.0
"""How long a supervised plane waits for one whose supervisor was killed: longer than that one takes to stop."""
_LOOK_EVERY_S = 0.1
_PID_BYTES = 20
_log = logging.getLogger("gaugeway")


class DirectoryInUseError(OSError):
    """Another process runs this plane in the directory; the message names both."""


@contextlib.contextmanager
def hold(data_dir: Path, plane: ProcessKind, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the lock of a data directory for one process kind. Raises DirectoryInUseError after `wait_s`.

    A directory in which nothing can be written or locked is not guarded: the traffic must go on.
    """
    path = data_dir.absolute() / f"{plane}.lock"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        _log.warning(
            "cannot lock %s: %s. Make sure that only one %s process uses it", path.parent, error.strerror, plane
        )
        yield
        return
    try:
        if _locked(descriptor, path, plane, wait_s):
            os.ftruncate(descriptor, 0)
            with contextlib.suppress(OSError):  # a full disk: the lock holds, its holder has no name
                os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _locked(descriptor: int, path: Path, plane: ProcessKind, wait_s: float) -> bool:
    """Lock the file; False where the file system knows no locks."""
    deadline, warned = time.monotonic() + wait_s, False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                _log.warning(
                    "cannot lock %s: %s. Make sure that only one %s process uses it", path.parent, error.strerror, plane
                )
                return False
        else:
            return True
        holder = os.pread(descriptor, _PID_BYTES, 0).decode(errors="replace").strip() or "unknown"
        if time.monotonic() >= deadline:
            raise DirectoryInUseError(
                f"{path.parent} is in use by another {plane} process (pid {holder}); stop it, or give this one a "
                "directory of its own (--data-dir)"
            )
        if not warned:
            _log.warning("waiting for the %s process with pid %s to leave %s", plane, holder, path.parent)
            warned = True
        time.sleep(_LOOK_EVERY_S)


def directory_problem(directory: Path) -> str | None:
    """Say why nothing can be written to a directory, which need not exist yet."""
    there = directory.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        with tempfile.TemporaryDirectory(dir=there, prefix=".gaugeway-"):
            return None
    except OSError as error:
        return error.strerror
