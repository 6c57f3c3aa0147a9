"""Answer relevancy: how well the response addresses the question, true or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from gaugeway.records import Sample, Score, Skipped
from gaugeway.text.abstention import abstained
from monitors.judges import Judge, JudgeError
from monitors.metrics.embeddings import Embeddings
from monitors.metrics.judged import follow_ups
from monitors.metrics.judged import prompts as prompting
from monitors.metrics.judged.claims import Verdicts
from monitors.metrics.judged.prompts import Datum, Template, unanswered
from monitors.metrics.judged.schemas import GeneratedQuestions
from monitors.metrics.reference_answers import clipped, cosines_with_first

QUESTIONS = 3
MOST_QUESTIONS = 10  # internal bound: bound of an option
_ATTEMPTS = 2
_EXACTLY = f"exactly {QUESTIONS} different questions"
_EXACTLY_N = f"exactly {{count}} different question(s), where the examples below have {QUESTIONS},"
_MORE, _MORE_N = f"write {QUESTIONS} that differ", "write {count} that differ"


class AnswerRelevancy:
    """Two methods; a noncommittal response scores 0 with both.

    `method="questions"`: the mean cosine between the question's embedding and those of `strictness` questions the judge
    reconstructs from the response, clipped to [0, 1]. Raises ValueError without `embeddings`.
    `method="statements"`: relevant claims / claims; borderline ones pass, as DeepEval scores. The first is the answer
    relevance of RAGAS (arXiv 2309.15217).

    With `history` a follow-up is judged as its question stands alone. The first method takes that question from the
    call that gets the claims of the response, which faithfulness makes as well.
    """

    name = "answer_relevancy"
    on_by_default = True
    measures = "answer"
    review_question = "Does the response answer the question?"

    @staticmethod
    def without_embeddings(options: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG004 - the same whatever is set
        """Return the options to use where no embeddings are configured."""
        return {"method": "statements"}

    def __init__(
        self,
        judge: Judge,
        verdicts: Verdicts,
        embeddings: Embeddings | None,
        *,
        method: Literal["questions", "statements"] = "questions",
        history: bool = True,
        strictness: Annotated[int, msgspec.Meta(ge=1, le=MOST_QUESTIONS)] = QUESTIONS,
    ) -> None:
        if method not in ("questions", "statements"):
            raise ValueError(f"answer_relevancy has no method {method!r}; there are 'questions' and 'statements'")
        if method == "questions" and embeddings is None:
            raise ValueError("answer_relevancy by 'questions' needs embeddings; by 'statements' it does not")
        self._llm = judge
        self._verdicts = verdicts
        self._embeddings = embeddings if method == "questions" else None
        if not 1 <= strictness <= MOST_QUESTIONS:
            raise ValueError(f"strictness is the number of questions to generate, from 1 to {MOST_QUESTIONS}")
        if strictness != QUESTIONS and method != "questions":
            raise ValueError("strictness is the number of questions: method 'statements' generates none")
        self._count = strictness
        self._questions = follow_ups.FollowUps(_asking_for(strictness))
        used = self._questions.version if method == "questions" else verdicts.version("relevance")
        self._history = history
        self.judge = judge.model
        from_claims = [verdicts.version("claims")] if history and method == "questions" else []
        self.version = follow_ups.version(1, used, *from_claims, history=history)

    async def score(self, sample: Sample) -> Score | Skipped:
        if (skipped := unanswered(sample, "response", "question")) is not None:
            return skipped
        seen = sample if self._history else follow_ups.without_history(sample)
        if self._embeddings is None:
            return await self._by_statements(seen)
        return await self._by_questions(seen, self._embeddings)

    async def _by_statements(self, sample: Sample) -> Score | Skipped:
        rated = await self._verdicts.relevance(sample)
        claims = ({"claim": claim, "relevance": relevance} for claim, relevance in rated.claims)
        checked = rated.checks.evidence()
        evidence: tuple[dict[str, Any], ...] = (*follow_ups.evidence_of(rated.standalone), *claims, *checked)
        if rated.noncommittal:
            return Score(0.0, "the response is noncommittal", evidence)
        if not rated.claims:
            return Skipped("abstained" if abstained(sample.response) else "no_claims")
        passed = sum(relevance != "irrelevant" for _, relevance in rated.claims)
        return Score(passed / len(rated.claims), f"{passed} of {len(rated.claims)} claims are relevant", evidence)

    async def _by_questions(self, sample: Sample, embeddings: Embeddings) -> Score:
        noncommittal, questions = await self._generate(sample)
        if noncommittal:
            return Score(0.0, "the response is noncommittal", tuple({"question": question} for question in questions))
        standalone = await self._verdicts.standalone(sample)
        cosines = await cosines_with_first(embeddings, [standalone or sample.question or "", *questions])
        return Score(
            clipped(float(cosines.mean())),
            f"mean cosine of {len(questions)} questions reconstructed from the response",
            (
                *follow_ups.evidence_of(standalone),
                *({"question": question, "cosine": float(c)} for question, c in zip(questions, cosines, strict=True)),
            ),
        )

    async def _generate(self, sample: Sample) -> tuple[bool, list[str]]:
        """Return `strictness` different questions, from at most two calls, and the first answer's noncommittal flag."""
        noncommittal: bool | None = None
        questions: dict[str, str] = {}
        for _ in range(_ATTEMPTS):
            known = [Datum("known_question", question, id=id_) for id_, question in enumerate(questions.values())]
            prompt = self._questions.fill(sample, [Datum("response", sample.response), *known])
            answer = await self._llm.ask(prompt, GeneratedQuestions)
            noncommittal = answer.noncommittal if noncommittal is None else noncommittal
            for question in answer.questions:
                if key := "".join(filter(str.isalnum, question.casefold())):  # punctuation makes no other question
                    questions.setdefault(key, question)
            if noncommittal or len(questions) >= self._count:
                return noncommittal, list(questions.values())[: self._count]
        raise JudgeError("unreadable", f"{len(questions)} different questions of {self._count}, asked twice")


def _asking_for(count: int) -> Template:
    """Return the prompt that asks for `count` questions; its version names the count, except for the default."""
    template = prompting.load("generated_questions")
    if count == QUESTIONS:
        return template
    text = template.text
    for before, after in ((_EXACTLY, _EXACTLY_N), (_MORE, _MORE_N)):
        if before not in text:
            raise ValueError(f"prompts/generated_questions.md has no {before!r}")
        text = text.replace(before, after.format(count=count))
    return Template(task=template.task, version=f"{template.version}-{count}", text=text)
