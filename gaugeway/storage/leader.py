"""Leader election: of the processes that share a store, one runs what must run once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from gaugeway.extensions import load
from gaugeway.runtime.tasks import spawn
from gaugeway.storage.engine import engine_of
from gaugeway.storage.engines.failures import EngineError
from gaugeway.storage.stores import StateStore

MONITORS = "monitors"
"""What there is to lead: detectors, alerts, their delivery, retention, anchors."""
_log = logging.getLogger("gaugeway")


class DeposedError(EngineError):
    """Another process is the leader now, so this one's states were not saved."""


class Leader(Protocol):
    """The candidacy of this process; it stands from `start` to `aclose`."""

    def is_leader(self) -> bool:
        """Whether this process leads, as far as it knows. What it saves by a fenced ledger is refused if it errs."""

    async def changed(self) -> None:
        """Wait until the answer of `is_leader` changes."""

    def start(self) -> None:
        """Stand for election; needs a running event loop."""

    async def aclose(self) -> None:
        """Step down, so that another one leads at once."""


class Alone:
    """The leader where nobody else shares the store."""

    def is_leader(self) -> bool:
        """Always."""
        return True

    async def changed(self) -> None:
        """Never."""
        await asyncio.Event().wait()

    def start(self) -> None:
        """There is no election."""

    async def aclose(self) -> None:
        """There is nobody to hand over to."""


class Follower(Alone):
    """The candidacy of a process that never leads: another one on this machine stands for both."""

    def is_leader(self) -> bool:
        """Never."""
        return False


def stand(url: str, ledger: StateStore, tick_s: float, queue_url: str = "") -> tuple[Leader, StateStore]:
    """Return this process's candidacy in the store that `url` names, and the ledger for what only the leader saves.

    That ledger raises DeposedError for all others. When a leader dies another one leads within two ticks. Where the
    store has no lock, the engine of the queue at `queue_url` elects, and keeps what the leader saves; where that
    cannot either, this process leads, and must be the only one.
    """
    if (engine := engine_of(url)) is None or engine.embedded:
        return Alone(), ledger
    for place in (url, queue_url):
        if (elects := engine_of(place)) is not None and elects.leader is not None:
            leader, fenced = load(elects.leader, {})(place, ledger, MONITORS, tick_s)
            return leader, fenced
    _log.warning("leader election unavailable with this store and queue: run exactly one monitors process")
    return Alone(), ledger


async def while_leading(leader: Leader, work: Callable[[], Coroutine[Any, Any, None]], *, name: str) -> None:
    """Run `work` while this process is the leader, from the start each time it is elected."""
    while True:
        task = spawn(work(), name=name) if leader.is_leader() else None
        try:
            await leader.changed()
        finally:
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
