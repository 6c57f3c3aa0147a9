"""The exact match: a judge without a model, which supports claims that are whole sentences of a context."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from monitors.judges import Judge, JudgeError, Prompt

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
        if verdicts := _verdicts(prompt):
            try:
                return msgspec.convert({"verdicts": verdicts}, answer_type)
            except msgspec.ValidationError:
                pass
        raise JudgeError("unsure", "not every claim is a sentence of a context")

    async def ask_sure(self, prompt: Prompt, answer_type: type[T]) -> tuple[T, float | None]:
        return await self.ask(prompt, answer_type), 1.0


def numbered(prompt: Prompt, name: str) -> dict[int, str]:
    """Return the fenced texts of this name in a prompt, "claim" or "context", by their number."""
    return {int(number): text for _, found, number, text in _FENCED.findall(prompt.user) if found == name}


def _verdicts(prompt: Prompt) -> list[dict[str, Any]]:
    """Return one verdict for each claim; empty unless every claim is a sentence of a context."""
    sentences: dict[tuple[str, ...], tuple[int, str]] = {}
    claims = numbered(prompt, "claim")
    for number, text in numbered(prompt, "context").items():
        for sentence in _ENDS.split(text):
            if not sentence.rstrip().endswith(_ASKING):
                sentences.setdefault(_words(sentence), (number, sentence.strip()))
    sentences.pop((), None)
    found = {id_: sentences.get(_words(claim)) for id_, claim in claims.items()}
    if None in found.values():
        return []
    return [
        {"id": id_, "verdict": "supported", "contexts": [grade[0]], "quote": grade[1]}
        for id_, grade in found.items()
        if grade is not None
    ]


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.casefold() for word in _WORDS.findall(text))
