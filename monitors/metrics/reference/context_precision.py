"""Context precision: whether the contexts that the reference needs come first."""

from __future__ import annotations

from monitors.judges import Judge
from monitors.metrics.judged.texts import unanswered
from monitors.metrics.reference.usefulness import Usefulness
from monitors.records import Sample, Score, Skipped


class ContextPrecision:
    """sum over ranks k of P@k x v_k / sum of v_k, with v_k = 1 where context k is useful for the reference.

    0 where none is useful. Average precision with a judge's verdicts, as RAGAS (https://docs.ragas.io) defines it.
    """

    name = "context_precision"

    def __init__(self, judge: Judge) -> None:
        self._usefulness = Usefulness(judge)
        self.judge = judge.model
        self.version = f"1-{self._usefulness.version}"

    async def score(self, sample: Sample) -> Score | Skipped:
        if (skipped := unanswered(sample, "reference", "question", "contexts")) is not None:
            return skipped
        return await self._usefulness.score(sample, sample.reference or "")
