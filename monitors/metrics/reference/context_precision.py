"""Context precision and utilization: whether the contexts that an answer needs are ranked first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gaugeway.records import Sample, Score, Skipped
from monitors.judges import Judge
from monitors.metrics.judged import prompts as prompting
from monitors.metrics.judged.items import complete, contexts_of, question_of, sent_contexts, unanswered
from monitors.metrics.judged.prompts import Datum
from monitors.metrics.judged.schemas import UsefulContext, UsefulContexts
from monitors.metrics.ranking import average_precision


class ContextPrecision:
    """sum over ranks k of P@k x v_k / sum of v_k, with v_k = 1 where context k is useful for the reference.

    0 where none is useful. Average precision with a judge's verdicts, as RAGAS (https://docs.ragas.io) defines it.
    """

    name = "context_precision"
    measures = "retrieval"

    def __init__(self, judge: Judge) -> None:
        self._usefulness = Usefulness(judge)
        self.judge = judge.model
        self.version = f"1-{self._usefulness.version}"

    async def score(self, sample: Sample) -> Score | Skipped:
        if (skipped := unanswered(sample, "reference", "question", "contexts")) is not None:
            return skipped
        return await self._usefulness.score(sample, sample.reference or "")


class Usefulness:
    """Rates the usefulness of all contexts for an answer in one call."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._template = prompting.load("useful_contexts")
        self.version = self._template.version

    async def score(self, sample: Sample, answer: str) -> Score:
        """Return the average precision of the contexts' ranking; a context is relevant if `answer` uses it."""

        async def ask(indexes: Sequence[int]) -> Iterable[tuple[int, UsefulContext]]:
            data = [*question_of(sample), Datum("answer", answer), *contexts_of(sample, indexes)]
            found = await self._judge.ask(self._template.fill(data), UsefulContexts)
            return [(verdict.index, verdict) for verdict in found.contexts]

        contexts = list((await complete(ask, sent_contexts(sample))).values())
        useful = sum(verdict.useful for verdict in contexts)
        return Score(
            average_precision([verdict.useful for verdict in contexts]),
            f"{useful} of {len(contexts)} contexts are useful, in this order",
            tuple(
                {"context": verdict.index, "useful": verdict.useful, "reason": verdict.reason} for verdict in contexts
            ),
        )


class ContextUtilization:
    """sum over ranks k of P@k x v_k / sum of v_k, with v_k = 1 where the response uses context k.

    0 where none is used. Context precision without a reference, as RAGAS (https://docs.ragas.io) defines it.
    """

    name = "context_utilization"
    review_question = "Does the response use what the passages say about the question?"

    def __init__(self, judge: Judge) -> None:
        self._usefulness = Usefulness(judge)
        self.judge = judge.model
        self.version = f"1-{self._usefulness.version}"

    async def score(self, sample: Sample) -> Score | Skipped:
        if (skipped := unanswered(sample, "response", "question", "contexts")) is not None:
            return skipped
        return await self._usefulness.score(sample, sample.response)
