"""Key sync: loads keys into the gate and saves its spending, in the background."""

from __future__ import annotations

import asyncio
import logging

from gateway.access.gate import Gate
from gateway.access.keys import Keyring
from gaugeway.runtime.logs import Outage
from gaugeway.runtime.tasks import happens_within, spawn
from gaugeway.storage.engines.failures import FAILURES
from gaugeway.storage.keys import Keys

REFRESH_S = 3.0
"""How soon a revoked key is refused everywhere, and how much spending a crash loses: one short query each time."""
_START_S = 2.0
_LONGEST_S = 10.0  # internal bound: time between our own attempts
_log = logging.getLogger("gaugeway")


class KeySync:
    """Loads the stored keys into a gate, and saves the gate's spending, every `every_s` seconds.

    While the store is unavailable, the gate keeps the last known keys and its own count of the spending, which is saved
    once the store works again.
    """

    def __init__(self, store: Keys, gate: Gate, *, every_s: float) -> None:
        self._store = store
        self._gate = gate
        self.every_s = every_s
        self._revision: bytes | None = None
        self._closing = asyncio.Event()
        self._tried = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._outage = Outage(_log)

    def start(self) -> None:
        """Start in the background."""
        self._task = spawn(self._run(), name="keys")

    async def first_attempt(self) -> None:
        """Return once the keys are loaded, or after a time limit."""
        await happens_within(self._tried, _START_S)

    async def sync(self) -> bool:
        """Read and write the store once; False, and a warning the first time, when that fails."""
        try:
            async with asyncio.timeout(_LONGEST_S):
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
        self._closing.set()
        if self._task is not None:
            await self._task
        await self.sync()
        await self._store.aclose()

    async def _run(self) -> None:
        while True:
            await self.sync()
            if await happens_within(self._closing, self.every_s):
                return

    async def _sync(self) -> None:
        revision, keys = await self._store.changed(self._revision)
        if keys is not None:
            self._gate.use_keys(Keyring(keys))
            self._revision = revision
        unsaved = self._gate.unsaved()
        self._gate.saved(unsaved, await self._store.spend(unsaved, self._gate.today()))
