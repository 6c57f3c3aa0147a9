"""Noise sensitivity: the share of the response's claims that are wrong and from the contexts. Lower is better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from gaugeway.records import Sample, Score, Skipped
from monitors.metrics.judged.claims import JudgedClaim, Verdicts
from monitors.metrics.judged.items import unanswered


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
        used = verdicts.version("claims" if noise == "any" else "located")
        self.version = f"1-{used}-{verdicts.version('held_against')}" + ("" if noise == "any" else f"-{noise}")

    async def score(self, sample: Sample) -> Score | Skipped:
        if (skipped := unanswered(sample, "reference", "response", "contexts")) is not None:
            return skipped
        reference, sample = sample.reference or "", replace(sample, history=())
        located = self._noise != "any"
        judged = await (self._verdicts.located(sample) if located else self._verdicts.claims(sample))
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
            tuple(_evidence(judged.claims, wrong, noisy)),
        )

    async def _relevant(self, sample: Sample, reference: str) -> frozenset[int] | None:
        """Return the contexts that support a claim of the reference; None when the reference has no claims."""
        wanted = await self._verdicts.located(replace(sample, response=reference))
        if not wanted.claims:
            return None
        return frozenset(index for claim in wanted.claims if claim.verdict == "supported" for index in claim.contexts)

    def _taken(self, claim: JudgedClaim, relevant: frozenset[int]) -> bool:
        if claim.verdict != "supported" or self._noise == "any":
            return claim.verdict == "supported"
        from_relevant = bool(relevant & set(claim.contexts))
        return from_relevant == (self._noise == "relevant")


def _evidence(claims: Sequence[JudgedClaim], wrong: Sequence[bool], noisy: Sequence[bool]) -> list[dict[str, object]]:
    return [
        {
            "claim": claim.claim,
            "correct": not bad,
            "noise": taken,
            "contexts": list(claim.contexts),
            "quote": claim.quote,
        }
        for claim, bad, taken in zip(claims, wrong, noisy, strict=True)
    ]
