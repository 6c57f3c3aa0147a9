"""Syncs of the gate with stores, in the background: keys and spending, and limits shared with other gateways."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import Protocol

from gateway.access.gate import Gate
from gateway.access.keys import Keyring
from gaugeway.runtime.logs import Outage
from gaugeway.runtime.tasks import happens_within, spawn
from gaugeway.storage.documents import Documents
from gaugeway.storage.engines.failures import FAILURES, EngineError
from gaugeway.storage.keys import Keys

REFRESH_S = 3.0
"""How soon a revoked key is refused everywhere, and how much spending a crash loses: one short query each time."""
SYNC_S = 1.0
"""Between two exchanges with the shared store: what a limit can be exceeded by grows with it."""
_START_S = 2.0
_KEYS_WITHIN_S, _LIMITS_WITHIN_S = 10.0, 2.0
_log = logging.getLogger("gaugeway")


class _Sync(ABC):
    """Calls `sync` every `every_s` seconds, and once more when it is stopped."""

    def __init__(self, gate: Gate, name: str, every_s: float) -> None:
        self.every_s = every_s
        self._gate = gate
        self._name = name
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._outage = Outage(_log)

    def start(self) -> None:
        """Start in the background."""
        self._task = spawn(self._run(), name=self._name)

    @abstractmethod
    async def sync(self) -> bool:
        """Sync once; False, and a warning the first time, when that fails."""

    async def _stop(self) -> None:
        self._closing.set()
        if self._task is not None:
            await self._task
        await self.sync()

    async def _run(self) -> None:
        while True:
            await self.sync()
            if await happens_within(self._closing, self.every_s):
                return


class KeySync(_Sync):
    """Loads the stored keys into a gate, and saves the gate's spending, every `every_s` seconds.

    While the store is unavailable, the gate keeps the last known keys and its own count of the spending, which is saved
    once the store works again.
    """

    def __init__(self, store: Keys, gate: Gate, *, every_s: float) -> None:
        super().__init__(gate, "keys", every_s)
        self._store = store
        self._revision: bytes | None = None
        self._tried = asyncio.Event()

    async def first_attempt(self) -> None:
        """Return once the keys are loaded, or after a time limit."""
        await happens_within(self._tried, _START_S)

    async def sync(self) -> bool:
        """Read and write the store once; False, and a warning the first time, when that fails."""
        try:
            async with asyncio.timeout(_KEYS_WITHIN_S):
                await self._sync()
        except (*FAILURES, TimeoutError) as error:
            reason = str(error) or "no answer in time"
            self._outage.begin("keys: %s: %s; using the last known state", type(error).__name__, reason)
            return False
        finally:
            self._tried.set()
        self._outage.end("key store available again")
        return True

    async def aclose(self) -> None:
        """Save the spending and close the store."""
        await self._stop()
        await self._store.aclose()

    async def _sync(self) -> None:
        revision, keys = await self._store.changed(self._revision)
        if keys is not None:
            self._gate.use_keys(Keyring(keys))
            self._revision = revision
        unsaved = self._gate.unsaved()
        self._gate.saved(unsaved, await self._store.spend(unsaved, self._gate.today()))


class Observer(Protocol):
    """Counts syncs; the gateway's instruments."""

    def limits_shared(self, processes: int) -> None:
        """Set the number of processes that share the limits; 0 while this one enforces its own share."""

    def limits_unshared(self) -> None:
        """Count a failed sync."""


class LimitSync(_Sync):
    """Reports the usage and reads the remaining levels every `every_s` seconds.

    While the shared limits are unreachable, or take longer than two seconds, this process enforces its share. Draws
    whose answer was lost are sent again: they may be counted twice, but are never lost.
    """

    def __init__(self, sharing: Documents, gate: Gate, observer: Observer, *, every_s: float) -> None:
        super().__init__(gate, "limits", every_s)
        self._sharing = sharing
        self._observer = observer

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
        async with asyncio.timeout(_LIMITS_WITHIN_S):
            heard = await self._sharing.exchange(draws)
        self._gate.hear(draws, heard)
        return heard.processes

    async def aclose(self) -> None:
        """Report the last usage, and leave."""
        await self._stop()
        try:
            async with asyncio.timeout(_LIMITS_WITHIN_S):
                await self._sharing.aclose()
        except (EngineError, TimeoutError) as error:
            _log.warning("limits: %s while leaving", type(error).__name__)
