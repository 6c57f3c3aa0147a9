"""The verifier as the first tier of a cascade: supports claims that it is sure of, and passes on all others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from monitors.judges import Judge, JudgeError, Prompt
from monitors.judges.exact_match import TASK, numbered
from monitors.judges.grounding import Material, Support, TooLongError, Verifier
from monitors.judges.grounding.pairs import together

T = TypeVar("T")


class GroundingTier(Judge):
    """Answers `claim_verdicts` with "supported" when the verifier supports every claim by at least `least`.

    Each claim is checked against each context alone, so that the verdict names the context. Whether a claim that is
    not supported is contradicted or not mentioned, a verifier cannot tell: that is JudgeError("unsure"), so that the
    next tier is asked, as it is for other prompts ("skipped") and when the verifier fails ("verifier_failed").
    """

    def __init__(self, verifier: Verifier, *, least: float = 0.9) -> None:
        self._verifier = verifier
        self._least = least

    @property
    def model(self) -> str:
        return self._verifier.model

    @property
    def identity(self) -> str:
        return f"grounding {self._verifier.model} {self._verifier.version}"

    async def ask(self, prompt: Prompt, answer_type: type[T]) -> T:
        return (await self.ask_sure(prompt, answer_type))[0]

    async def ask_sure(self, prompt: Prompt, answer_type: type[T]) -> tuple[T, float | None]:
        claims, contexts = numbered(prompt, "claim"), numbered(prompt, "context")
        if prompt.task != TASK or not claims or not contexts:
            raise JudgeError("skipped", "no claims to verify")
        try:
            found = await together(self._best(claim, contexts) for claim in claims.values())
        except JudgeError as error:
            raise JudgeError("verifier_failed", f"{error.kind}: {error}") from None
        except TooLongError as error:
            raise JudgeError("unsure", str(error)) from None
        least = min(support for support, _ in found)
        if least < self._least:
            raise JudgeError("unsure", f"a claim is supported by {least:.2f}")
        verdicts: list[dict[str, Any]] = [
            {"id": id_, "verdict": "supported", "contexts": [index], "quote": ""}
            for id_, (_, index) in zip(claims, found, strict=True)
        ]
        try:
            return msgspec.convert({"verdicts": verdicts}, answer_type), least
        except msgspec.ValidationError as error:
            raise JudgeError("unsure", str(error)) from None

    async def _best(self, claim: str, contexts: Mapping[int, str]) -> tuple[float, int]:
        """Return the greatest support of a claim by one context, and that context's number."""

        async def check(text: str) -> Support:
            whole = ((0, len(claim)),)
            return (
                await self._verifier.verify(Material(question="", passages=(text,), answer=claim, sentences=whole))
            )[0]

        found = await together(check(text) for text in contexts.values())
        scored = zip((support.score for support in found), contexts, strict=True)
        return max(scored, key=lambda pair: pair[0])
