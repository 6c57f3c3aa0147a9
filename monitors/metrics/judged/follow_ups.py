"""Follow-up questions: the judge sees the conversation before, and first writes the question as it stands alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Generic, TypeVar

import msgspec

from gaugeway.records import Sample
from monitors.judges import Judge, Prompt
from monitors.metrics.judged import prompts as prompting
from monitors.metrics.judged.evidence import Checks
from monitors.metrics.judged.prompts import Datum, Template, question_of
from monitors.metrics.judged.schemas import Answer

A = TypeVar("A", bound=Answer)

MOST_MESSAGES, LONGEST_MESSAGE = 6, 1_000
"""Earlier messages that a judge is shown, and characters of each: 6 KB of a prompt at most."""
LONGEST_QUESTION = 1_000
"""Characters of a standalone question that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Generic[A]):
    """A judge's answer; `standalone` is the question as it stands alone, None where the sample has no history."""

    answer: A
    standalone: str | None = None
    checks: Checks = field(default_factory=Checks)


class FollowUps:
    """Adds the conversation before to the prompts of one task. Samples without history get the prompt as it is."""

    def __init__(self, template: Template) -> None:
        self._template = template
        self._rewriting = template.with_part(prompting.load("follow_up"))
        self._reading = template.with_part(prompting.load("earlier_messages"))

    @property
    def version(self) -> str:
        """The hash of the prompt without history."""
        return self._template.version

    async def ask(self, judge: Judge, sample: Sample, data: Iterable[Datum], answer_type: type[A]) -> Asked[A]:
        """Ask about the sample's question and `data`; with history, for the standalone question too."""
        if not (question := question_of(sample)) or not sample.history:
            return Asked(answer=await judge.ask(self._template.fill([*question, *data]), answer_type))
        prompt = self._rewriting.fill([*history_of(sample), *question, *data])
        answer: Any = await judge.ask(prompt, _rewriting(answer_type))
        standalone = " ".join(answer.standalone_question.split())[:LONGEST_QUESTION]
        return Asked(answer=answer, standalone=standalone or question[0].text)

    def fill(self, sample: Sample, data: Iterable[Datum]) -> Prompt:
        """Return a prompt that shows the history as well, for an answer that has no place for a question."""
        if not sample.history:
            return self._template.fill(data)
        return self._reading.fill([*history_of(sample), *data])


def history_of(sample: Sample) -> list[Datum]:
    """Return the last messages before the question, the oldest first."""
    return [
        Datum("earlier_user" if message.role == "user" else "earlier_assistant", _cut(message.text))
        for message in sample.history[-MOST_MESSAGES:]
    ]


def without_history(sample: Sample) -> Sample:
    """Return the sample as a metric sees it that judges every question by itself."""
    return replace(sample, history=()) if sample.history else sample


def version(number: int, *used: str, history: bool) -> str:
    """Return a metric's version; with `history` it names the prompts that follow-ups add.

    >>> version(1, "a1b2c3d4", history=False)
    '1-a1b2c3d4'
    """
    if not history:
        return "-".join([str(number), *used])
    parts = (prompting.load(prompt).version for prompt in ("follow_up", "earlier_messages"))
    return "-".join([str(number + 1), *used, *parts])


def evidence_of(standalone: str | None) -> tuple[dict[str, Any], ...]:
    """Return what a score's evidence says of the question as the judge understood it."""
    return () if standalone is None else ({"standalone_question": standalone},)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_MESSAGE else text[:LONGEST_MESSAGE] + " …"


@cache
def _rewriting(answer_type: type[Answer]) -> Any:
    """Return the answer with the standalone question as its first field: a judge writes the fields in this order.

    A judge that leaves it out is read all the same.
    """
    fields = [(field.name, field.type) for field in msgspec.structs.fields(answer_type)]
    return msgspec.defstruct(
        answer_type.__name__, [("standalone_question", str, ""), *fields], bases=(Answer,), frozen=True, kw_only=True
    )
