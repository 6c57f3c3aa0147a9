"""Port to small keyed records that processes share: keys, templates, data sets, spending, limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from gaugeway.storage.engine import adapter
from gaugeway.storage.engines.failures import Unsupported

Row: TypeAlias = tuple[Any, ...]
"""The values of a record's columns: text, numbers, bytes (digests of keys) and None."""
Spending: TypeAlias = dict[tuple[int, str], float]
"""USD by (day since 1970 in UTC, subject); a subject is `key:ID`, `app:NAME` or `app-other`."""
SPENDING_DAYS = 35
"""How long spending is kept."""
SEEN_S = 10.0
"""A process that has not synced for this long no longer counts; each syncs at least three times as often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """Records of one kind. `key` are the columns that identify one; `body` is a long text, the last column.

    Where `must_stay`, records that vanish with what they were in are a failure, not an empty collection.
    """

    name: str
    key: tuple[str, ...]
    others: tuple[str, ...]
    body: str | None = None
    must_stay: bool = False

    @property
    def head(self) -> tuple[str, ...]:
        """The columns without the body."""
        return self.key + self.others

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns."""
        return self.head if self.body is None else (*self.head, self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What to change: whole rows to add or replace, heads of rows whose body stays, and keys of those to delete."""

    put: Sequence[Row] = ()
    revise: Sequence[Row] = ()
    delete: Sequence[Row] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What one process took from one bucket since the last sync, and the level it assumes.

    `level` excludes `used`: it is the initial level where the bucket is not known.
    """

    subject: str
    kind: str
    per_min: float
    used: float
    level: float

    @property
    def burst(self) -> float:
        """The capacity of the bucket."""
        return burst_of(self.per_min)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLevels:
    """The answer of a sync: the number of processes that share, and the level of each bucket in the order of the draws.

    A level includes the draws that all processes have reported so far; it is negative for a debt.
    """

    processes: int
    levels: Sequence[float]


class Documents(Protocol):
    """Keeps collections, spending and the levels of limits. Operations raise `engines.failures.FAILURES`.

    The next operation tries again. What an engine does not keep raises Unsupported.
    """

    async def changed(self, collection: Collection, revision: bytes | None) -> tuple[bytes, Sequence[Row] | None]:
        """Return the revision and, if it is not the one given, all rows. Cheap when nothing has changed."""
        raise Unsupported(collection.name)

    async def update(self, collection: Collection, change: Callable[[Sequence[Row]], Changes]) -> None:
        """Call `change` with the heads of all rows, and do what it returns: in one transaction, where there are any.

        It may be called twice.
        """
        raise Unsupported(collection.name)

    async def spend(self, spending: Mapping[tuple[int, str], float], today: int) -> Spending:
        """Add spending, all or nothing; return what all processes together have spent today."""
        raise Unsupported("spending")

    async def exchange(self, draws: Sequence[Draw]) -> SharedLevels:
        """Take all of `draws` from their buckets, all or nothing, and return what is left in each.

        An unknown bucket starts at the draw's level. The engine's clock is used, so that the processes' clocks need not
        agree. Raises EngineError; it is then unknown whether anything was taken.
        """
        raise Unsupported("shared limits")

    async def aclose(self) -> None:
        """Leave the processes that share limits, and let go of file or connections; the next operation opens them."""


def burst_of(per_min: float) -> float:
    """Return the capacity of a bucket: one minute's worth, at least 1."""
    return max(per_min, 1.0)


def open_limits(url: str) -> Documents:
    """Return the place that `url` names: `redis://host:6379/0` (`rediss`, `valkey`, `valkeys`) or `postgresql://…/db`.

    Nothing is opened yet. Raises ValueError.
    """
    documents: Documents = adapter(url, "limits").from_url(url)
    return documents
