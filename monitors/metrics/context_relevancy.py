"""Context relevancy: the share of what was retrieved that bears on the question."""

from __future__ import annotations

from typing import Literal

from monitors.metrics.answers import StatementsOfContext
from monitors.metrics.texts import sent_contexts
from monitors.metrics.verdicts import Verdicts
from monitors.records import Sample, Score, Skipped


class ContextRelevancy:
    """Relevant statements / all statements, over all contexts together (a long context weighs more than a short one).

    The ratio of each context by itself is in the evidence. `method` is "statements".
    """

    name = "context_relevancy"

    def __init__(self, verdicts: Verdicts, *, method: Literal["statements"] = "statements") -> None:
        if method != "statements":
            raise ValueError(f"context_relevancy has no method {method!r}; there is 'statements'")
        self._verdicts = verdicts
        self.judge = verdicts.model
        self.version = f"1-{verdicts.version('statements')}"

    async def score(self, sample: Sample) -> Score | Skipped:
        if not (sample.question and sample.question.strip()):
            return Skipped("no_question")
        if not sent_contexts(sample):
            return Skipped("no_contexts")
        contexts = await self._verdicts.statements(sample)
        total = sum(len(context.statements) for context in contexts)
        if not total:
            return Skipped("no_statements")
        relevant = sum(_relevant(context) for context in contexts)
        return Score(
            relevant / total,
            f"{relevant} of {total} statements in the contexts are relevant",
            tuple(_evidence(context) for context in contexts),
        )


def _relevant(context: StatementsOfContext) -> int:
    return sum(statement.relevant for statement in context.statements)


def _evidence(context: StatementsOfContext) -> dict[str, object]:
    return {
        "context": context.index,
        "ratio": _relevant(context) / len(context.statements) if context.statements else None,
        "statements": [{"statement": one.statement, "relevant": one.relevant} for one in context.statements],
    }
