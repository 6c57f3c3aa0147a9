"""Cheap first tiers of a cascade: the exact match, without a model, and the verifier. Both only support claims."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from monitors.judges import Judge, JudgeError, Prompt
from monitors.judges.grounding import Material, Support, TooLongError, Verifier
from monitors.judges.grounding.documents import together

T = TypeVar("T")
TASK = "claim_verdicts"
_FENCED = re.compile(r'<data-([0-9]{9}) name="(\w+)" (?:index|id)="(\d+)">\n(.*?)\n</data-\1>', re.DOTALL)
_ENDS = re.compile(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])|\n+")
_ASKING = ("?", "\uff1f")
_WORDS = re.compile(r"(?:[-+\u2212](?=\d))?\w+(?:[.,:/'\u2019-]\w+)*|[%\u20ac$\u00a3\u00b0<>=]")


class ExactMatch(Judge):
    """Answers `claim_verdicts` with "supported" when every claim equals a whole sentence of a context.

    Case and punctuation are ignored. Part of a sentence is not enough, since "it is not true that" may precede it, and
    a question supports nothing. Anything else raises JudgeError("unsure"), and any other prompt "skipped": use it as
    the first tier of a cascade.
    """

    @property
    def model(self) -> str:
        return "verbatim"

    @property
    def identity(self) -> str:
        return "verbatim 1"

    async def ask(self, prompt: Prompt, answer_type: type[T]) -> T:
        if prompt.task != TASK:
            raise JudgeError("skipped", "no claims to verify")
        if quotes := _sentences_of(prompt):
            return _supported(quotes, answer_type)
        raise JudgeError("unsure", "not every claim is a sentence of a context")

    async def ask_sure(self, prompt: Prompt, answer_type: type[T]) -> tuple[T, float | None]:
        return await self.ask(prompt, answer_type), 1.0


def numbered(prompt: Prompt, name: str) -> dict[int, str]:
    """Return the fenced texts of this name in a prompt, "claim" or "context", by their number."""
    return {int(number): text for _, found, number, text in _FENCED.findall(prompt.user) if found == name}


def _supported(quotes: Mapping[int, tuple[int, str]], answer_type: type[T]) -> T:
    """Return the answer that claims are supported, by their ids, each by a quote from the context of that number."""
    verdicts = [
        {"id": id_, "verdict": "supported", "contexts": [index], "quote": quote}
        for id_, (index, quote) in quotes.items()
    ]
    try:
        return msgspec.convert({"verdicts": verdicts}, answer_type)
    except msgspec.ValidationError as error:
        raise JudgeError("unsure", str(error)) from None


def _sentences_of(prompt: Prompt) -> Mapping[int, tuple[int, str]]:
    """Return the context and the sentence in it that each claim is; empty unless every claim is one."""
    sentences: dict[tuple[str, ...], tuple[int, str]] = {}
    claims = numbered(prompt, "claim")
    for number, text in numbered(prompt, "context").items():
        for sentence in _ENDS.split(text):
            if not sentence.rstrip().endswith(_ASKING):
                sentences.setdefault(_words(sentence), (number, sentence.strip()))
    sentences.pop((), None)
    found = {id_: place for id_, claim in claims.items() if (place := sentences.get(_words(claim)))}
    return found if len(found) == len(claims) else {}


def _nearest(claim: str, context: str) -> str:
    """Return the sentence of a context with most words of a claim: the verifier names the context alone."""
    words = set(_words(claim))
    sentences = [sentence.strip() for sentence in _ENDS.split(context) if _words(sentence)]
    return max(sentences, key=lambda sentence: len(words.intersection(_words(sentence))), default="")


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.casefold() for word in _WORDS.findall(text))


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
        if (least := min(support for support, _ in found)) < self._least:
            raise JudgeError("unsure", f"a claim is supported by {least:.2f}")
        best = zip(claims.items(), (index for _, index in found), strict=True)
        quotes = {id_: (index, _nearest(claim, contexts[index])) for (id_, claim), index in best}
        return _supported(quotes, answer_type), least

    async def _best(self, claim: str, contexts: Mapping[int, str]) -> tuple[float, int]:
        """Return the greatest support of a claim by one context, and that context's number."""

        async def check(text: str) -> Support:
            whole = ((0, len(claim)),)
            return (
                await self._verifier.verify(Material(question="", passages=(text,), answer=claim, sentences=whole))
            )[0]

        found = await together(check(text) for text in contexts.values())
        return max(zip((support.score for support in found), contexts, strict=True), key=lambda pair: pair[0])
