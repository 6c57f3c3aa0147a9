"""The judge that needs no model: it knows a claim that is a sentence of a context, and nothing else."""

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


class Verbatim(Judge):
    """Answers `claim_verdicts` when every claim is, word for word, a whole sentence of a context: all are supported.

    Case and punctuation aside; a part of a sentence is not enough, for "it is not true that" may stand before it, and
    a question states nothing.
    Anything else is JudgeError("unsure"): it belongs at the front of a cascade.
    """

    model = "verbatim"
    identity = "verbatim 1"

    async def ask(self, prompt: Prompt, answer_type: type[T]) -> T:
        if prompt.task == TASK and (verdicts := _verdicts(prompt)):
            try:
                return msgspec.convert({"verdicts": verdicts}, answer_type)
            except msgspec.ValidationError:
                pass
        raise JudgeError("unsure", "not every claim is a sentence of a context")

    async def ask_sure(self, prompt: Prompt, answer_type: type[T]) -> tuple[T, float | None]:
        """Return the answer; one that is given at all is certain."""
        return await self.ask(prompt, answer_type), 1.0


def _verdicts(prompt: Prompt) -> list[dict[str, Any]]:
    """One verdict for each claim, or none at all."""
    sentences: dict[tuple[str, ...], tuple[int, str]] = {}
    claims: dict[int, str] = {}
    for _, name, number, text in _FENCED.findall(prompt.user):
        if name == "claim":
            claims[int(number)] = text
        elif name == "context":
            for sentence in _ENDS.split(text):
                if not sentence.rstrip().endswith(_ASKING):
                    sentences.setdefault(_words(sentence), (int(number), sentence.strip()))
    sentences.pop((), None)
    found = {id_: sentences.get(_words(claim)) for id_, claim in claims.items()}
    if None in found.values():
        return []
    return [
        {"id": id_, "verdict": "supported", "contexts": [one[0]], "quote": one[1]}
        for id_, one in found.items()
        if one is not None
    ]


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.casefold() for word in _WORDS.findall(text))
