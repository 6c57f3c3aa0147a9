"""Computes all signals of an exchange."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from gaugeway.records import Sample
from monitors.signals import answers, effort, retrieval, tools
from monitors.signals.references import References

_ALONE: Mapping[str, Callable[[Sample], float | None]] = {
    "abstained": answers.declines,
    "language_mismatch": answers.mismatch,
    "truncated": answers.is_truncated,
    "tool_invalid": tools.invalid,
    "tool_unknown": tools.unknown,
    "tool_repeated": tools.repeated,
    "tool_empty": tools.empty,
}
_AGAINST_USUAL: Mapping[str, Callable[[Sample, References], float | None]] = {
    "no_contexts": retrieval.lacks_contexts,
    "contexts_per_answer": retrieval.count_rank,
    "retriever_score": retrieval.score_rank,
    "slow": effort.is_slow,
    "expensive": effort.is_expensive,
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
