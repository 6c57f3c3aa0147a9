"""The judge: the only door to an LLM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, runtime_checkable

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
    is too long for the model), too_large (the reply has more bytes than are read), unreadable, deadline (the sample's
    time is used up), blind (not asked, because it failed too often), unsure (a tier of a cascade leaves it to the
    next): it becomes a label, and the `error` of the `Failed` outcome. `retry_after_s` is what the server asked to
    wait, if it did.
    """

    def __init__(self, kind: str, detail: str = "", *, retry_after_s: float | None = None) -> None:
        super().__init__(detail or kind)
        self.kind = kind
        self.detail = detail
        self.retry_after_s = retry_after_s


class Judge(Protocol):
    """Answers a prompt with an instance of `answer_type` (a msgspec.Struct)."""

    @property
    def model(self) -> str:
        """The judge model's name, recorded with every score."""

    async def ask(self, prompt: Prompt, answer_type: type[T]) -> T:
        """Return the judge's answer, read strictly into `answer_type`. Raises JudgeError."""


@runtime_checkable
class ScoringJudge(Protocol):
    """A judge that can say how likely each of several answers was."""

    async def ask_scored(self, prompt: Prompt, choices: Sequence[str]) -> Mapping[str, float] | None:
        """Return the probabilities of the answer token's alternatives: of all `choices`, and of what is none of them.

        None when the endpoint has no log-probabilities. Raises JudgeError.
        """


@runtime_checkable
class SureJudge(Protocol):
    """A judge that can say how sure it is of an answer."""

    async def ask_sure(self, prompt: Prompt, answer_type: type[T]) -> tuple[T, float | None]:
        """Return the answer and the probability of its least likely verdict, None where that is not known."""


async def ask_scored(judge: Judge, prompt: Prompt, choices: Sequence[str]) -> Mapping[str, float] | None:
    """Ask for probabilities; None from any judge that knows none. Raises JudgeError."""
    return await judge.ask_scored(prompt, choices) if isinstance(judge, ScoringJudge) else None


async def ask_sure(judge: Judge, prompt: Prompt, answer_type: type[T]) -> tuple[T, float | None]:
    """Ask for an answer and how sure it is; None from any judge that does not know. Raises JudgeError."""
    if isinstance(judge, SureJudge):
        return await judge.ask_sure(prompt, answer_type)
    return await judge.ask(prompt, answer_type), None


class Observer(Protocol):
    """Is told what judging costs, so that somebody can count it."""

    def judged(self, model: str, seconds: float, input_tokens: int, output_tokens: int, usd: float) -> None:
        """One call was answered and paid for, whether or not the answer could be used."""

    def failed(self, model: str, kind: str) -> None:
        """One `ask` ended with the JudgeError of this kind."""


@dataclass(slots=True)
class Spend:
    """What the judge calls made inside one metric cost, in tokens and USD, and what a cache saved.

    `app` and `metric` say who pays. `asked` counts what was asked under this tab (see judges.cache).
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float = 0.0
    hits: int = 0
    saved_usd: float = 0.0
    app: str = ""
    metric: str = ""
    asked: Counter[bytes] = field(default_factory=Counter)


SPEND: ContextVar[Spend | None] = ContextVar("gaugeway_spend", default=None)
"""The tab of the metric that runs now: judges add to it, `evaluation.evaluate` opens it. A call that several metrics
share goes on the tab of the one that asked first, so that the sum over metrics is what was paid."""


@contextmanager
def itemised() -> Iterator[Spend]:
    """Open a tab within the current one, to see what one question costs; its sum goes on the current one at the end."""
    outer = SPEND.get()
    inner = Spend() if outer is None else Spend(app=outer.app, metric=outer.metric, asked=outer.asked)
    token = SPEND.set(inner)
    try:
        yield inner
    finally:
        SPEND.reset(token)
        if outer is not None:
            outer.calls += inner.calls
            outer.input_tokens += inner.input_tokens
            outer.output_tokens += inner.output_tokens
            outer.usd += inner.usd
            outer.hits += inner.hits
            outer.saved_usd += inner.saved_usd
