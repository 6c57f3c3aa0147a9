"""Slices of an app's traffic that get their own streams: those with enough scores, and `_other` for the rest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from gaugeway.records import grouped
from gaugeway.storage.stores import Point, Query

MONTH_S = 30 * 86_400.0
OTHER = "_other"
MAX_VALUES = 200
"""Values counted per dimension and app; rarer ones never become a slice."""

Counts = dict[str, dict[str, dict[str, tuple[float, float]]]]


def slice_words(name: str) -> str:
    """Return a slice as people read it: its name, or what the values with few scores have in common.

    >>> slice_words("tag:plan=pro"), slice_words("topic=refund, fee"), slice_words("model=_other")
    ('plan pro', 'topic “refund, fee”', 'models with few scores, taken together')
    """
    key, _, value = name.partition("=")
    kind = key.removeprefix("tag:")
    if value == OTHER:
        return f"{kind}s with few scores, taken together"
    return f"{kind} “{value}”" if key == "topic" else f"{kind} {value}" if value else kind


def value_of(point: Point, dimension: str) -> str | None:
    """Return the point's value of "model", "prompt" or "tag:NAME", None without one."""
    if dimension == "model":
        return point.model
    if dimension == "prompt":
        return point.prompt
    return point.tags.get(dimension.removeprefix("tag:"))


def narrowed(query: Query, dimension: str, value: str) -> Query:
    """Return a query restricted to a value of "model", "prompt" or "tag:NAME"."""
    if dimension.startswith("tag:"):
        return replace(query, tag=(dimension.removeprefix("tag:"), value))
    return replace(query, model=value) if dimension == "model" else replace(query, prompt=value)


def in_slice(query: Query, name: str) -> Query:
    """Return a query restricted to a slice, "" for the whole app; the `_other` slice cannot be selected."""
    dimension, _, value = name.partition("=")
    return query if not name or value == OTHER else narrowed(query, dimension, value)


class Slices:
    """Splits an app's points into slices `dimension=value`; values with too few scores a month go to `_other`.

    A slice with fewer than `least` scores in 30 days cannot detect anything and gets no stream
    (docs/explanation/alerts.md#slices). Past scores decide: counts decay as exp(-age/30 days). A dimension with a
    single value is not split, as its slice would be the whole app. `counts` is the state to save.

    >>> slices = Slices(["model"], least=2)
    >>> point = Point(sample_id="1", started_at=0.0, app="a", model="m", metric="x", outcome="score", value=1.0,
    ...               reason="", rate=1.0)
    >>> [sorted(slices.cut("a", [point, point], at=60.0 * i)) for i in range(2)]
    [[], []]
    """

    def __init__(self, dimensions: Iterable[str], *, least: float) -> None:
        self._dimensions = tuple(dimensions)
        self._least = least
        self.counts: Counts = {}

    def cut(self, app: str, points: Sequence[Point], *, at: float) -> dict[str, list[Point]]:
        """Split the points of a bucket that began at Unix time `at`, then count them."""
        cut: dict[str, list[Point]] = {}
        for dimension in self._dimensions:
            groups = grouped((value, point) for point in points if (value := value_of(point, dimension)) is not None)
            known = self.counts.setdefault(app, {}).setdefault(dimension, {})
            if len(known) > 1:
                for value, some in groups.items():
                    name = value if _decayed(known.get(value), at) >= self._least else OTHER
                    cut.setdefault(f"{dimension}={name}", []).extend(some)
            for value, some in groups.items():
                known[value] = _decayed(known.get(value), at) + len(some), at
            while len(known) > MAX_VALUES:
                del known[min(known, key=lambda value: _decayed(known[value], at))]
        return cut


def _decayed(count: tuple[float, float] | None, at: float) -> float:
    return count[0] * math.exp(min(0.0, count[1] - at) / MONTH_S) if count is not None else 0.0
