"""Leader election by a PostgreSQL advisory lock, which is released when the leader's connection ends."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Mapping

import asyncpg

from gaugeway.runtime.tasks import spawn
from gaugeway.storage.engines.postgres.connection import DRIVER_ERRORS, Database, save
from gaugeway.storage.engines.postgres.store import PostgresStore
from gaugeway.storage.leader import DeposedError
from gaugeway.storage.stores import StateStore

_PROBE_S = 5.0
_CLAIM = "SELECT pg_try_advisory_lock(hashtextextended('gaugeway/' || $1, 0))"
_BEGIN = PostgresStore.conditions.sql["begin_term"]
# The lock on the term makes the next leader's beginning wait for this save, and this save see any beginning before it.
_TERM = "SELECT term FROM terms WHERE name = $1 FOR SHARE"
_log = logging.getLogger("gaugeway")


class PostgresLeader:
    """Claims the lock every `tick_s` / 2 on a connection of its own, and while it has it makes sure that it still is.

    With `owns` nobody else uses the database, which is closed with this.

    `term` is the number of this reign, or None. A leader that does not hear from the database for as long as a probe
    may take leads no more; a machine that vanishes is given up by the database within about 6 s.
    """

    def __init__(self, database: Database, name: str, tick_s: float, *, owns: bool = False) -> None:
        self.name = name
        self._owns = owns
        self.term: int | None = None
        self._change = asyncio.Event()
        self._database = database
        self._tick_s = tick_s
        self._holder = f"{socket.gethostname()}:{os.getpid()}"
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._task: asyncio.Task[None] | None = None
        self._complained = False

    def is_leader(self) -> bool:
        """Whether this process leads, as far as it knows."""
        return self.term is not None

    async def changed(self) -> None:
        """Wait until the answer of `is_leader` changes."""
        await self._change.wait()

    def start(self) -> None:
        """Stand for election."""
        self._task = spawn(self._run(), name=f"leading {self.name}")

    async def aclose(self) -> None:
        """Step down: the lock goes with the connection."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        if self.term is not None:
            self._set(None)
            _log.info("leader election: this process stops, another one may lead")
        await self._disconnect()
        if self._owns:
            await self._database.aclose()

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(min(_PROBE_S, max(self._tick_s, 2.0))):
                    await self._round()
                self._complained = False
            except DRIVER_ERRORS as error:
                if not self._complained:
                    _log.warning("leader election: %s: %s", type(error).__name__, error)
                self._complained = True
                await self._lose("the database cannot be asked")
            await asyncio.sleep(self._tick_s / 2)

    async def _round(self) -> None:
        if self._connection is None or self._connection.is_closed():
            await self._lose("the connection is gone")
            self._connection = await self._database.dedicated()
            self._connection.add_termination_listener(self._gone)
        if self.term is not None:
            await self._connection.execute("SELECT 1")
        elif await self._connection.fetchval(_CLAIM, self.name):
            self._set(await self._connection.fetchval(_BEGIN, self.name, self._holder))
            _log.info("leader election: this process is the leader, term %d", self.term)

    def _gone(self, connection: object) -> None:
        """The connection ended, and the lock with it: do not wait for the next round."""
        if connection is self._connection:
            self._end("the connection was closed")

    def _end(self, why: str) -> None:
        if self.term is not None:
            self._set(None)
            _log.warning("leader election: this process lost leadership: %s", why)

    def _set(self, term: int | None) -> None:
        self.term = term
        self._change.set()
        self._change = asyncio.Event()

    async def _lose(self, why: str) -> None:
        self._end(why)
        await self._disconnect()

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed():
            try:
                await connection.close(timeout=1.0)
            except DRIVER_ERRORS:
                connection.terminate()


class FencedLedger:
    """The ledger of what only a leader may save. Raises DeposedError for one whose term is over.

    `earlier` has what was saved before this ledger was in use, or was moved there; nothing is written to it.
    """

    def __init__(self, database: Database, leader: PostgresLeader, earlier: StateStore | None = None) -> None:
        self._database = database
        self._leader = leader
        self._earlier = earlier

    async def load(self) -> Mapping[str, bytes]:
        """Return every state saved so far."""
        earlier = await self._earlier.load() if self._earlier else {}
        async with self._database.connection() as connection:
            found = await connection.fetch("SELECT name, value FROM states")
        return {**earlier, **{row["name"]: row["value"] for row in found}}

    async def save(self, states: Mapping[str, bytes]) -> None:
        """Save all of `states` in one transaction, if this process leads."""
        if (term := self._leader.term) is None:
            raise DeposedError("another process leads; it alone saves this")
        async with self._database.transaction() as connection:
            if await connection.fetchval(_TERM, self._leader.name) == term:
                await save(connection, states)
                return
        raise DeposedError(f"term {term} is over: another process leads; it alone saves this")


def stand(url: str, ledger: StateStore, name: str, tick_s: float) -> tuple[PostgresLeader, FencedLedger]:
    """Return a candidacy for leading `name` in the database at `url`, and the ledger there that takes its word only.

    `ledger` is the store in that database, or that of an engine that cannot elect.
    """
    if isinstance(ledger, PostgresStore) and ledger.url == url:
        leader = PostgresLeader(ledger.database, name, tick_s)
        return leader, FencedLedger(ledger.database, leader)
    database = Database(url, size=2)
    leader = PostgresLeader(database, name, tick_s, owns=True)
    return leader, FencedLedger(database, leader, ledger)
