"""Documents in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gaugeway.storage.documents import SPENDING_DAYS, Changes, Collection, Documents, Draw, Row, SharedLevels, Spending

from .named import shared


@dataclass(slots=True)
class Shared:
    """What everybody sees who opened one URL."""

    revision: int = 0
    rows: dict[str, dict[Row, Row]] = field(default_factory=dict)
    spending: dict[tuple[int, str], float] = field(default_factory=dict)
    levels: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    processes: set[int] = field(default_factory=set)


class MemoryDocuments(Documents):
    """Collections as dicts from key to row; a bucket of a limit as its level and the time of that level."""

    def __init__(self, kept: Shared) -> None:
        self._kept = kept

    @classmethod
    def from_url(cls, url: str) -> MemoryDocuments:
        """Return those at this URL."""
        return cls(shared(url, Shared, Shared))

    async def changed(self, collection: Collection, revision: bytes | None) -> tuple[bytes, Sequence[Row] | None]:
        current = str(self._kept.revision).encode()
        return current, None if current == revision else list(self._rows(collection).values())

    async def update(self, collection: Collection, change: Callable[[Sequence[Row]], Changes]) -> None:
        rows, length = self._rows(collection), len(collection.key)
        changes = change([row[: len(collection.head)] for row in rows.values()])
        for row in changes.put:
            rows[row[:length]] = row
        for head in changes.revise:
            if (old := rows.get(head[:length])) is not None:
                rows[head[:length]] = (*head, *old[len(head) :])
        for key in changes.delete:
            rows.pop(tuple(key), None)
        self._kept.revision += 1

    async def spend(self, spending: Mapping[tuple[int, str], float], today: int) -> Spending:
        spent = self._kept.spending
        for place, usd in spending.items():
            spent[place] = spent.get(place, 0.0) + usd
        if spending:
            for place in [place for place in spent if place[0] < today - SPENDING_DAYS]:
                del spent[place]
        return {place: usd for place, usd in spent.items() if place[0] == today}

    async def exchange(self, draws: Sequence[Draw]) -> SharedLevels:
        now, levels = time.monotonic(), []
        self._kept.processes.add(id(self))
        for draw in draws:
            level, at = self._kept.levels.get((draw.kind, draw.subject), (draw.level, now))
            level = min(draw.burst, level + (now - at) * draw.per_min / 60.0) - draw.used
            self._kept.levels[draw.kind, draw.subject] = level, now
            levels.append(level)
        return SharedLevels(processes=len(self._kept.processes), levels=levels)

    async def aclose(self) -> None:
        self._kept.processes.discard(id(self))

    def _rows(self, collection: Collection) -> dict[Row, Any]:
        return self._kept.rows.setdefault(collection.name, {})
