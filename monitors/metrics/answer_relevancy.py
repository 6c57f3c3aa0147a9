"""Answer relevancy: how well the response addresses the question, true or not."""

from __future__ import annotations

from typing import Any, Literal

from monitors.judges import Judge, JudgeError
from monitors.metrics.embeddings import Embeddings
from monitors.metrics.judged import follow_ups
from monitors.metrics.judged import prompts as prompting
from monitors.metrics.judged.claims import Verdicts
from monitors.metrics.judged.items import unanswered
from monitors.metrics.judged.prompts import Datum
from monitors.metrics.judged.schemas import GeneratedQuestions
from monitors.metrics.reference.answer_similarity import clipped, cosines_with_first
from monitors.records import Sample, Score, Skipped
from monitors.signals.abstention import abstained

QUESTIONS = 3
_ATTEMPTS = 2


class AnswerRelevancy:
    """Two methods; a noncommittal response scores 0 with both.

    `method="questions"`: the mean cosine between the question's embedding and those of three questions the judge
    reconstructs from the response, clipped to [0, 1]. Raises ValueError without `embeddings`.
    `method="statements"`: relevant claims / claims; borderline ones pass, as DeepEval scores. The first is the answer
    relevance of RAGAS (arXiv 2309.15217).

    With `history` a follow-up is judged as its question stands alone. The first method takes that question from the
    call that gets the claims of the response, which faithfulness makes as well.
    """

    name = "answer_relevancy"

    def __init__(
        self,
        judge: Judge,
        verdicts: Verdicts,
        embeddings: Embeddings | None,
        *,
        method: Literal["questions", "statements"] = "questions",
        history: bool = True,
    ) -> None:
        if method not in ("questions", "statements"):
            raise ValueError(f"answer_relevancy has no method {method!r}; there are 'questions' and 'statements'")
        if method == "questions" and embeddings is None:
            raise ValueError("answer_relevancy by 'questions' needs embeddings; by 'statements' it does not")
        self._llm = judge
        self._verdicts = verdicts
        self._embeddings = embeddings if method == "questions" else None
        self._questions = follow_ups.FollowUps(prompting.load("generated_questions"))
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
        evidence: tuple[dict[str, Any], ...] = (*follow_ups.evidence_of(rated.standalone), *claims)
        if rated.noncommittal:
            return Score(0.0, "the response is noncommittal", evidence)
        if not rated.claims:
            return Skipped("abstained" if abstained(sample.response) else "no_claims")
        passed = sum(relevance != "irrelevant" for _, relevance in rated.claims)
        return Score(passed / len(rated.claims), f"{passed} of {len(rated.claims)} claims are relevant", evidence)

    async def _by_questions(self, sample: Sample, embeddings: Embeddings) -> Score:
        noncommittal, questions = await self._generate(sample)
        if noncommittal:
            return Score(0.0, "the response is noncommittal", tuple({"question": one} for one in questions))
        standalone = await self._verdicts.standalone(sample)
        cosines = await cosines_with_first(embeddings, [standalone or sample.question or "", *questions])
        return Score(
            clipped(float(cosines.mean())),
            f"mean cosine of {len(questions)} questions reconstructed from the response",
            (
                *follow_ups.evidence_of(standalone),
                *({"question": one, "cosine": float(c)} for one, c in zip(questions, cosines, strict=True)),
            ),
        )

    async def _generate(self, sample: Sample) -> tuple[bool, list[str]]:
        """Return three different questions, from at most two calls, and the first answer's noncommittal flag."""
        noncommittal: bool | None = None
        questions: dict[str, str] = {}
        for _ in range(_ATTEMPTS):
            known = [Datum("known_question", one, id=id_) for id_, one in enumerate(questions.values())]
            prompt = self._questions.fill(sample, [Datum("response", sample.response), *known])
            answer = await self._llm.ask(prompt, GeneratedQuestions)
            noncommittal = answer.noncommittal if noncommittal is None else noncommittal
            for one in answer.questions:
                if key := "".join(filter(str.isalnum, one.casefold())):  # punctuation makes no other question
                    questions.setdefault(key, one)
            if noncommittal or len(questions) >= QUESTIONS:
                return noncommittal, list(questions.values())[:QUESTIONS]
        raise JudgeError("unreadable", f"{len(questions)} different questions of {QUESTIONS}, asked twice")
