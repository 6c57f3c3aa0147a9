"""Answer correctness: the claims of response and reference, each checked against the other text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import msgspec

from gaugeway.records import Context, Sample, Score, Skipped
from monitors.metrics.embeddings import MinimalEmbeddings, adapted
from monitors.metrics.judged.claims import JudgedClaims, Verdicts
from monitors.metrics.judged.items import unanswered
from monitors.metrics.reference.answer_similarity import clipped, cosines_with_first


class AnswerCorrectness:
    """weight x F1 + (1 - weight) x answer similarity, F1 = TP / (TP + (FP + FN) / 2).

    TP: claims of the response that the reference supports. FP: its other claims. FN: claims of the reference that the
    response does not support. Raises ValueError without `embeddings`, unless `weight` is 1. After RAGAS
    (https://docs.ragas.io); what has no claims is skipped here and perfect there.
    """

    name = "answer_correctness"
    measures = "answer"

    @staticmethod
    def without_embeddings(options: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the options to use where no embeddings are configured; None: it cannot run."""
        return {} if options.get("weight") == 1.0 else None

    def __init__(
        self,
        verdicts: Verdicts,
        embeddings: MinimalEmbeddings | None,
        *,
        weight: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 0.75,
    ) -> None:
        if embeddings is None and weight < 1.0:
            raise ValueError("answer_correctness needs embeddings; with weight = 1.0 it does not")
        self._verdicts = verdicts
        self._embeddings = None if embeddings is None or weight == 1.0 else adapted(embeddings)
        self._weight = weight
        self.judge = verdicts.model
        compared = "" if self._embeddings is None else f"-{self._embeddings.model}"
        self.version = f"1-{verdicts.version('claims')}-{weight:g}{compared}"

    async def score(self, sample: Sample) -> Score | Skipped:
        if (skipped := unanswered(sample, "response", "reference")) is not None:
            return skipped
        ours = await self._check(sample, sample.response, sample.reference or "")
        if not ours.claims:
            return Skipped("no_claims")
        expected = await self._check(sample, sample.reference or "", sample.response)
        if not expected.claims:
            return Skipped("no_reference_claims")
        tp = sum(claim.verdict == "supported" for claim in ours.claims)
        fp = len(ours.claims) - tp
        fn = sum(claim.verdict != "supported" for claim in expected.claims)
        f1 = tp / (tp + (fp + fn) / 2) if tp else 0.0
        value, similarity = f1, None
        if self._embeddings is not None:
            cosines = await cosines_with_first(self._embeddings, [sample.response, sample.reference or ""])
            similarity = clipped(float(cosines[0]))
            value = self._weight * f1 + (1.0 - self._weight) * similarity
        reason = f"{tp} right, {fp} wrong and {fn} missing claims"
        return Score(clipped(value), reason, ({"f1": f1, "similarity": similarity}, *_evidence(ours, expected)))

    async def _check(self, sample: Sample, text: str, against: str) -> JudgedClaims:
        return await self._verdicts.claims(
            replace(sample, response=text, contexts=(Context(text=against),), history=())
        )


def _evidence(ours: JudgedClaims, expected: JudgedClaims) -> list[dict[str, object]]:
    right: list[dict[str, object]] = [
        {"claim": claim.claim, "found": "TP" if claim.verdict == "supported" else "FP", "quote": claim.quote}
        for claim in ours.claims
    ]
    missing: list[dict[str, object]] = [
        {"claim": claim.claim, "found": "FN"} for claim in expected.claims if claim.verdict != "supported"
    ]
    return [*right, *missing]
