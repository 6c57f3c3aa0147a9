"""Which parts of an app's traffic are watched by themselves: slices with scores enough, and one for all the others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from monitors.storage.stores import Point

MONTH_S = 30 * 86_400.0
OTHER = "_other"
MAX_VALUES = 200
"""Values of one dimension that are counted for one app; what is rarer than these is nobody's slice."""

Counts = dict[str, dict[str, dict[str, tuple[float, float]]]]


def value_of(point: Point, dimension: str) -> str | None:
    """The point's value of "model", "prompt" or "tag:NAME"; None when it has none."""
    if dimension == "model":
        return point.model
    if dimension == "prompt":
        return point.prompt
    return point.tags.get(dimension.removeprefix("tag:"))


class Slices:
    """Cuts an app's points into slices `dimension=value`; a value with too few scores a month goes to `_other`.

    A slice with fewer than `least` scores in 30 days cannot detect anything (STATISTICS 1.5), so it has no stream. The
    scores of the past decide, never those that are being cut: counts fade as exp(-age/30 days). A dimension of which
    an app has one value only is not cut, as that slice would be the app once more.

    >>> slices = Slices(["model"], least=2)
    >>> point = Point(sample_id="1", started_at=0.0, app="a", model="m", metric="x", outcome="score", value=1.0,
    ...               reason="", rate=1.0)
    >>> [sorted(slices.cut("a", [point, point], at=60.0 * i)) for i in range(2)]
    [[], []]
    """

    def __init__(self, dimensions: Iterable[str], *, least: float) -> None:
        self._dimensions = tuple(dimensions)
        self._least = least
        self._counts: Counts = {}

    def cut(self, app: str, points: Sequence[Point], *, at: float) -> dict[str, list[Point]]:
        """Cut the points of one bucket that began at Unix time `at`, then count them."""
        cut: dict[str, list[Point]] = {}
        for dimension in self._dimensions:
            groups: dict[str, list[Point]] = {}
            for point in points:
                if (value := value_of(point, dimension)) is not None:
                    groups.setdefault(value, []).append(point)
            known = self._counts.setdefault(app, {}).setdefault(dimension, {})
            if len(known) > 1:
                for value, some in groups.items():
                    name = value if _faded(known.get(value), at) >= self._least else OTHER
                    cut.setdefault(f"{dimension}={name}", []).extend(some)
            for value, some in groups.items():
                known[value] = _faded(known.get(value), at) + len(some), at
            while len(known) > MAX_VALUES:
                del known[min(known, key=lambda value: _faded(known[value], at))]
        return cut

    def saved(self) -> Counts:
        """What the ledger keeps."""
        return self._counts

    def restore(self, counts: Counts) -> None:
        """Continue from what the ledger kept."""
        self._counts = {app: {key: dict(values) for key, values in of.items()} for app, of in counts.items()}


def _faded(count: tuple[float, float] | None, at: float) -> float:
    return count[0] * math.exp(min(0.0, count[1] - at) / MONTH_S) if count is not None else 0.0
