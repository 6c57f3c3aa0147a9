"""MiniCheck: the probability of "Yes" from a chat model that was trained to check claims against documents."""

from __future__ import annotations

from monitors.judges import Judge, JudgeError, Prompt
from monitors.judges.grounding.pairs import TASK, PairScorer, digest

# The wording of the published model (github.com/Liyan06/MiniCheck, Apache-2.0): it was trained on it.
SYSTEM = (
    "Determine whether the provided claim is consistent with the corresponding document. Consistency in this context"
    " implies that all information presented in the claim is substantiated by the document. If not, it should be"
    " considered inconsistent. Please assess the claim's consistency with the document by responding with either"
    ' "Yes" or "No".'
)
_CHOICES = ("Yes", "No")
_REPLY_TOKENS = 4
"""Tokens that are asked for: one is read; the rest leaves room for a quote or a space before it."""


class MiniCheck(PairScorer):
    """Asks a judge the model's own question, `Document: ...`, `Claim: ...`, and reads the log-probabilities.

    The support is the probability of the first token being "yes" in any case. The prompt has no fence: see the threat
    model.

    Reference: L. Tang, P. Laban, G. Durrett (2024), MiniCheck: Efficient Fact-Checking of LLMs on Grounding Documents.
    """

    def __init__(self, judge: Judge, *, ask_again: bool = True) -> None:
        self._judge = judge
        self._ask_again = ask_again

    @property
    def model(self) -> str:
        return self._judge.model

    @property
    def version(self) -> str:
        return digest("minicheck 1", SYSTEM)

    async def support(self, document: str, claim: str) -> float:
        user = f"Document: {document}\nClaim: {claim}"
        prompt = Prompt(
            task=TASK,
            version=self.version,
            system=SYSTEM,
            user=user,
            frozen=True,
            max_tokens=_REPLY_TOKENS,
            ask_again=self._ask_again,
        )
        chances = await self._judge.ask_scored(prompt, _CHOICES)
        if chances is None:
            raise JudgeError("bad_request", "the endpoint gives no log-probabilities, which minicheck needs")
        return min(1.0, sum(chance for token, chance in chances.items() if token.casefold() == "yes"))

    async def aclose(self) -> None:
        await self._judge.aclose()
