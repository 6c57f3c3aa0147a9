"""`gaugeway serve`: one process for each plane, started, restarted and stopped in order."""

from __future__ import annotations

import asyncio
import itertools
import logging
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence

from monitors.tasks import spawn

_log = logging.getLogger("gaugeway")
BAD_INPUT = 2
_STEADY_S = 60.0
_MAX_BACK_OFF_S = 30.0
_STOP_S = 15.0


class _Plane:
    """A process that is started again, with back-off, until it is stopped.

    It holds the other end of the process's standard input: should the supervisor die, the process sees it close and
    stops, so nothing is orphaned.
    """

    def __init__(self, module: str, arguments: Sequence[str]) -> None:
        self._module = module
        self._arguments = arguments
        self._process: Process | None = None
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Keep it running; return its exit code when stopped, or when its first start ended with bad input."""
        back_off = 0.5
        for start in itertools.count():
            started = time.monotonic()
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", self._module, *self._arguments, "--supervised", stdin=PIPE, start_new_session=True
            )
            if self._stopping.is_set():
                self._signal(signal.SIGTERM)
            code = await self._process.wait()
            if self._stopping.is_set() or (start == 0 and code == BAD_INPUT):
                return code
            if time.monotonic() - started > _STEADY_S:
                back_off = 0.5
            _log.error("%s ended with code %d; starting it again in %.1f s", self._module, code, back_off)
            try:
                async with asyncio.timeout(back_off):
                    await self._stopping.wait()
                return code
            except TimeoutError:
                back_off = min(back_off * 2, _MAX_BACK_OFF_S)
        raise AssertionError("counting does not end")

    def stop(self) -> None:
        """Ask it to end in order."""
        self._stopping.set()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it now."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)


async def supervise(arguments: Sequence[str]) -> int:
    """Run both planes until SIGTERM or SIGINT; return the exit code.

    The gateway stops first, so that what it still captures reaches the queue; the monitors may end at any time without
    the traffic noticing.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    gateway, monitors = _Plane("gateway", arguments), _Plane("monitors", arguments)
    gateway_run = spawn(gateway.run(), name="gateway")
    monitors_run = spawn(monitors.run(), name="monitors")
    stopped = spawn(stop.wait(), name="stop")
    await asyncio.wait({gateway_run, monitors_run, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    gateway.stop()
    code = await gateway_run
    monitors.stop()
    if not await _ends(monitors_run, _STOP_S):
        monitors.kill()
    return code or max(0, await monitors_run)


async def _ends(task: asyncio.Task[int], timeout_s: float) -> bool:
    done, _ = await asyncio.wait({task}, timeout=timeout_s)
    return bool(done)
