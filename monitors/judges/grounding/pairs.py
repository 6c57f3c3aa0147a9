"""Verification by pairs: each sentence against each document, by a classifier or by MiniCheck."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from monitors.judges import SPEND, Judge, JudgeError, Prompt
from monitors.judges.grounding import Material, Support
from monitors.judges.grounding.documents import TASK, Document, DocumentVerifier, digest
from monitors.judges.micro_batcher import MicroBatcher
from monitors.judges.middleware import Wrapper

T = TypeVar("T")


class PairSupport(msgspec.Struct, frozen=True):
    """The probability, in [0, 1], that a document supports a claim."""

    support: float


class PairVerifier(DocumentVerifier):
    """Scores every sentence against every document, and takes the greatest.

    So a sentence must be supported by one document. `judge` answers pairs with `PairSupport`: the document takes the
    place of the system text. This is how MiniCheck reads long documents.

    Reference: L. Tang, P. Laban, G. Durrett (2024), MiniCheck: Efficient Fact-Checking of LLMs on Grounding Documents.
    """

    async def support(self, document: str, claim: str) -> float:
        """Return the probability, in [0, 1], that the document supports the claim. Raises JudgeError."""
        prompt = Prompt(task=TASK, version=self._version, system=document, user=claim, frozen=True)
        return (await self._judge.ask(prompt, PairSupport)).support

    def _parts(self, material: Material) -> Sequence[Material]:
        return [replace(material, sentences=(sentence,)) for sentence in material.sentences]

    async def _checked(self, material: Material, document: Document) -> tuple[Support, ...]:
        ((start, end),) = material.sentences
        score = await self.support(document.text, material.answer[start:end])
        return (Support(score=score, passages=document.indexes),)


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


class MiniCheck(PairVerifier):
    """Asks a judge the model's own question, `Document: ...`, `Claim: ...`, and reads the log-probabilities.

    The support is the probability of the first token being "yes" in any case. The prompt has no fence: see the threat
    model.
    """

    def __init__(self, judge: Judge, *, most: int, ask_again: bool = True) -> None:
        super().__init__(judge, version=digest("minicheck 1", SYSTEM), most=most)
        self._ask_again = ask_again

    async def support(self, document: str, claim: str) -> float:
        prompt = Prompt(
            task=TASK,
            version=self._version,
            system=SYSTEM,
            user=f"Document: {document}\nClaim: {claim}",
            frozen=True,
            max_tokens=_REPLY_TOKENS,
            ask_again=self._ask_again,
        )
        if (chances := await self._judge.ask_scored(prompt, _CHOICES)) is None:
            raise JudgeError("bad_request", "the endpoint gives no log-probabilities, which minicheck needs")
        return min(1.0, sum(chance for token, chance in chances.items() if token.casefold() == "yes"))


class PairSupports(msgspec.Struct, frozen=True):
    """The answer to a batch: one probability a pair, in order."""

    supports: list[float]


class PairProtocol(Protocol):
    """Writes the request for some pairs."""

    @property
    def version(self) -> str:
        """Changes whenever the same pairs are asked about in another way."""

    def write(self, pairs: Sequence[tuple[str, str]]) -> bytes:
        """Return the body of the request for (document, claim) pairs."""


class BatchedPairs(Wrapper):
    """Asks `judge` about several pairs at once; those of different apps apart, so that each app pays for its own."""

    def __init__(self, judge: Judge, protocol: PairProtocol, *, size: int, wait_s: float) -> None:
        super().__init__(judge)
        self._protocol = protocol
        self._batcher = MicroBatcher(self._supports, name="grounding", size=size, wait_s=wait_s)

    async def ask(self, prompt: Prompt, answer_type: type[T]) -> T:
        spend = SPEND.get()
        app = spend.app if spend is not None else ""
        support = await self._batcher.call((prompt.system, prompt.user), group=app)
        return msgspec.convert({"support": support}, answer_type)

    async def aclose(self) -> None:
        """Send the waiting pairs, wait for the answers, and close the judge."""
        await self._batcher.finish()
        await super().aclose()

    async def _supports(self, pairs: Sequence[tuple[str, str]]) -> Sequence[float]:
        body = self._protocol.write(pairs).decode()
        prompt = Prompt(task=TASK, version=self._protocol.version, system="", user=body, frozen=True)
        if len(found := (await self._judge.ask(prompt, PairSupports)).supports) != len(pairs):
            raise JudgeError(
                "unreadable", f"expected {len(pairs)} result{'' if len(pairs) == 1 else 's'}, got {len(found)}"
            )
        return found
