"""Limit sync: exchanges usage with the other gateways, in the background."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from gateway.access.gate import Gate
from gaugeway.runtime.logs import Outage
from gaugeway.runtime.tasks import happens_within, spawn
from gaugeway.storage.documents import Documents
from gaugeway.storage.engines.failures import FAILURES, EngineError

SYNC_S = 1.0
"""Between two exchanges with the shared store: what a limit can be exceeded by grows with it."""
_LONGEST_S = 2.0  # internal bound: time between our own attempts
_log = logging.getLogger("gaugeway")


class Observer(Protocol):
    """Counts syncs; the gateway's instruments."""

    def limits_shared(self, processes: int) -> None:
        """Set the number of processes that share the limits; 0 while this one enforces its own share."""

    def limits_unshared(self) -> None:
        """Count a failed sync."""


class LimitSync:
    """Reports the usage and reads the remaining levels every `every_s` seconds.

    While the shared limits are unreachable, or take longer than two seconds, this process enforces its share. Draws
    whose answer was lost are sent again: they may be counted twice, but are never lost.
    """

    def __init__(self, sharing: Documents, gate: Gate, observer: Observer, *, every_s: float) -> None:
        self._sharing = sharing
        self._gate = gate
        self._observer = observer
        self._every_s = every_s
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._outage = Outage(_log)

    def start(self) -> None:
        """Start in the background."""
        self._task = spawn(self._run(), name="limits")

    async def sync(self) -> bool:
        """Sync all accounts; False, and a warning the first time, when that fails."""
        try:
            for _ in range(self._gate.rounds()):
                processes = await self._exchange()
        except (*FAILURES, TimeoutError) as error:
            self._gate.part()
            self._observer.limits_shared(0)
            self._observer.limits_unshared()
            reason = str(error) or "no answer in time"
            self._outage.begin("limits: %s: %s; each gateway keeps to its share", type(error).__name__, reason)
            return False
        self._observer.limits_shared(processes)
        self._outage.end("limits: shared by %d processes again", processes)
        return True

    async def _exchange(self) -> int:
        draws = self._gate.draws()
        async with asyncio.timeout(_LONGEST_S):
            heard = await self._sharing.exchange(draws)
        self._gate.hear(draws, heard)
        return heard.processes

    async def aclose(self) -> None:
        """Report the last usage, and leave."""
        self._closing.set()
        if self._task is not None:
            await self._task
        await self.sync()
        try:
            async with asyncio.timeout(_LONGEST_S):
                await self._sharing.aclose()
        except (EngineError, TimeoutError) as error:
            _log.warning("limits: %s while leaving", type(error).__name__)

    async def _run(self) -> None:
        while True:
            await self.sync()
            if await happens_within(self._closing, self._every_s):
                return
