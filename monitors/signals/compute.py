"""Computes all signals of an exchange: those of tool calls, the retrieval, the effort and (`answers`) the answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

from gaugeway.records import Sample, ToolChecks
from monitors.signals import answers
from monitors.signals.answers import ANSWERED, COMPLETED
from monitors.signals.references import References

USUALLY = 0.5
"""Share of answers with passages from which on an app usually has some; between none (0) and some (1)."""


def invalid(sample: Sample) -> float | None:
    """Return the share of the calls whose arguments do not fit the schema that the request gives."""
    return _share(sample, lambda checks: (checks.invalid, checks.validated))


def unknown(sample: Sample) -> float | None:
    """Return the share of the calls of a tool that the request does not offer."""
    return _share(sample, lambda checks: (checks.unknown, checks.calls if checks.offered else 0))


def repeated(sample: Sample) -> float | None:
    """Return the share of the calls that repeat one of the same turn, name and arguments alike."""
    return _share(sample, lambda checks: (checks.repeated, checks.calls))


def empty(sample: Sample) -> float | None:
    """Return whether a tool result that the response was made from is empty."""
    return _share(sample, lambda checks: (int(checks.empty_results > 0), int(checks.results > 0)))


def lacks_contexts(sample: Sample, usual: References) -> float | None:
    """Return 1 for an answer without passages, 0 for another; None while the app has none in most answers."""
    if sample.skip_reason not in ANSWERED:
        return None
    has = float(bool(sample.contexts))
    rank = usual.compare(sample, "has_contexts", has, lambda known: known.rank(USUALLY))
    return None if rank is None or rank > 1.0 - USUALLY else 1.0 - has


def count_rank(sample: Sample, usual: References) -> float | None:
    """Return the rank of the number of passages among the app's usual numbers; None without any."""
    return _rank(sample, usual, "contexts", float(len(sample.contexts))) if sample.contexts else None


def score_rank(sample: Sample, usual: References) -> float | None:
    """Return the rank of the passages' mean retriever score among the app's usual ones; None without scores."""
    scores = [
        context.score for context in sample.contexts if context.score is not None and math.isfinite(context.score)
    ]
    return _rank(sample, usual, "scores", sum(scores) / len(scores)) if scores else None


def is_slow(sample: Sample, usual: References) -> float | None:
    """Return 1 for a response that took longer than 95 % of the app's usual ones, else 0 (`Reference.high`)."""
    return _high(sample, usual, "duration", sample.duration_s)


def is_expensive(sample: Sample, usual: References) -> float | None:
    """Return 1 for a response that cost more than 95 % of the app's usual ones, else 0; None without prices."""
    return _high(sample, usual, "cost", sample.cost_usd)


def _share(sample: Sample, counts: Callable[[ToolChecks], tuple[int, int]]) -> float | None:
    if sample.tool_checks is None or sample.skip_reason not in COMPLETED:
        return None
    found, among = counts(sample.tool_checks)
    return min(1.0, found / among) if among else None


def _rank(sample: Sample, usual: References, quantity: str, value: float) -> float | None:
    if sample.skip_reason not in ANSWERED:
        return None
    return usual.compare(sample, quantity, value, lambda known: known.rank(value))


def _high(sample: Sample, usual: References, quantity: str, value: float | None) -> float | None:
    if value is None or not math.isfinite(value) or sample.skip_reason not in COMPLETED:
        return None
    return usual.compare(sample, quantity, value, lambda known: known.high(value))


_ALONE: Mapping[str, Callable[[Sample], float | None]] = {
    "abstained": answers.declines,
    "language_mismatch": answers.mismatch,
    "truncated": answers.is_truncated,
    "addresses_judge": answers.speaks_to_judge,
    "tool_invalid": invalid,
    "tool_unknown": unknown,
    "tool_repeated": repeated,
    "tool_empty": empty,
}
_AGAINST_USUAL: Mapping[str, Callable[[Sample, References], float | None]] = {
    "no_contexts": lacks_contexts,
    "contexts_per_answer": count_rank,
    "retriever_score": score_rank,
    "slow": is_slow,
    "expensive": is_expensive,
}


class SignalComputer:
    """Computes the signals in `names` of each exchange, and learns what is usual for each app (`usual`).

    What is learned from an exchange counts for the next one: a value depends on the past alone.
    """

    def __init__(self, names: Collection[str], usual: References | None = None) -> None:
        self.usual = usual or References()
        self._alone = {name: of for name, of in _ALONE.items() if name in names}
        self._against_usual = {name: of for name, of in _AGAINST_USUAL.items() if name in names}

    def compute(self, sample: Sample) -> dict[str, float]:
        """Return the values in [0, 1] by name; signals that do not apply to the exchange have none."""
        if sample.transcript:
            return {}
        found = {name: value for name, of in self._alone.items() if (value := of(sample)) is not None}
        for name, of in self._against_usual.items():
            if (value := of(sample, self.usual)) is not None:
                found[name] = value
        return found
