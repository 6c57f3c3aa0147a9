"""Which contexts an answer used, by rank: the common part of context precision and context utilization."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from monitors.judges import Judge
from monitors.metrics.judged import prompts as prompting
from monitors.metrics.judged.items import complete, contexts_of, question_of
from monitors.metrics.judged.prompts import Datum
from monitors.metrics.judged.schemas import UsefulContext, UsefulContexts
from monitors.metrics.judged.texts import sent_contexts
from monitors.metrics.ranking import average_precision
from monitors.records import Sample, Score


class Usefulness:
    """Asks about all contexts in one call."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._template = prompting.load("useful_contexts")
        self.version = self._template.version

    async def score(self, sample: Sample, answer: str) -> Score:
        """Average precision of the contexts' ranking, a context being relevant if `answer` uses it."""

        async def ask(indexes: Sequence[int]) -> Iterable[tuple[int, UsefulContext]]:
            data = [*question_of(sample), Datum("answer", answer), *contexts_of(sample, indexes)]
            found = await self._judge.ask(self._template.fill(data), UsefulContexts)
            return [(one.index, one) for one in found.contexts]

        contexts = list((await complete(ask, sent_contexts(sample))).values())
        useful = sum(one.useful for one in contexts)
        return Score(
            average_precision([one.useful for one in contexts]),
            f"{useful} of {len(contexts)} contexts are useful, in this order",
            tuple({"context": one.index, "useful": one.useful, "reason": one.reason} for one in contexts),
        )
