"""Priority of processes that no request waits for."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_AUTOGROUP = Path("/proc/self/autogroup")


def lower_priority(niceness: int, *, own_session: bool = False) -> None:
    """Let other processes have the processor first; nothing where the system does not allow it.

    Call it after start-up: with a low priority from the start, a busy processor might never finish it. Linux may share
    the processor among sessions first (sched_autogroup): with `own_session` the session gives way, too.
    """
    with suppress(OSError):
        os.nice(niceness)
    if own_session:
        with suppress(OSError):
            _AUTOGROUP.write_text(str(niceness), "ascii")
