"""Decision judges: typed questions about a text, answered with probabilities, as OpenAI and TypeSafe offer them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from gaugeway.settings.bounds import token_count
from monitors.judges import Judge, Prompt
from monitors.judges.middleware import Wrapper
from monitors.judges.middleware.cache import fingerprint

YES = "yes"
Tokens: TypeAlias = tuple[int, int, int]
"""Input tokens, output tokens, and those of the input that were in the server's cache."""
_Asked: TypeAlias = tuple[str, str, list[str]]
_Given: TypeAlias = tuple[Any, Any, list[tuple[object, object]]]
_LOW, _HIGH = 0.95, 1.05
"""What the probabilities of the options that were offered may add up to; the rest is on options that were not."""


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
    """The answers by name of the question: the probability of each option, in order; `YES` alone is a statement's.

    `refused` questions were declined by the model, the answers to `unreadable` ones hold no probabilities: both are
    not among the `answers`.
    """

    answers: dict[str, dict[str, float]]
    refused: int = 0
    unreadable: int = 0


class Api:
    """`POST /decisions` of OpenAI, as in `openai.types` 3.57: at most 400 questions, answered in their order."""

    path, version, most = "/decisions", "decisions1", 400
    """`most` questions are asked in one request."""

    def __init__(self, model: str) -> None:
        self._model = model

    def body(self, prompt: Prompt, questions: Sequence[Question]) -> dict[str, Any]:
        """Return the request about the texts of a prompt."""
        texts = (("system", prompt.system), ("user", prompt.user))
        return {
            "model": self._model,
            "input": [{"type": "message", "role": role, "content": text} for role, text in texts],
            "questions": [self._written(question) for question in questions],
            # The same text is sent again for its further questions and when a request is repeated.
            "prompt_cache_key": fingerprint(prompt).hex(),
            "prompt_cache_options": {"ttl": "30m"},
        }

    def read(self, request: bytes, reply: bytes) -> Decided:
        """Return the answers in a reply. Raises ValueError when they cannot be matched with the questions."""
        try:
            # Python's reader takes NaN, which then spoils one answer and not the whole reply.
            asked, given = self._asked(json.loads(request)["questions"]), self._given(json.loads(reply)["answers"])
        except (TypeError, LookupError, AttributeError) as error:
            raise ValueError(f"the reply holds no answers: {type(error).__name__}") from None
        names = [name for name, _, _ in asked]
        if len(given) != len(asked):
            raise ValueError(f"expected {len(asked)} answers, got {len(given)}")
        if any(name is not None for name, _, _ in given):
            given = sorted(given, key=lambda answer: names.index(answer[0]))  # ValueError for any other name
            if [name for name, _, _ in given] != names:
                raise ValueError("two answers have the same name")
        answers, refused = {}, 0
        for (name, kind, options), (_, answered, pairs) in zip(asked, given, strict=True):
            refused += answered == "refusal"
            if answered == kind and (probabilities := _distribution(options, pairs)) is not None:
                answers[name] = probabilities
        return Decided(answers=answers, refused=refused, unreadable=len(asked) - len(answers) - refused)

    def tokens(self, reply: bytes, headers: Mapping[str, str]) -> Tokens:  # noqa: ARG002 - the port's shape
        """Return the tokens that the server counted."""
        return usage_in(reply)

    def _written(self, question: Question) -> dict[str, Any]:
        kind, key = ("score", "label") if question.ordered else ("choice", "value")
        known = question.meanings
        options = [{key: each} | ({"description": known[each]} if each in known else {}) for each in question.options]
        kind = kind if options else "predicate"
        written = {"type": kind, "name": question.name, "instructions": question.instructions}
        return written | ({"levels" if question.ordered else "choices": options} if options else {})

    def _asked(self, questions: Any) -> list[_Asked]:
        """Return name, type and options of the questions of a request."""
        levels = [(each["name"], each["type"], each.get("choices") or each.get("levels") or ()) for each in questions]
        return [(name, kind, [each.get("label", each.get("value")) for each in some]) for name, kind, some in levels]

    def _given(self, answers: Any) -> list[_Given]:
        """Return name, type and pairs of option and probability of the answers of a reply."""
        return [(each.get("name"), each.get("type"), _pairs(each)) for each in answers]


def _pairs(answer: Any) -> list[tuple[object, object]]:
    if not isinstance(listed := answer.get("probabilities"), list):
        return [(YES, answer.get("probability"))]
    return [(pair.get("label", pair.get("value")), pair.get("probability")) for pair in listed]


