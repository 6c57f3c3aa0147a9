"""When a score passes: a metric by its threshold, a signal by its direction."""

from __future__ import annotations

from gaugeway.signals import RISING, SIGNALS
from monitors.analysis.human_labels import Passing, Passings

_HALF = Passing(threshold=0.5, flipped=True)
_ANY = Passing(threshold=0.0, flipped=False)


def with_signals(passing: Passings) -> Passings:
    """The passing rules of metrics, and of signals: those whose best value is 0 fail above one half, others never."""

    def rule(metric: str) -> Passing:
        if metric in SIGNALS:
            return _HALF if metric in RISING else _ANY
        return passing(metric)

    return rule
