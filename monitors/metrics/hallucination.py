"""Hallucination: the share of the contexts that the response contradicts. Lower is better."""

from __future__ import annotations

from gaugeway.records import Sample, Score, Skipped
from monitors.metrics.judged import follow_ups
from monitors.metrics.judged.claims import Verdicts
from monitors.metrics.judged.items import unanswered


class Hallucination:
    """Contexts contradicted by the response / contexts; 0 is best.

    DeepEval from 4.3 on reports 1 minus this number. `history` as for faithfulness.
    """

    name = "hallucination"
    lower_is_better = True
    on_by_default = True
    measures = "answer"
    review_question = "Is the response free of statements that the passages contradict or do not support?"

    def __init__(self, verdicts: Verdicts, *, history: bool = True) -> None:
        self._verdicts = verdicts
        self.judge = verdicts.model
        self._history = history
        self.version = follow_ups.version(1, verdicts.version("contradicted"), history=history)

    async def score(self, sample: Sample) -> Score | Skipped:
        if (skipped := unanswered(sample, "response", "contexts")) is not None:
            return skipped
        seen = sample if self._history else follow_ups.without_history(sample)
        contexts = await self._verdicts.contradicted(seen)
        contradicted = sum(context.contradicted for context in contexts)
        return Score(
            contradicted / len(contexts),
            f"{contradicted} of {len(contexts)} contexts are contradicted",
            tuple(
                {"context": context.index, "contradicted": context.contradicted, "reason": context.reason}
                for context in contexts
            ),
        )
