"""The judge: the only door to an LLM."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What the judge is asked: `task` names the question (see monitors/prompts), `version` is its file's hash."""

    task: str
    version: str
    system: str
    user: str


class JudgeError(Exception):
    """The judge gave no usable answer.

    `kind` is one of timeout, connection, rate_limited, server_error, refused, bad_request, context_overflow (the prompt
    is too long for the model), unreadable: it becomes a label, and the `error` of the `Failed` outcome.
    """

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(detail or kind)
        self.kind = kind
        self.detail = detail


class Judge(Protocol):
    """Answers a prompt with an instance of `answer_type` (a msgspec.Struct)."""

    @property
    def model(self) -> str:
        """The judge model's name, recorded with every score."""

    async def ask(self, prompt: Prompt, answer_type: type[T]) -> T:
        """Return the judge's answer, read strictly into `answer_type`. Raises JudgeError."""


class Observer(Protocol):
    """Is told what judging costs, so that somebody can count it."""

    def judged(self, model: str, seconds: float, input_tokens: int, output_tokens: int, usd: float) -> None:
        """One call was answered and paid for, whether or not the answer could be used."""

    def failed(self, model: str, kind: str) -> None:
        """One `ask` ended with the JudgeError of this kind."""


@dataclass(slots=True)
class Spend:
    """What the judge calls made inside one metric cost, in tokens and USD."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float = 0.0


SPEND: ContextVar[Spend | None] = ContextVar("gaugeway_spend", default=None)
"""The tab of the metric that runs now: judges add to it, `monitors.evaluation` opens it. A call that several metrics
share goes on the tab of the one that asked first, so that the sum over metrics is what was paid."""
