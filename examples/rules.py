"""A rule-based judge and embeddings: no model, no key, deterministic. For trials, not for real judging.

A judge of your own is any object with `model` and `ask`. Use this one with

    gaugeway evaluate examples/data/finance.jsonl --judge examples.rules:RuleJudge
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitors.judges import JudgeError, Prompt

T = TypeVar("T")
_FENCE = re.compile(r'<data-([0-9]{9}) name="(\w+)"(?: (?:index|id)="(\d+)")?>\n(.*?)\n</data-\1>', re.DOTALL)
_SMALL_WORDS = "a an and are as at be but by can for from has have in is it of on or so that the to with"
_SMALL = frozenset(re.findall("[a-z]+", _SMALL_WORDS))
_SUPPORTED, _SAME_SUBJECT, _RELEVANT = 0.75, 0.55, 0.2


class RuleJudge:
    """Compares words: supports claims that occur almost verbatim in a context; paraphrases fool it."""

    model = "rules"

    async def ask(self, prompt: Prompt, answer_type: type[T]) -> T:
        """Answer like a model: a plain value converted to `answer_type`."""
        return msgspec.convert(answer(prompt.task, prompt.system, prompt.user), answer_type)


class WordVectors:
    """Hashed bag-of-words vectors with 256 dimensions: texts that share words are close to each other."""

    model = "words"

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """One row per text."""
        return np.array([vector(text) for text in texts])


def answer(task: str, system: str, user: str) -> dict[str, Any]:
    """The answer to one prompt. Raises JudgeError for a task without a rule."""
    if task not in _RULES:
        raise JudgeError("bad_request", f"no rule for the task {task!r}")
    return _RULES[task](_Data(system, user))


def vector(text: str) -> list[float]:
    """Hashed word counts; the first dimension is never 0, so that no vector is zero."""
    places = [0.01, *[0.0] * 255]
    for word in words(text):
        places[1 + zlib.crc32(word.encode()) % 255] += 1.0
    return places


def words(text: str) -> list[str]:
    """Content words without plural endings."""
    found = re.findall(r"[\w.]*\w", text.casefold())
    return [word if word[0].isdigit() else word.removesuffix("s") for word in found if word not in _SMALL]


def sentences(text: str) -> list[str]:
    """The sentences of a text."""
    return [one.strip() for one in re.split(r"(?<=[.!?])\s+", text) if words(one)]


class _Data:
    """The fenced parts of a prompt."""

    def __init__(self, system: str, user: str) -> None:
        self.system = system
        blocks = [(name, number, text) for _, name, number, text in _FENCE.findall(user)]
        self._single = {name: text for name, number, text in blocks if not number}
        self.contexts = {int(number): text for name, number, text in blocks if name == "context"}
        self.claims = {int(number): text for name, number, text in blocks if name == "claim"}

    def text(self, *names: str) -> str:
        """The first of these texts that is present."""
        return next((self._single[name] for name in names if name in self._single), "")

    def statements(self) -> list[str]:
        """The claims of the response."""
        return [one for one in sentences(self.text("response")) if len(words(one)) > 1 and not _evades(one)]


def _share(text: str, other: str) -> float:
    own = set(words(text))
    return len(own & set(words(other))) / len(own) if own else 0.0


def _numbers(text: str) -> set[str]:
    return {word for word in words(text) if any(letter.isdigit() for letter in word)}


def _evades(text: str) -> bool:
    return re.search(r"\bI do not know\b|\bcontext does not say\b", text, re.IGNORECASE) is not None


def _verdict(claim: str, contexts: dict[int, str]) -> dict[str, Any]:
    nearest = max(
        ((_share(claim, one), index, one) for index, text in contexts.items() for one in sentences(text)),
        default=(0.0, 0, ""),
    )
    share, index, quote = nearest
    if share >= _SUPPORTED and _numbers(claim) <= _numbers(quote):
        verdict = "supported"
    elif share >= _SAME_SUBJECT and _numbers(claim) - _numbers(quote):
        verdict = "contradicted"
    else:
        return {"verdict": "not_mentioned", "contexts": [], "quote": ""}
    return {"verdict": verdict, "contexts": [index], "quote": quote}


def _relevance(text: str, question: str) -> str:
    share = _share(question, text)
    return "relevant" if share >= _RELEVANT else "borderline" if share > 0.0 else "irrelevant"


def _claims_verdicts(data: _Data) -> dict[str, Any]:
    question = data.text("question")
    claims = [
        {"claim": one, **_verdict(one, data.contexts), "relevance": _relevance(one, question)}
        for one in data.statements()
    ]
    return {"noncommittal": not claims and _evades(data.text("response")), "claims": claims}


def _claims(data: _Data) -> dict[str, Any]:
    claims = data.statements()
    return {"noncommittal": not claims and _evades(data.text("response")), "claims": claims}


def _contradicted(data: _Data) -> dict[str, Any]:
    verdicts = [_verdict(claim, data.contexts) for claim in data.statements()]
    bad = {index for one in verdicts if one["verdict"] == "contradicted" for index in one["contexts"]}
    return {"contexts": [{"index": one, "contradicted": one in bad, "reason": ""} for one in data.contexts]}


def _statements(data: _Data) -> dict[str, Any]:
    question = data.text("question")
    found = {
        index: [{"statement": one, "relevant": _share(question, one) >= _RELEVANT} for one in sentences(text)]
        for index, text in data.contexts.items()
    }
    return {"contexts": [{"index": index, "statements": some} for index, some in found.items()]}


def _ratings(data: _Data) -> dict[str, Any]:
    question = data.text("question")
    shares = {index: _share(question, text) for index, text in data.contexts.items()}
    rated = {index: 2 if share >= _SAME_SUBJECT else 1 if share >= _RELEVANT else 0 for index, share in shares.items()}
    return {"contexts": [{"index": index, "rating": rating} for index, rating in rated.items()]}


def _useful(data: _Data) -> dict[str, Any]:
    wanted = data.text("answer", "response", "reference")
    useful = {index: _share(wanted, text) >= _SAME_SUBJECT for index, text in data.contexts.items()}
    return {"contexts": [{"index": index, "useful": one, "reason": ""} for index, one in useful.items()]}


def _entities(data: _Data) -> dict[str, Any]:
    named = dict.fromkeys(re.findall(r"\b(?:\d[\d,.]*\d|\d|[A-Z]{2,}|(?<!^)[A-Z]\w+)\b", data.text("reference")))
    everything = " ".join(data.contexts.values())
    return {"entities": [{"entity": one, "found_as": one if one in everything else ""} for one in named]}


def _questions(data: _Data) -> dict[str, Any]:
    said = (_claims(data)["claims"] or [data.text("response")])[0].rstrip(".!? ")
    asked = [f"Is it true that {said}?", f"What is known of this: {said}?", f"Why is it said that {said}?"]
    return {"noncommittal": _evades(data.text("response")), "questions": asked}


def _score(data: _Data) -> dict[str, Any]:
    scale = re.search(r"whole number from (\d+) to (\d+)", data.system)
    lowest, highest = (int(scale[1]), int(scale[2])) if scale else (1, 5)
    short = len(words(data.text("response"))) <= 20  # noqa: PLR2004 - the rule itself: short answers are good ones
    return {"score": highest if short else (lowest + highest) // 2}


_RULES: dict[str, Callable[[_Data], dict[str, Any]]] = {
    "claims_verdicts": _claims_verdicts,
    "claims": _claims,
    "claim_verdicts": lambda data: {
        "verdicts": [{"id": id_, **_verdict(claim, data.contexts)} for id_, claim in data.claims.items()]
    },
    "claim_relevance": lambda data: {
        "verdicts": [
            {"id": id_, "relevance": _relevance(claim, data.text("question"))} for id_, claim in data.claims.items()
        ]
    },
    "contradicted_contexts": _contradicted,
    "context_statements": _statements,
    "context_ratings": _ratings,
    "context_ratings_reworded": _ratings,
    "useful_contexts": _useful,
    "reference_entities": _entities,
    "generated_questions": _questions,
    "geval_steps": lambda _: {"steps": ["Read the response.", "Count its words.", "Shorter is better."]},
    "geval_form": _score,
    "geval_score": _score,
}
