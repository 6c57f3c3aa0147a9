"""Label values from outside, kept from growing without bound."""

from __future__ import annotations

from prometheus_client import Counter

OVERFLOW = "_other"


class LabelCap:
    """Lets the first `limit` distinct values of each label through; all later ones become `_other`, and are counted."""

    def __init__(self, overflow: Counter, limit: int = 100) -> None:
        self._overflow = overflow
        self._limit = limit
        self._known: dict[str, set[str]] = {}

    def __call__(self, label: str, value: str) -> str:
        """Return `value`, or `_other` when the label has too many values already."""
        known = self._known.setdefault(label, set())
        if value in known:
            return value
        if len(known) < self._limit:
            known.add(value)
            return value
        self._overflow.labels(label).inc()
        return OVERFLOW