class SystemOne(Api):
    """`POST /systemone` of TypeSafe, as its clients publish it: questions and answers by name, levels by their index.

    How many questions a request may hold is not published; 64 are assumed.
    """

    path, version, most = "/systemone", "systemone1", 64

    def body(self, prompt: Prompt, questions: Sequence[Question]) -> dict[str, Any]:
        asked = {each.name: self._written(each) for each in questions}
        return {"model": self._model, "state": f"{prompt.system}\n\n{prompt.user}", "questions": asked}

    def _written(self, question: Question) -> dict[str, Any]:
        meanings = {option: question.meanings.get(option, option) for option in question.options}
        kind, criteria = ("score", [*meanings.values()]) if question.ordered else ("choice", meanings)
        written = {"type": kind if meanings else "noul", "instructions": question.instructions}
        return written | ({"criteria": criteria} if meanings else {})

    def _asked(self, questions: Any) -> list[_Asked]:
        asked = [(name, each["type"], list(each.get("criteria", ()))) for name, each in questions.items()]
        return [(name, kind, [*map(str, range(len(of)))] if kind == "score" else of) for name, kind, of in asked]

    def _given(self, answers: Any) -> list[_Given]:
        return [
            (name, each.get("type"), list((each.get("probabilities") or {YES: each.get("noul")}).items()))
            for name, each in answers.items()
        ]


APIS: dict[str, type[Api]] = {"decisions": Api, "systemone": SystemOne}


_SLACK = 1e-3


def probability(value: float) -> float:
    """Return a score as a probability; rounding may put it just outside [0, 1]. Raises ValueError for others.

    >>> probability(1.0000001)
    1.0
    """
    if not (math.isfinite(value) and -_SLACK <= value <= 1.0 + _SLACK):
        raise ValueError(f"score {value!r} is not in [0, 1]")
    return min(1.0, max(0.0, value))


def _distribution(options: Sequence[str], pairs: Sequence[tuple[object, object]]) -> dict[str, float] | None:
    """Return the probability of each option, which add up to 1; None for what is no distribution over them.

    >>> _distribution((), [("yes", 1.0000001)]), _distribution(("a", "b"), [("a", 0.75), ("b", 0.25)])
    ({'yes': 1.0}, {'a': 0.75, 'b': 0.25})
    >>> _distribution(("a", "b"), [("c", 0.9), ("a", 0.1)]), _distribution((), [("yes", float("nan"))])
    (None, None)
    """
    try:
        found = {option: probability(float(str(value))) for option, value in pairs if isinstance(value, int | float)}
    except (ValueError, TypeError):
        return None
    if len(found) < len(pairs) or not options:  # a value that is no number, or an option named twice
        return {YES: found[YES]} if not options and YES in found else None
    total = sum(found.get(option, 0.0) for option in options)
    return {each: found.get(each, 0.0) / total for each in options} if _LOW <= total <= _HIGH else None


def usage_in(reply: bytes) -> Tokens:
    """Return the tokens in the `usage` of a reply; 0 for what it does not say.

    >>> usage_in(b'{"usage": {"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}}}')
    (9, 2, 4)
    >>> usage_in(b'{"usage": {"prompt_tokens": 9}}'), usage_in(b"[]")
    ((9, 0, 0), (0, 0, 0))
    """
    try:
        found = json.loads(reply)["usage"]
        details = found.get("input_tokens_details") or {}
        read, wrote, cached = found.get("input_tokens"), found.get("output_tokens"), details.get("cached_tokens")
        read = found.get("prompt_tokens") if read is None else read
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return 0, 0, 0
    return token_count(read) or 0, token_count(wrote) or 0, token_count(cached) or 0


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

    async def decide(self, prompt: Prompt, questions: Sequence[Question]) -> dict[str, dict[str, float]]:
        """Ask about the texts of a prompt, in as many requests as the questions need; return the answers by name.

        Questions that were not answered are left out. One request follows the other, so that the server's cache holds
        the texts already. Raises JudgeError.
        """
        answers: dict[str, dict[str, float]] = {}
        for first in range(0, len(questions), self._api.most):
            body = self._api.body(prompt, questions[first : first + self._api.most])
            answers |= (await self.ask(replace(prompt, user=msgspec.json.encode(body).decode()), Decided)).answers
        return answers

    async def aclose(self) -> None:
        await super().aclose()
        if self.anchor is not None:
            await self.anchor.aclose()
