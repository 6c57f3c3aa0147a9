"""One process in charge: of many that share a store, one runs what must run once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, runtime_checkable

from monitors.stores import Ledger
from monitors.tasks import spawn

MONITORS = "monitors"
"""What there is to lead: detectors, alerts, their delivery, retention, anchors."""


class DeposedError(ConnectionError):
    """Another process leads by now: what this one wanted to save is not saved."""


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


@runtime_checkable
class Elects(Protocol):
    """A store that several processes share, and where they find out which of them leads."""

    def leader(self, name: str, tick_s: float) -> tuple[Leader, Ledger]:
        """Return a candidacy for leading `name`, and a ledger that raises DeposedError for all but the leader.

        When a leader dies another one leads within two ticks.
        """


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


def stand(store: object, ledger: Ledger, tick_s: float) -> tuple[Leader, Ledger]:
    """Return this process's candidacy in `store`, and the ledger for what only the leader saves."""
    return store.leader(MONITORS, tick_s) if isinstance(store, Elects) else (Alone(), ledger)


async def while_leading(leader: Leader, work: Callable[[], Coroutine[Any, Any, None]], *, name: str) -> None:
    """Have `work` done while this process leads, from the beginning each time."""
    while True:
        task = spawn(work(), name=name) if leader.is_leader() else None
        try:
            await leader.changed()
        finally:
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
