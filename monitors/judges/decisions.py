"""Decision judges: typed questions about a text, answered with probabilities, as OpenAI and TypeSafe offer them."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, TypeAlias

import httpx
import msgspec

from gaugeway.settings.bounds import token_count
from monitors.judges import Judge, Prompt
from monitors.judges.grounding.http import JsonEndpoint, probability
from monitors.judges.middleware import Wrapper
from monitors.judges.middleware.cache import fingerprint

YES = "yes"
Kind: TypeAlias = Literal["decisions", "systemone"]
Pairs: TypeAlias = list[tuple[object, object]]
_LEAST_TOTAL, _MOST_TOTAL = 0.5, 1.01
"""The probabilities of the options that were offered add up to about 1; less is on options that were not offered."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question about the text. Without `options` it is a statement that is true or not.

    `options` are what to choose from, or the `ordered` levels of a scale, lowest first; `meanings` explains some.
    """

    name: str
    instructions: str
    options: tuple[str, ...] = ()
    ordered: bool = False
    meanings: Mapping[str, str] = {}


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """The answers by name of the question: the probability of each option; `YES` alone is that of a statement.

    `refused` questions were declined by the model, the answers to `unreadable` ones hold no probabilities: both are
    not among the `answers`.
    """

    answers: dict[str, dict[str, float]]
    refused: int = 0
    unreadable: int = 0


class Api(ABC):
    """How questions and answers are written on the wire."""

    path: ClassVar[str]
    version: ClassVar[str]
    most: ClassVar[int]
    """Questions of one request."""

    def __init__(self, model: str) -> None:
        self._model = model

    @abstractmethod
    def body(self, prompt: Prompt, questions: Sequence[Question]) -> dict[str, Any]:
        """Return the request about the texts of a prompt."""

    @abstractmethod
    def _matched(self, asked: Any, answers: Any) -> Iterable[tuple[str, tuple[str, ...], Any, Pairs]]:
        """Yield name and options of each question, its answer, and what the answer says as (option, probability).

        Raises ValueError where it is not certain which answer belongs to which question.
        """

    def read(self, request: bytes, reply: bytes) -> Decided:
        """Return the answers in a reply. Raises ValueError when they cannot be matched with the questions."""
        try:
            found = json.loads(reply)  # NaN, which is no JSON, spoils one answer, not the reply
            if not isinstance(found, dict):
                raise ValueError("the reply is no JSON object")  # noqa: TRY004 - the caller expects it
            matched = list(self._matched(json.loads(request)["questions"], found.get("answers")))
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"the reply holds no answers: {type(error).__name__}") from None
        answers, refused = {}, 0
        for name, options, answer, pairs in matched:
            if isinstance(answer, dict) and answer.get("type") == "refusal":
                refused += 1
            elif (probabilities := _distribution(options, pairs)) is not None:
                answers[name] = probabilities
        return Decided(answers=answers, refused=refused, unreadable=len(matched) - len(answers) - refused)

    def tokens(self, reply: bytes, headers: Mapping[str, str]) -> int:  # noqa: ARG002 - the port's shape
        """Return the input tokens that the server counted."""
        return usage(reply)[0]


def _distribution(options: tuple[str, ...], pairs: Pairs) -> dict[str, float] | None:
    """Return the probability of each option, which add up to 1; None for what is no distribution over them.

    >>> _distribution((), [("yes", 1.0000001)]), _distribution(("a", "b"), [("a", 0.75), ("b", 0.25)])
    ({'yes': 1.0}, {'a': 0.75, 'b': 0.25})
    >>> _distribution(("a", "b"), [("c", 0.9), ("a", 0.1)]), _distribution((), [("yes", float("nan"))])
    (None, None)
    """
    found: dict[object, float] = {}
    for option, value in pairs:
        if option in found or isinstance(value, bool) or not isinstance(value, int | float):
            return None
        try:
            found[option] = probability(value)
        except (ValueError, OverflowError):
            return None
    if not options:
        return {YES: found[YES]} if YES in found else None
    total = sum(found.get(option, 0.0) for option in options)
    if not _LEAST_TOTAL <= total <= _MOST_TOTAL:
        return None
    return {option: found.get(option, 0.0) / total for option in options}


class OpenAIDecisions(Api):
    """`POST /decisions`, as in `openai.types` 3.57: at most 400 questions, answered in their order."""

    path, version, most = "/decisions", "decisions 1", 400

    def body(self, prompt: Prompt, questions: Sequence[Question]) -> dict[str, Any]:
        texts = (("system", prompt.system), ("user", prompt.user))
        return {
            "model": self._model,
            "input": [{"type": "message", "role": role, "content": text} for role, text in texts],
            "questions": [_openai_question(question) for question in questions],
            # The same text is sent again for its further questions and when a request is repeated.
            "prompt_cache_key": fingerprint(prompt).hex(),
            "prompt_cache_options": {"ttl": "30m"},
        }

    def _matched(self, asked: Any, answers: Any) -> Iterable[tuple[str, tuple[str, ...], Any, Pairs]]:
        if len(answers) != len(asked):
            raise ValueError(f"expected {len(asked)} answers, got {len(answers)}")
        names = [answer.get("name") for answer in answers]
        by_name = dict(zip(names, answers, strict=True)) if any(name is not None for name in names) else None
        if by_name is not None and set(by_name) != {question["name"] for question in asked}:
            raise ValueError("the answers have other names than the questions")
        for place, question in enumerate(asked):
            answer = answers[place] if by_name is None else by_name[question["name"]]
            options = tuple(choice["value"] for choice in question.get("choices", ()))
            options += tuple(level["label"] for level in question.get("levels", ()))
            yield question["name"], options, answer, _openai_pairs(answer, question["type"])


def _openai_question(question: Question) -> dict[str, Any]:
    kind = "score" if question.ordered else "choice" if question.options else "predicate"
    key = "label" if question.ordered else "value"
    options = [
        {key: option} | ({"description": question.meanings[option]} if option in question.meanings else {})
        for option in question.options
    ]
    written = {"type": kind, "name": question.name, "instructions": question.instructions}
    return written | ({"levels" if question.ordered else "choices": options} if options else {})


def _openai_pairs(answer: Any, kind: str) -> Pairs:
    if answer.get("type") != kind:
        return []
    if kind == "predicate":
        return [(YES, answer.get("probability"))]
    key = "label" if kind == "score" else "value"
    listed = answer.get("probabilities")
    return [(each.get(key), each.get("probability")) for each in listed] if isinstance(listed, list) else []


class SystemOne(Api):
    """`POST /systemone` of TypeSafe, as its clients publish it: questions and answers by name, levels by their index.

    How many questions a request may hold is not published; 64 are assumed.
    """

    path, version, most = "/systemone", "systemone 1", 64

    def body(self, prompt: Prompt, questions: Sequence[Question]) -> dict[str, Any]:
        state = f"{prompt.system}\n\n{prompt.user}"
        return {"model": self._model, "state": state, "questions": {each.name: _typed(each) for each in questions}}

    def _matched(self, asked: Any, answers: Any) -> Iterable[tuple[str, tuple[str, ...], Any, Pairs]]:
        if set(answers) != set(asked):
            raise ValueError("the answers have other names than the questions")
        for name, question in asked.items():
            answer, criteria, kind = answers[name], question.get("criteria", ()), question["type"]
            pairs: Pairs = []
            if answer.get("type") == kind:
                shares = answer.get("probabilities")
                pairs = [(YES, answer.get("noul"))] if kind == "noul" else list(shares.items())
            if kind != "score":
                yield name, tuple(criteria), answer, pairs
            else:
                options = tuple(f"{place}" for place in range(len(criteria)))
                yield name, options, answer, pairs


def _typed(question: Question) -> dict[str, Any]:
    kind = "score" if question.ordered else "choice" if question.options else "noul"
    written: dict[str, Any] = {"type": kind, "instructions": question.instructions}
    if question.ordered:
        labels = [f"{option}: {meaning}" for option in question.options if (meaning := question.meanings.get(option))]
        written["criteria"] = labels if len(labels) == len(question.options) else list(question.options)
    elif question.options:
        written["criteria"] = {option: question.meanings.get(option, option) for option in question.options}
    return written


APIS: dict[Kind, type[Api]] = {"decisions": OpenAIDecisions, "systemone": SystemOne}


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Details | None = None


def usage(reply: bytes) -> tuple[int, int, int]:
    """Return the input, output and cached input tokens of a reply; 0 for what it does not say.

    >>> usage(b'{"usage": {"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}}}')
    (9, 2, 4)
    """
    try:
        found = msgspec.convert(json.loads(reply).get("usage"), _Usage | None) or _Usage()
    except (ValueError, AttributeError, RecursionError):
        return 0, 0, 0
    details = found.input_tokens_details
    counts = found.input_tokens, found.output_tokens, details and details.cached_tokens
    return tuple(token_count(count) or 0 for count in counts)  # type: ignore[return-value]  # three of them


class DecisionEndpoint(JsonEndpoint):
    """A decisions endpoint: counts cached tokens, and the questions that were not answered."""

    def _count(self, seconds: float, reply: httpx.Response) -> None:
        tokens_in, tokens_out, cached = usage(reply.content)
        self._meter.count(seconds, tokens_in, tokens_out, cached_tokens=cached)

    async def _ask(self, request: bytes) -> Any:
        found = await super()._ask(request)
        for reason, count in (("refused_question", found.refused), ("unreadable_answer", found.unreadable)):
            for _ in range(count):
                self._observer.unusable(self._model, reason)
        return found


class DecisionJudge(Wrapper):
    """A decisions endpoint in its middleware, as metrics ask it.

    `anchor` is the LLM judge that answers what cannot be asked as a question; with `tiers` it judges a sample of the
    traffic by every metric. With `verdicts` metrics turn probabilities into verdicts.
    """

    def __init__(
        self, judge: Judge, api: Api, *, anchor: Judge | None = None, tiers: bool = False, verdicts: bool = False
    ) -> None:
        super().__init__(judge)
        self._api = api
        self.anchor = anchor
        self.tiers = tiers
        self.verdicts = verdicts
        self.version = api.version

    async def decide(self, prompt: Prompt, questions: Sequence[Question]) -> Decided:
        """Ask about the texts of a prompt, in as many requests as the questions need. Raises JudgeError.

        One request follows the other, so that the server's cache holds the texts already.
        """
        answers: dict[str, dict[str, float]] = {}
        refused = unreadable = 0
        for first in range(0, len(questions), self._api.most):
            body = self._api.body(prompt, questions[first : first + self._api.most])
            found = await self.ask(replace(prompt, user=msgspec.json.encode(body).decode()), Decided)
            answers |= found.answers
            refused, unreadable = refused + found.refused, unreadable + found.unreadable
        return Decided(answers=answers, refused=refused, unreadable=unreadable)

    async def aclose(self) -> None:
        await super().aclose()
        if self.anchor is not None:
            await self.anchor.aclose()
