"""Context relevancy: the share of the retrieved contexts that is relevant to the question."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, Literal, TypeAlias

from gaugeway.records import Sample, Score, Skipped
from monitors.judges import Judge
from monitors.metrics.judged import follow_ups
from monitors.metrics.judged import prompts as prompting
from monitors.metrics.judged.claims import Verdicts
from monitors.metrics.judged.follow_ups import FollowUps
from monitors.metrics.judged.passage_verdicts import by_step, relevances
from monitors.metrics.judged.prompts import Datum, complete, contexts_of, sent_contexts, unanswered
from monitors.metrics.judged.schemas import ContextRating, ContextRatings, StatementsOfContext

Method: TypeAlias = Literal["statements", "dual_judge", "joined"]
_METHODS = ("statements", "dual_judge", "joined")
_BEST = 2
_RELEVANT = 1.0


class ContextRelevancy:
    """Three methods.

    `method="statements"`: relevant statements / all statements, over all contexts together (a long context weighs more
    than a short one); the ratio of each context by itself is in the evidence. `method="dual_judge"`: two differently
    worded prompts rate each context 0, 1 or 2; contexts with a mean of 1 or more / contexts. `method="joined"`: the
    same two on all contexts joined into one text; the mean / 2, as RAGAS does. One of the two without a rating is no
    score. Source of the first: the context relevance of RAGAS (arXiv 2309.15217), with statements in place of
    sentences. With `history` a follow-up is judged as its question stands alone.
    """

    name = "context_relevancy"
    on_by_default = True
    measures = "retrieval"
    review_question = "Do the passages help to answer the question?"

    def __init__(
        self, judge: Judge, verdicts: Verdicts, *, method: Method = "statements", history: bool = True
    ) -> None:
        if method not in _METHODS:
            raise ValueError(f"context_relevancy has no method {method!r}; there are {', '.join(_METHODS)}")
        self._llm = judge
        self._verdicts = verdicts
        self._method = method
        self._history = history
        self._raters = [FollowUps(prompting.load(prompt)) for prompt in ("context_ratings", "context_ratings_reworded")]
        self.judge = judge.model
        by_raters = [*(follow_up.version for follow_up in self._raters), method]
        used = [verdicts.version("statements")] if method == "statements" else by_raters
        self.version = follow_ups.version(1, *used, history=history)

    async def score(self, sample: Sample) -> Score | Skipped:
        if (skipped := unanswered(sample, "question", "contexts")) is not None:
            return skipped
        seen = sample if self._history else follow_ups.without_history(sample)
        if self._method == "statements":
            return await self._by_statements(seen)
        return await (self._joined(seen) if self._method == "joined" else self._by_context(seen))

    async def _by_statements(self, sample: Sample) -> Score | Skipped:
        found = await self._verdicts.statements(sample)
        contexts = found.answer.contexts
        if not (total := sum(len(context.statements) for context in contexts)):
            return Skipped("no_statements")
        relevant = sum(_relevant(context) for context in contexts)
        return Score(
            relevant / total,
            f"{relevant} of {total} statements in the contexts are relevant",
            (
                *with_steps(sample, found.standalone, [_evidence(context) for context in contexts]),
                *found.checks.evidence(),
            ),
        )

    async def _by_context(self, sample: Sample) -> Score:
        rated, standalone = await self._rated(sample, contexts_of(sample))
        relevant = sum(sum(ratings) / len(ratings) >= _RELEVANT for ratings in rated.values())
        return Score(
            relevant / len(rated),
            f"{relevant} of {len(rated)} contexts are relevant to two judges",
            with_steps(
                sample, standalone, [{"context": index, "ratings": list(ratings)} for index, ratings in rated.items()]
            ),
        )

    async def _joined(self, sample: Sample) -> Score:
        joined = "\n\n".join(sample.contexts[index].text for index in sent_contexts(sample))
        rated, standalone = await self._rated(sample, [Datum("context", joined, index=0)])
        (ratings,) = rated.values()
        mean = sum(ratings) / len(ratings)
        return Score(
            mean / _BEST,
            f"two judges rate the contexts {mean:g} of {_BEST}",
            (*follow_ups.evidence_of(standalone), {"ratings": list(ratings)}),
        )

    async def _rated(
        self, sample: Sample, contexts: Sequence[Datum]
    ) -> tuple[Mapping[int, tuple[int, ...]], str | None]:
        """Return both prompts' ratings of each context, and the question as it stands alone.

        If one call fails, the other still completes.
        """
        standalone: list[str | None] = []

        async def rate(template: FollowUps) -> Mapping[int, ContextRating]:
            async def ask(indexes: Sequence[int]) -> Iterable[tuple[int, ContextRating]]:
                data = [datum for datum in contexts if datum.index in indexes]
                found = await template.ask(self._llm, sample, data, ContextRatings)
                standalone.append(found.standalone)
                return [(rating.index, rating) for rating in found.answer.contexts]

            return await complete(ask, [datum.index for datum in contexts if datum.index is not None])

        both = []
        for found in await asyncio.gather(*(rate(follow_up) for follow_up in self._raters), return_exceptions=True):
            if isinstance(found, BaseException):
                raise found
            both.append(found)
        return {index: tuple(ratings[index].rating for ratings in both) for index in both[0]}, standalone[0]


def with_steps(sample: Sample, standalone: str | None, rated: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Return the evidence: the question as it stands alone, each context, and the mean of each hop and tool."""
    steps = by_step(sample.contexts, relevances(sample.contexts, rated))
    means = ({"hop": hop, "tool": tool, "relevance": fmean(some)} for (hop, tool), some in steps.items())
    return (*follow_ups.evidence_of(standalone), *rated, *means)


def _relevant(context: StatementsOfContext) -> int:
    return sum(statement.relevant for statement in context.statements)


def _evidence(context: StatementsOfContext) -> dict[str, Any]:
    return {
        "context": context.index,
        "ratio": _relevant(context) / len(context.statements) if context.statements else None,
        "statements": [
            {"statement": statement.statement, "relevant": statement.relevant} for statement in context.statements
        ],
    }
