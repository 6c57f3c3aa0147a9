"""Faithfulness: the share of the response's claims that its contexts support."""

from __future__ import annotations

from monitors.metrics.judged.claims import JudgedClaim, Verdicts
from monitors.metrics.judged.items import unanswered
from monitors.records import Sample, Score, Skipped


class Faithfulness:
    """Claims inferable from the contexts / claims.

    A claim the contexts do not mention counts against the response. With `contradiction_only` it does not, which is
    how DeepEval scores and hides what most hallucinations are: for comparison with it only. RAGAS (arXiv 2309.15217).
    """

    name = "faithfulness"

    def __init__(self, verdicts: Verdicts, *, contradiction_only: bool = False) -> None:
        self._verdicts = verdicts
        self._passing = {"supported", "not_mentioned"} if contradiction_only else {"supported"}
        self.judge = verdicts.model
        self.version = "-".join(
            ["1", verdicts.version("claims"), *(["contradiction_only"] if contradiction_only else [])]
        )

    async def score(self, sample: Sample) -> Score | Skipped:
        if (skipped := unanswered(sample, "response", "contexts")) is not None:
            return skipped
        judged = await self._verdicts.claims(sample)
        if not judged.claims:
            return Skipped("no_claims")
        passed = sum(claim.verdict in self._passing for claim in judged.claims)
        what = "are supported by the contexts" if len(self._passing) == 1 else "are not contradicted by the contexts"
        return Score(
            passed / len(judged.claims),
            f"{passed} of {len(judged.claims)} claims {what}" + ("; noncommittal" if judged.noncommittal else ""),
            tuple(_evidence(claim) for claim in judged.claims),
        )


def _evidence(claim: JudgedClaim) -> dict[str, object]:
    return {
        "claim": claim.claim,
        "verdict": claim.verdict,
        "context": claim.contexts[0] if claim.contexts else None,
        "contexts": list(claim.contexts),
        "quote": claim.quote,
    }
