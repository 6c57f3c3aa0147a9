"""What judging cost today, kept in the ledger: it survives a restart, and processes with one store share a budget."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

import msgspec

from monitors.judges.budget import BudgetPacer, Spent
from monitors.storage.stores import StateStore

_log = logging.getLogger("gaugeway.judge")
PREFIX = "judge/spent/"
ALIVE_S = 60.0
"""Who has not been heard of for so long wants nothing any more; what it spent stays spent."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What one process paid on a UTC day (see `Spent`), and how much a second it wanted at that time, Unix seconds."""

    day: int
    usd: float
    unseen: float = 0.0
    wanted: float = 0.0
    at: float = 0.0


class Spending:
    """Keeps the account of one process, `replica`, in the ledger, and tells its pacer of those of all others.

    The first tick goes on from this replica's own account. Where it has none, but others have, nothing was spent here;
    where nobody has one, the pacer's own guess stands (the part of the day that is over). `clock` gives Unix time.
    """

    def __init__(
        self, ledger: StateStore, pacer: BudgetPacer, replica: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._ledger = ledger
        self._pacer = pacer
        self._key = PREFIX + replica
        self._clock = clock
        self._resumed = False
        self._written: tuple[bytes | None, bytes | None] = (None, None)
        self._complaints: set[str] = set()

    async def tick(self) -> None:
        """Hear of the others, then save. What the ledger raises comes out; until then the last known stands."""
        states = await self._ledger.load()
        accounts = self._accounts(states)
        now = self._clock()
        if self._resumed:
            self._look_for_namesakes(states)
        else:
            self._resume(accounts, now)
        today = self._pacer.spent(now).day
        others = [one for key, one in accounts.items() if key != self._key and one.day == today]
        wanted = sum(one.wanted for one in others if abs(now - one.at) <= ALIVE_S)
        self._pacer.hear(sum(one.usd for one in others), wanted, now)
        await self._save(now)

    def _resume(self, accounts: Mapping[str, Account], now: float) -> None:
        today = self._pacer.spent(now).day
        own = accounts.get(self._key)
        if own is not None and own.day <= today:
            self._pacer.resume(Spent(own.day, own.usd, own.unseen), now)
        elif accounts:
            unseen = max((one.unseen for one in accounts.values() if one.day == today), default=0.0)
            self._pacer.resume(Spent(today, 0.0, unseen), now)
        self._resumed = True

    async def _save(self, now: float) -> None:
        spent = self._pacer.spent(now)
        account = Account(day=spent.day, usd=spent.usd, unseen=spent.unseen, wanted=self._pacer.wanted(now), at=now)
        self._written = self._written[1], msgspec.json.encode(account)
        await self._ledger.save({self._key: self._written[1] or b""})

    def _look_for_namesakes(self, states: Mapping[str, bytes]) -> None:
        """Complain when another process writes this account: each would undo what the other paid."""
        found = states.get(self._key)
        if found is not None and found not in self._written:
            self._complain(f"another process spends as {self._key}: give each a name of its own (monitors.replica)")

    def _accounts(self, states: Mapping[str, bytes]) -> dict[str, Account]:
        """Every account that can be read."""
        found = {}
        for key, state in states.items():
            if key.startswith(PREFIX):
                try:
                    found[key] = msgspec.json.decode(state, type=Account)
                except msgspec.DecodeError:
                    self._complain(f"the ledger's {key} cannot be read and is not counted")
        return found

    def _complain(self, problem: str) -> None:
        """Say it once: it is met at every tick."""
        if problem not in self._complaints:
            self._complaints.add(problem)
            _log.warning("%s", problem)
