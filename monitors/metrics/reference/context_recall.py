"""Context recall: the share of the reference's claims that the contexts support."""

from __future__ import annotations

from dataclasses import replace

from gaugeway.records import Sample, Score, Skipped
from monitors.metrics.judged.claims import Verdicts
from monitors.metrics.judged.items import unanswered


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
            ),
        )
