"""Faithfulness and hallucination: the response's claims that contexts support, the contexts it contradicts."""

from __future__ import annotations

from gaugeway.records import Sample, Score, Skipped
from gaugeway.text.abstention import abstained
from monitors.metrics.judged import follow_ups
from monitors.metrics.judged.claims import JudgedClaim, Verdicts
from monitors.metrics.judged.prompts import unanswered


class Faithfulness:
    """Claims inferable from the contexts / claims.

    A claim the contexts do not mention counts against the response. With `contradiction_only` it does not, which is
    how DeepEval scores and hides what most hallucinations are: for comparison with it only. RAGAS (arXiv 2309.15217).
    With `history` the judge sees the conversation before a follow-up, to name what the response refers to; what was
    said there supports no claim.
    """

    name = "faithfulness"
    on_by_default = True
    measures = "answer"
    review_question = "Is everything the response says supported by the passages?"

    def __init__(self, verdicts: Verdicts, *, contradiction_only: bool = False, history: bool = True) -> None:
        self._verdicts = verdicts
        self._passing = {"supported", "not_mentioned"} if contradiction_only else {"supported"}
        self.judge = verdicts.model
        self._history = history
        version = follow_ups.version(1, verdicts.version("claims"), history=history)
        self.version = f"{version}-contradiction_only" if contradiction_only else version

    async def score(self, sample: Sample) -> Score | Skipped:
        if (skipped := unanswered(sample, "response", "contexts")) is not None:
            return skipped
        judged = await self._verdicts.claims(sample if self._history else follow_ups.without_history(sample))
        if not judged.claims:
            return Skipped("abstained" if judged.noncommittal or abstained(sample.response) else "no_claims")
        passed = sum(claim.verdict in self._passing for claim in judged.claims)
        what = "are supported by the contexts" if len(self._passing) == 1 else "are not contradicted by the contexts"
        return Score(
            passed / len(judged.claims),
            f"{passed} of {len(judged.claims)} claims {what}" + ("; noncommittal" if judged.noncommittal else ""),
            (
                *follow_ups.evidence_of(judged.standalone),
                *(_evidence(claim) for claim in judged.claims),
                *judged.checks.evidence(),
            ),
        )


def _evidence(claim: JudgedClaim) -> dict[str, object]:
    return {
        "claim": claim.claim,
        "verdict": claim.verdict,
        "context": claim.contexts[0] if claim.contexts else None,
        "contexts": list(claim.contexts),
        "quote": claim.quote,
    }


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
        contexts, checks = await self._verdicts.contradicted(seen)
        if not contexts:
            return Skipped("no_claims")
        contradicted = sum(context.contradicted for context in contexts)
        return Score(
            contradicted / len(contexts),
            f"{contradicted} of {len(contexts)} contexts are contradicted",
            tuple(
                {"context": context.index, "contradicted": context.contradicted, "reason": context.reason}
                for context in contexts
            )
            + checks.evidence(always=True),
        )
