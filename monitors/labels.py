"""Label values from outside, kept from growing without bound."""

from __future__ import annotations

from prometheus_client import Counter

OVERFLOW = "_other"


class LabelCap:
    """Lets the first `limit` distinct values of each label through; all later ones become `_other`.

    Each of those is counted once, up to `remembered` of them a label; then the count stands still.
    """

    def __init__(self, overflow: Counter, limit: int = 100, remembered: int = 10_000) -> None:
        self._overflow = overflow
        self._limit = limit
        self._remembered = remembered
        self._known: dict[str, set[str]] = {}
        self._counted: dict[str, set[int]] = {}

    def __call__(self, label: str, value: str) -> str:
        """Return `value`, or `_other` when the label has too many values already."""
        known = self._known.setdefault(label, set())
        if value in known:
            return value
        if len(known) < self._limit:
            known.add(value)
            return value
        self.count(label, value)
        return OVERFLOW

    def count(self, label: str, value: str) -> None:
        """Count a value that found no room, unless it was counted before."""
        counted = self._counted.setdefault(label, set())
        mark = hash(value)  # a client may choose long values
        if mark not in counted and len(counted) < self._remembered:
            counted.add(mark)
            self._overflow.labels(label).inc()
