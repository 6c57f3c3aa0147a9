"""Cap on the number of metric label values that come from outside."""

from __future__ import annotations

from prometheus_client import Counter

from gaugeway.settings.bounds import bounded_name

OVERFLOW = "_other"
MAX_VALUES = 100
"""Distinct values of a label."""
MAX_PAIRS = 1000
"""Distinct pairs of app and model; each is some fifty series of histograms."""
MAX_COUNTED = 10_000
"""Values of a label beyond the bound that are counted."""


class LabelCap:
    """Lets the first `limit` distinct values of each label through; all later ones become `_other`.

    Each of those is counted once, up to `remembered` of them a label; then the count stands still. Long values are
    cut, see `bounded_name`.
    """

    def __init__(
        self, overflow: Counter, limit: int = MAX_VALUES, remembered: int = MAX_COUNTED, pairs: int = MAX_PAIRS
    ) -> None:
        self._overflow = overflow
        self._limit = limit
        self._remembered = remembered
        self._most_pairs = pairs
        self._known: dict[str, set[str]] = {}
        self._pairs: set[tuple[str, str]] = set()
        self._counted: dict[str, set[int]] = {}

    def __call__(self, label: str, value: str) -> str:
        """Return `value`, or `_other` when the label has too many values already."""
        if value in (known := self._known.setdefault(label, set())):
            return value
        if (value := bounded_name(value)) in known or len(known) < self._limit:
            known.add(value)
            return value
        self.count(label, value)
        return OVERFLOW

    def pair(self, app: str, model: str) -> tuple[str, str]:
        """Return an app and a model; `_other` in the model's place when there are too many pairs already."""
        pair = self("app", app), self("model", model)
        if pair in self._pairs:
            return pair
        if len(self._pairs) < self._most_pairs:
            self._pairs.add(pair)
            return pair
        self.count("app_model", "\n".join(pair))
        return pair[0], OVERFLOW

    def count(self, label: str, value: str) -> None:
        """Count a value that found no room, unless it was counted before."""
        counted = self._counted.setdefault(label, set())
        mark = hash(value)  # a client may choose long values
        if mark not in counted and len(counted) < self._remembered:
            counted.add(mark)
            self._overflow.labels(label).inc()
