"""Signals of the effort: responses slower or more expensive than usual for the app."""

from __future__ import annotations

import math

from gaugeway.records import Sample
from monitors.signals.answers import COMPLETED
from monitors.signals.references import References


def is_slow(sample: Sample, usual: References) -> float | None:
    """Return 1 for a response that took longer than 95 % of the app's usual ones, else 0 (`Reference.high`)."""
    return _is_high(sample, usual, "duration", sample.duration_s)


def is_expensive(sample: Sample, usual: References) -> float | None:
    """Return 1 for a response that cost more than 95 % of the app's usual ones, else 0; None without prices."""
    return _is_high(sample, usual, "cost", sample.cost_usd)


def _is_high(sample: Sample, usual: References, quantity: str, value: float | None) -> float | None:
    if value is None or not math.isfinite(value) or sample.skip_reason not in COMPLETED:
        return None
    known = usual.compared(sample.app, quantity, value, sample.started_at)
    if known is None:
        return None
    high = known.high(value)
    usual.learn(sample.app, quantity, value, sample.started_at)
    return high
