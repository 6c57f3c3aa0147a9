"""How the exchanges of the gateways ended, by hour: readings of their counters, added up in the state store."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import msgspec

from gaugeway.runtime.label_cap import OVERFLOW
from gaugeway.storage.stores import StateStore

PREFIX = "gateway-counts/"
BUCKET_S, HOUR_S, DAY_S = 900, 3600, 86_400
FINE_DAYS = 2
"""After so many days the quarters of an hour are added up to hours."""
MAX_APPS = 20
"""Apps counted separately in a day; the others are counted together as `_other`."""
_LAST = f"{PREFIX}last"
T = TypeVar("T")
_log = logging.getLogger("gaugeway")

Outcomes: TypeAlias = dict[str, int]
Day: TypeAlias = dict[int, dict[str, Outcomes]]
"""Start of a bucket (Unix seconds) -> app -> outcome -> exchanges."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The counters of one gateway since its start: `exchanges` by (app, outcome). `url` is its name."""

    url: str
    exchanges: Mapping[tuple[str, str], float]


class LastReading(msgspec.Struct, kw_only=True):
    """What was read last of a gateway, by app and outcome, and when."""

    at: float
    exchanges: dict[str, dict[str, float]] = {}


def increments(before: LastReading | None, now: Reading) -> dict[tuple[str, str], int]:
    """Return what was counted between two readings; nothing without an earlier one.

    A counter that is lower than before, or gone, shows that the gateway restarted: then it counted all of the reading.
    """
    if before is None:
        return {}
    earlier = {(app, outcome): n for app, some in before.exchanges.items() for outcome, n in some.items()}
    if any(now.exchanges.get(key, 0.0) < n for key, n in earlier.items()):
        earlier = {}
    found = {key: round(n - earlier.get(key, 0.0)) for key, n in now.exchanges.items()}
    return {key: n for key, n in found.items() if n > 0}


def spread(total: int, since: float, until: float) -> dict[int, int]:
    """Return a count spread evenly over the buckets of a time; the counts of the buckets add up to it.

    >>> spread(10, 0.0, 1800.0), spread(3, 100.0, 130.0)
    ({0: 5, 900: 5}, {0: 3})
    """
    last = int(until // BUCKET_S) * BUCKET_S
    first = min(int(since // BUCKET_S) * BUCKET_S, last)
    seconds, found, given = max(until - since, 1e-9), {}, 0
    for start in range(first, last + 1, BUCKET_S):
        share = (min(max(start + BUCKET_S - since, 0.0), seconds)) / seconds
        upto = total if start == last else math.floor(total * share + 1e-9)
        if upto > given:
            found[start] = upto - given
            given = upto
    return found


class GatewayCounts:
    """Adds up the gateways' outcomes so that they survive restarts of either plane; only one process calls `take`.

    A gateway that ends between two readings takes along what it counted after the last one. The first reading of a
    gateway is only where counting begins. `keep_days` bounds what is stored.
    """

    def __init__(
        self, state_store: StateStore | None, keep_days: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._state_store = state_store
        self._keep_days = keep_days
        self._clock = clock
        self._last: dict[str, LastReading] = {}
        self._days: dict[int, Day] = {}
        self._warned = False

    async def take(self, readings: Sequence[Reading], away: Sequence[str] = ()) -> None:
        """Add readings, and save what changed. Raises EngineError.

        Nothing listens at the URLs `away`: a gateway that appears there later is counted from its start.
        """
        await self._load()
        now, changed = self._clock(), set[int]()
        new = [url for url in away if url not in self._last]
        self._last |= {url: LastReading(at=now) for url in new}
        for reading in readings:
            before = self._last.get(reading.url)
            for (app, outcome), n in increments(before, reading).items():
                for start, part in spread(n, before.at if before else now, now).items():
                    self._add(start, app, outcome, part)
                    changed.add(start // DAY_S)
            exchanges: dict[str, dict[str, float]] = {}
            for (app, outcome), value in reading.exchanges.items():
                exchanges.setdefault(app, {})[outcome] = value
            self._last[reading.url] = LastReading(at=now, exchanges=exchanges)
        gone = self._forget(now)
        changed |= self._coarsen(now)
        if self._state_store is not None and (readings or new):
            states = {_LAST: msgspec.json.encode(self._last)} | {f"{PREFIX}{day}": b"" for day in gone}
            states |= {f"{PREFIX}{day}": msgspec.json.encode(self._days[day]) for day in changed if day in self._days}
            await self._state_store.save(states)

    async def outcomes(self, since: float, until: float, app: str | None = None) -> Outcomes:
        """Return the exchanges by outcome of the buckets that begin in [since, until). Raises EngineError.

        Another process may do the counting, so the state is read again.
        """
        await self._load()
        found: Outcomes = {}
        for day in range(int(since // DAY_S), int(until // DAY_S) + 1):
            for start, apps in self._days.get(day, {}).items():
                if since <= start < until:
                    for name, outcomes in apps.items():
                        for outcome, n in outcomes.items() if app in (None, name) else ():
                            found[outcome] = found.get(outcome, 0) + n
        return found

    async def _load(self) -> None:
        """Read what was saved last: another process may have counted until now."""
        if self._state_store is not None:
            self._read(await self._state_store.load())

    def _read(self, states: Mapping[str, bytes]) -> None:
        self._last = self._decoded(_LAST, states.get(_LAST, b"{}"), dict[str, LastReading]) or {}
        self._days = {
            int(day): self._decoded(name, state, Day) or {}
            for name, state in states.items()
            if name.startswith(PREFIX) and (day := name.removeprefix(PREFIX)).isdigit() and state
        }

    def _decoded(self, name: str, state: bytes, kind: type[T]) -> T | None:
        try:
            return msgspec.json.decode(state, type=kind)
        except (msgspec.DecodeError, ValueError):
            if not self._warned:
                _log.warning("state store: ignoring unreadable %s", name)
            self._warned = True
            return None

    def _add(self, start: int, app: str, outcome: str, n: int) -> None:
        day = self._days.setdefault(start // DAY_S, {})
        names = {name for apps in day.values() for name in apps}
        app = app if app in names or len(names) < MAX_APPS else OVERFLOW
        outcomes = day.setdefault(start, {}).setdefault(app, {})
        outcomes[outcome] = outcomes.get(outcome, 0) + n

    def _forget(self, now: float) -> list[int]:
        gone = [day for day in self._days if day < (now - self._keep_days * DAY_S) // DAY_S]
        for day in gone:
            del self._days[day]
        return gone

    def _coarsen(self, now: float) -> set[int]:
        """Add up the quarters of an hour of days that are over for long; return these days."""
        old = {
            day
            for day, buckets in self._days.items()
            if day < now // DAY_S - FINE_DAYS and any(start % HOUR_S for start in buckets)
        }
        for day in old:
            buckets, self._days[day] = self._days[day], {}
            for start, apps in buckets.items():
                for app, outcomes in apps.items():
                    for outcome, n in outcomes.items():
                        self._add(start // HOUR_S * HOUR_S, app, outcome, n)
        return old


def whole_buckets(since: float, until: float, now: float) -> tuple[float, float]:
    """Return a time rounded outwards to the buckets that are kept of it.

    >>> whole_buckets(1000.0, 2000.0, 3000.0), whole_buckets(5000.0, 6000.0, 1e6)
    ((900.0, 2700.0), (3600.0, 7200.0))
    """
    size = BUCKET_S if since // DAY_S >= now // DAY_S - FINE_DAYS else HOUR_S
    return since // size * size, -(-until // size) * size
