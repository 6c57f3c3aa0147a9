"""Context precision, utilization, recall and entity recall: the contexts beside a reference or the response."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from gaugeway.records import Sample, Score, Skipped, grouped
from gaugeway.text.normalising import nfkc
from monitors.judges import Judge
from monitors.metrics.judged import prompts as prompting
from monitors.metrics.judged.claims import Verdicts
from monitors.metrics.judged.prompts import Datum, complete, contexts_of, question_of, sent_contexts, unanswered
from monitors.metrics.judged.schemas import Entity, ReferenceEntities, UsefulContext, UsefulContexts
from monitors.metrics.ranking import average_precision


class _OfUsefulContexts:
    """Rates the usefulness of all contexts for an answer in one call; a context is relevant if the answer uses it."""

    _answer: Literal["reference", "response"]

    def __init__(self, judge: Judge) -> None:
        self._llm, self.judge = judge, judge.model
        self._template = prompting.load("useful_contexts")
        self.version = f"1-{self._template.version}"

    async def score(self, sample: Sample) -> Score | Skipped:
        if (skipped := unanswered(sample, self._answer, "question", "contexts")) is not None:
            return skipped
        answer = Datum("answer", getattr(sample, self._answer))

        async def ask(indexes: Sequence[int]) -> Iterable[tuple[int, UsefulContext]]:
            data = [*question_of(sample), answer, *contexts_of(sample, indexes)]
            found = await self._llm.ask(self._template.fill(data), UsefulContexts)
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


class ContextPrecision(_OfUsefulContexts):
    """sum over ranks k of P@k x v_k / sum of v_k, with v_k = 1 where context k is useful for the reference.

    0 where none is useful. Average precision with a judge's verdicts, as RAGAS (https://docs.ragas.io) defines it.
    """

    name = "context_precision"
    measures = "retrieval"
    _answer = "reference"


class ContextUtilization(_OfUsefulContexts):
    """sum over ranks k of P@k x v_k / sum of v_k, with v_k = 1 where the response uses context k.

    0 where none is used. Context precision without a reference, as RAGAS (https://docs.ragas.io) defines it.
    """

    name = "context_utilization"
    review_question = "Does the response use what the passages say about the question?"
    _answer = "response"


class ContextRecall:
    """Claims of the reference that the contexts support / claims of the reference.

    The faithfulness of the reference: what it says and the contexts do not, retrieval has missed. Never of the
    response. After RAGAS (https://docs.ragas.io), with claims in place of sentences.
    """

    name = "context_recall"
    measures = "retrieval"

    def __init__(self, verdicts: Verdicts) -> None:
        self._verdicts = verdicts
        self.judge = verdicts.model
        self.version = f"1-{verdicts.version('claims')}"

    async def score(self, sample: Sample) -> Score | Skipped:
        if (skipped := unanswered(sample, "reference", "contexts")) is not None:
            return skipped
        judged = await self._verdicts.claims(replace(sample, response=sample.reference or "", history=()))
        if not judged.claims:
            return Skipped("no_reference_claims")
        found = sum(claim.verdict == "supported" for claim in judged.claims)
        return Score(
            found / len(judged.claims),
            f"{found} of {len(judged.claims)} claims of the reference are in the contexts",
            tuple(
                {"claim": claim.claim, "verdict": claim.verdict, "contexts": list(claim.contexts), "quote": claim.quote}
                for claim in judged.claims
            )
            + judged.checks.evidence(),
        )


class ContextEntityRecall:
    """|entities of the reference that occur in a context| / |entities of the reference|, without regard to case.

    The judge names the entities and how a context writes each of them; one is present if it, or those words, do stand
    in a context. So a name the judge only believes to have read does not count. After RAGAS (https://docs.ragas.io),
    which lets the judge list the entities of both and compares them letter by letter.
    """

    name = "context_entity_recall"
    measures = "retrieval"

    def __init__(self, judge: Judge) -> None:
        self._llm = judge
        self._template = prompting.load("reference_entities")
        self.judge = judge.model
        self.version = f"1-{self._template.version}"

    async def score(self, sample: Sample) -> Score | Skipped:
        if (skipped := unanswered(sample, "reference", "contexts")) is not None:
            return skipped
        data = [Datum("reference", sample.reference or ""), *contexts_of(sample)]
        answer = await self._llm.ask(self._template.fill(data), ReferenceEntities)
        if not (entities := _distinct(answer.entities)):
            return Skipped("no_entities")
        texts = {index: _folded(sample.contexts[index].text) for index in sent_contexts(sample)}
        places = [
            _place([entity.entity for entity in same] + [entity.found_as for entity in same], texts)
            for same in entities
        ]
        present = sum(place is not None for place in places)
        return Score(
            present / len(entities),
            f"{present} of {len(entities)} entities of the reference occur in the contexts",
            tuple(
                {"entity": same[0].entity, "present": place is not None, "context": place}
                for same, place in zip(entities, places, strict=True)
            ),
        )


def _distinct(entities: Iterable[Entity]) -> list[Sequence[Entity]]:
    """Return the entities without duplicates, merging their forms."""
    groups = grouped((key, entity) for entity in entities if (key := _folded(entity.entity)))
    return list(groups.values())


def _place(forms: Iterable[str], texts: dict[int, str]) -> int | None:
    """Return the index of the first context that holds one of these forms as whole words."""
    patterns = [_as_words(folded) for form in forms if (folded := _folded(form))]
    return next((index for index, text in texts.items() if any(pattern.search(text) for pattern in patterns)), None)


def _as_words(text: str) -> re.Pattern[str]:
    """Return a pattern for `text` as whole words; without boundaries for scripts written without spaces."""
    before, after = (r"(?<!\w)" if _spaced(text[0]) else ""), (r"(?!\w)" if _spaced(text[-1]) else "")
    return re.compile(f"{before}{re.escape(text)}{after}")


def _spaced(char: str) -> bool:
    return char.isdigit() or char.upper() != char.lower()


def _folded(text: str) -> str:
    return " ".join(nfkc(text).casefold().split())
