"""Signals of the retrieval: no passages where the app usually has some, their number, and the retriever's scores."""

from __future__ import annotations

import math

from gaugeway.records import Sample
from monitors.signals.answers import ANSWERED
from monitors.signals.references import References

USUALLY = 0.5
"""Share of answers with passages from which on an app usually has some; between none (0) and some (1)."""
_HAS, _COUNT, _SCORE = "has_contexts", "contexts", "scores"


def lacks_contexts(sample: Sample, usual: References) -> float | None:
    """Return 1 for an answer without passages, 0 for another; None while the app has none in most answers."""
    if sample.skip_reason not in ANSWERED:
        return None
    has = float(bool(sample.contexts))
    known = usual.compared(sample.app, _HAS, has, sample.started_at)
    if known is None:
        return None
    expects = known.rank(USUALLY) <= 1.0 - USUALLY
    usual.learn(sample.app, _HAS, has, sample.started_at)
    return 1.0 - has if expects else None


def count_rank(sample: Sample, usual: References) -> float | None:
    """Return the rank of the number of passages among the app's usual numbers; None without any."""
    return _rank(sample, usual, _COUNT, float(len(sample.contexts))) if sample.contexts else None


def score_rank(sample: Sample, usual: References) -> float | None:
    """Return the rank of the passages' mean retriever score among the app's usual ones; None without scores."""
    scores = [
        context.score for context in sample.contexts if context.score is not None and math.isfinite(context.score)
    ]
    return _rank(sample, usual, _SCORE, sum(scores) / len(scores)) if scores else None


def _rank(sample: Sample, usual: References, quantity: str, value: float) -> float | None:
    if sample.skip_reason not in ANSWERED:
        return None
    known = usual.compared(sample.app, quantity, value, sample.started_at)
    if known is None:
        return None
    rank = known.rank(value)
    usual.learn(sample.app, quantity, value, sample.started_at)
    return rank
