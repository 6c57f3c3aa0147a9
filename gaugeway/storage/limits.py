"""Limits that gateways share: what the processes tell each other about a bucket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gaugeway.storage.engine import adapter

if TYPE_CHECKING:
    from gaugeway.storage.documents import Documents

SEEN_S = 10.0
"""A process that has not synced for this long no longer counts; each syncs at least three times as often."""


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


def burst_of(per_min: float) -> float:
    """Return the capacity of a bucket: one minute's worth, at least 1."""
    return max(per_min, 1.0)


def open_limits(url: str) -> Documents:
    """Return the place that `url` names: `redis://host:6379/0` (`rediss`, `valkey`, `valkeys`) or `postgresql://…/db`.

    Nothing is opened yet. Raises ValueError.
    """
    documents: Documents = adapter(url, "limits").from_url(url)
    return documents
