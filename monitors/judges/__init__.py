"""The judge: the port to the LLM that scores answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from msgspec import Struct

T = TypeVar("T")
TRIAL_APP = "trial:"
"""Begins the app that judging a trial is charged to."""


class Prompt(Struct, frozen=True, kw_only=True):
    """A prompt for the judge: `task` names its template (see monitors/prompts), `version` is the template's hash.

    A `frozen` prompt is the one that a model was trained on: nothing is added to its wording. The first `max_tokens` of
    the reply hold the answer; None: all of it. With `ask_again` an answer that cannot be read is asked for once more.
    No answer to this prompt needs more than `output_cap` tokens, or hardly any: one that does is cut and asked for with
    twice as many.
    """

    task: str
    version: str
    system: str
    user: str
    frozen: bool = False
    max_tokens: int | None = None
    ask_again: bool = True
    output_cap: int | None = None


class JudgeError(Exception):
    """The judge gave no usable answer.

    `kind` is one of timeout, connection, rate_limited, server_error, refused, bad_request, context_overflow (the prompt
    is too long for the model), too_large (the reply exceeds the bytes that are read), unreadable, truncated (the answer
    was cut at its tokens' number, twice), unsupported_verdict (what it says is not in the texts judged), deadline (the
    sample's deadline has passed), blind (the circuit breaker is open), unsure (a cascade's tier passes the prompt on),
    verifier_failed (a cascade's verifier gave no answer), skipped (a cascade's tier never answers such prompts).
    It becomes a label and the `error` of the `Failed` outcome. `retry_after_s` is the server's Retry-After, if any;
    infinite: longer than any call waits.
    """

    def __init__(self, kind: str, detail: str = "", *, retry_after_s: float | None = None) -> None:
        super().__init__(detail or kind)
        self.kind = kind
        self.detail = detail
        self.retry_after_s = retry_after_s


class MinimalJudge(Protocol):
    """What a judge plug-in must have; `adapted` gives it the rest of `Judge`."""

    @property
    def model(self) -> str:
        """The judge model's name, recorded with every score."""

    async def ask(self, prompt: Prompt, answer_type: type[T]) -> T:
        """Return the judge's answer, read strictly into `answer_type` (a msgspec.Struct). Raises JudgeError."""


class Judge(ABC):
    """The port to an LLM. An adapter needs only `model` and `ask`; the rest has defaults."""

    @property
    @abstractmethod
    def model(self) -> str:
        """The judge model's name, recorded with every score."""

    @abstractmethod
    async def ask(self, prompt: Prompt, answer_type: type[T]) -> T:
        """Return the judge's answer, read strictly into `answer_type` (a msgspec.Struct). Raises JudgeError."""

    @property
    def identity(self) -> str:
        """What makes two answers interchangeable (endpoint, model and settings); the model unless overridden."""
        return self.model

    async def ask_scored(  # a default, so it uses none of its parameters
        self,
        prompt: Prompt,  # noqa: ARG002
        choices: Sequence[str],  # noqa: ARG002
    ) -> Mapping[str, float] | None:
        """Return the probabilities of the answer token's alternatives: all `choices`, and tokens that are no choice.

        None, the default, when the endpoint has no log-probabilities. Raises JudgeError.
        """
        return None

    async def ask_sure(self, prompt: Prompt, answer_type: type[T]) -> tuple[T, float | None]:
        """Return the answer and the probability of its least likely verdict; None, the default, if it is not known."""
        return await self.ask(prompt, answer_type), None

    async def aclose(self) -> None:  # noqa: B027 - a default, not an abstract method
        """Release connections; nothing by default."""


class _PluginJudge(Judge):
    """A user's judge behind the whole port: calls the optional methods it has, and the defaults in place of others."""

    def __init__(self, plugin: MinimalJudge) -> None:
        self._plugin = plugin

    @property
    def model(self) -> str:
        return self._plugin.model

    @property
    def identity(self) -> str:
        return str(getattr(self._plugin, "identity", self._plugin.model))

    async def ask(self, prompt: Prompt, answer_type: type[T]) -> T:
        return await self._plugin.ask(prompt, answer_type)

    async def ask_scored(self, prompt: Prompt, choices: Sequence[str]) -> Mapping[str, float] | None:
        method = getattr(self._plugin, "ask_scored", super().ask_scored)
        found: Mapping[str, float] | None = await method(prompt, choices)
        return found

    async def ask_sure(self, prompt: Prompt, answer_type: type[T]) -> tuple[T, float | None]:
        method = getattr(self._plugin, "ask_sure", super().ask_sure)
        answer: tuple[T, float | None] = await method(prompt, answer_type)
        return answer

    async def aclose(self) -> None:
        await getattr(self._plugin, "aclose", super().aclose)()


def adapted(judge: MinimalJudge) -> Judge:
    """Return a judge as a `Judge`; for where judges come from users, whose classes need only `model` and `ask`."""
    return judge if isinstance(judge, Judge) else _PluginJudge(judge)


class Observer:
    """Receives the calls and failures of judges and embeddings, to count them; by default each method does nothing."""

    def judged(self, model: str, seconds: float, input_tokens: int, output_tokens: int, usd: float) -> None:
        """One call was answered and paid for, whether or not the answer could be used."""

    def failed(self, model: str, kind: str) -> None:
        """One `ask` ended with the JudgeError of this kind."""

    def unusable(self, model: str, reason: str) -> None:
        """One answer was paid for and could not be read, whether or not the question is asked again."""

    def embedded(self, model: str, texts: int, seconds: float, tokens: int, usd: float) -> None:
        """One request for this many texts was answered; a local model uses no tokens and costs nothing."""

    def embedding_failed(self, model: str, kind: str) -> None:
        """One request for embeddings ended with the JudgeError of this kind."""

    def embeddings_looked_up(self, model: str, hits: int, misses: int) -> None:
        """Texts were looked up in the cache of embeddings: `hits` were in it, `misses` were not."""


@dataclass(slots=True)
class Spend:
    """Tokens and USD of the judge calls of one metric on one sample, and what the cache saved.

    `app` and `metric` are charged. `asked` counts prompts by cache key (see `middleware.cache`).
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
"""The spending of the metric that runs now: `evaluation.evaluate` sets it, judges add to it. A call that several
metrics share is charged to the one that made it first, so that the sum over metrics is what was paid."""


@contextmanager
def itemised() -> Iterator[Spend]:
    """Measure what the calls within the block cost; the cost is added to the current `SPEND` at its end."""
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
