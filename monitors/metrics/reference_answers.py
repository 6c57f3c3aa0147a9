"""Metrics of the response beside a reference: answer similarity, answer correctness, noise sensitivity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from gaugeway.records import Context, Sample, Score, Skipped
from monitors.judges import JudgeError
from monitors.metrics.embeddings import Embeddings, MinimalEmbeddings, adapted
from monitors.metrics.judged.claims import JudgedClaim, JudgedClaims, Verdicts
from monitors.metrics.judged.prompts import unanswered


class AnswerSimilarity:
    """cos(embedding(response), embedding(reference)), clipped to [0, 1]; with a `threshold`, 1 from there on, else 0.

    The semantic similarity of RAGAS (https://docs.ragas.io) and of Risch et al.: Semantic Answer Similarity
    (arXiv 2108.06130), with two separate embeddings.
    """

    name = "answer_similarity"

    @staticmethod
    def without_embeddings(options: Mapping[str, Any]) -> None:
        """Return that it cannot run where no embeddings are configured."""

    def __init__(
        self, embeddings: MinimalEmbeddings, *, threshold: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] | None = None
    ) -> None:
        self._embeddings = adapted(embeddings)
        self._threshold = threshold
        self.judge = self._embeddings.model
        self.version = "1" if threshold is None else f"1-{threshold:g}"

    async def score(self, sample: Sample) -> Score | Skipped:
        reference = sample.reference or ""
        if (skipped := unanswered(sample, "response", "reference")) is not None:
            return skipped
        cosine = float((await cosines_with_first(self._embeddings, [sample.response, reference]))[0])
        if self._threshold is None:
            return Score(clipped(cosine), "cosine of response and reference", ({"cosine": cosine},))
        passed = cosine >= self._threshold
        reason = f"cosine {cosine:.4f}, {'at least' if passed else 'below'} {self._threshold:g}"
        return Score(float(passed), reason, ({"cosine": cosine, "threshold": self._threshold},))


async def cosines_with_first(embeddings: Embeddings, texts: Sequence[str]) -> NDArray[np.float64]:
    """Return the cosine of each other text with the first, from one batch. Raises JudgeError for a zero vector."""
    vectors = await embeddings.embed(texts)
    if not (np.isfinite(norms := np.linalg.norm(vectors, axis=1)).all() and norms.all()):
        raise JudgeError("unreadable", "an embedding has no direction")
    unit = vectors / norms[:, None]
    cosines: NDArray[np.float64] = unit[1:] @ unit[0]
    return cosines


def clipped(cosine: float) -> float:
    """Clip a cosine to [0, 1]."""
    return min(1.0, max(0.0, float(cosine)))


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
    return [*right, *missing, *ours.checks.evidence()]


class NoiseSensitivity:
    """Claims of the response that the reference does not support and a context does / claims of the response.

    `noise` chooses which contexts: "any"; "relevant", those that support a claim of the reference; "irrelevant", the
    others, and only claims that no relevant one supports. After RAGChecker (arXiv 2408.08067) and RAGAS
    (https://docs.ragas.io), whose modes are "relevant" and "irrelevant": the two add up to "any".
    """

    name = "noise_sensitivity"
    lower_is_better = True

    def __init__(self, verdicts: Verdicts, *, noise: Literal["any", "relevant", "irrelevant"] = "any") -> None:
        self._verdicts = verdicts
        self._noise = noise
        self.judge = verdicts.model
        used = verdicts.version("claims")
        self.version = f"1-{used}-{verdicts.version('held_against')}" + ("" if noise == "any" else f"-{noise}")

    async def score(self, sample: Sample) -> Score | Skipped:
        if (skipped := unanswered(sample, "reference", "response", "contexts")) is not None:
            return skipped
        reference, sample = sample.reference or "", replace(sample, history=())
        located = self._noise != "any"
        judged = await self._verdicts.claims(sample)
        if not judged.claims:
            return Skipped("no_claims")
        right = await self._verdicts.held_against(sample, [claim.claim for claim in judged.claims], reference)
        wrong = [claim.verdict != "supported" for claim in right]
        relevant = await self._relevant(sample, reference) if located else frozenset()
        if relevant is None:
            return Skipped("no_reference_claims")
        noisy = [bad and self._taken(claim, relevant) for claim, bad in zip(judged.claims, wrong, strict=True)]
        return Score(
            sum(noisy) / len(noisy),
            f"{sum(noisy)} of {len(noisy)} claims are wrong and come from the contexts",
            tuple(
                {
                    "claim": claim.claim,
                    "correct": not bad,
                    "noise": taken,
                    "contexts": list(claim.contexts),
                    "quote": claim.quote,
                }
                for claim, bad, taken in zip(judged.claims, wrong, noisy, strict=True)
            )
            + judged.checks.evidence(),
        )

    async def _relevant(self, sample: Sample, reference: str) -> frozenset[int] | None:
        """Return the contexts that support a claim of the reference; None when the reference has no claims."""
        wanted = await self._verdicts.claims(replace(sample, response=reference))
        if not wanted.claims:
            return None
        return frozenset(index for claim in wanted.claims if claim.verdict == "supported" for index in claim.contexts)

    def _taken(self, claim: JudgedClaim, relevant: frozenset[int]) -> bool:
        if claim.verdict != "supported" or self._noise == "any":
            return claim.verdict == "supported"
        from_relevant = bool(relevant & set(claim.contexts))
        return from_relevant == (self._noise == "relevant")
