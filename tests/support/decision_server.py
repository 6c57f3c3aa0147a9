"""A server of typed questions, scripted from the types that `openai` 3.57 and TypeSafe's clients publish."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from openai.types.decision import Decision
from openai.types.decision_create_params import InputUnionMember1, Question
from pydantic import TypeAdapter

from tests.support.llm_server import LLMServer, Reply, Request, error

MOST_QUESTIONS = 400
_FENCED = re.compile(r'<data-([0-9]{9}) name="(\w+)"(?: (?:index|id)="(\d+)")?>\n(.*?)\n</data-\1>', re.DOTALL)
_QUESTION, _MESSAGE = TypeAdapter(Question), TypeAdapter(InputUnionMember1)
Texts = dict[str, dict[int, str]]
Decide = Callable[[str, list[str], Texts], Any]
"""Gets a question's name, its options (none: a statement) and the texts by kind and number.

Returns the probability of the statement, or of each option by name; None for a refusal; a dict with "raw" for an answer
of any other shape.
"""


def texts_in(text: str) -> Texts:
    """Return the fenced texts of a request by kind and number."""
    found: Texts = {}
    for _, kind, number, content in _FENCED.findall(text):
        found.setdefault(kind, {})[int(number or 0)] = content
    return found


def verbatim(name: str, options: list[str], texts: Texts) -> Any:
    """Decide by what stands in the texts.

    A sentence is supported where a passage holds it word by word; one with "not" contradicts the first passage. A
    passage is relevant, and used, if it holds the last word of the question. Other choices take the last option.
    """
    passages, sentences = texts.get("context", {}), texts.get("sentence", {})
    kind = name.rstrip("0123456789")
    number = int(name.removeprefix(kind) or 0)
    if kind == "s":
        supported = any(sentences[number] in passage for passage in passages.values())
        verdict = "supported" if supported else "contradicted" if " not " in sentences[number] else "not_mentioned"
        return {option: float(option == verdict) for option in options}
    if kind == "contradicted":
        return float(number == 0 and any(" not " in sentence for sentence in sentences.values()))
    if kind in ("relevant", "used"):
        return float(texts["question"][0].split()[-1].strip("?") in passages[number])
    if options:
        return {option: float(place == len(options) - 1) for place, option in enumerate(options)}
    return float(name in ("addresses", "commits"))


class DecisionServer(LLMServer):
    """Answers `/v1/decisions` and `/v1/systemone` by `decide`, after the `replies` given, in turn.

    A request that the published types do not allow is refused with 400 by its reason.
    """

    def __init__(
        self, decide: Decide = verbatim, *replies: Reply, tokens: tuple[int, int, int] = (2600, 40, 0)
    ) -> None:
        super().__init__(*replies, self._decided)
        self._decide = decide
        self._tokens = tokens
        self.valid = True
        """Whether all answers have had the published types; those that had are checked against them."""
        self.reshape: Callable[[Any], Any] = lambda answers: answers
        """Changes the list (or mapping) of answers before it is sent."""

    def _decided(self, request: Request) -> Reply:
        if request.path.endswith("/systemone"):
            return self._systemone(request.body)
        body = request.body
        try:
            questions = [_QUESTION.validate_python(question) for question in body["questions"]]
            texts = texts_in("\n".join(_MESSAGE.validate_python(message)["content"] for message in body["input"]))
        except (ValueError, KeyError) as problem:
            return error(400, str(problem))
        if not 1 <= len(questions) <= MOST_QUESTIONS or set(body) > {
            *("model", "input", "questions", "prompt_cache_key", "prompt_cache_options", "safety_identifier")
        }:
            return error(400, f"{len(questions)} questions")
        answers = [self._openai(question, texts) for question in body["questions"]]
        tokens, output, cached = self._tokens
        usage = {
            "input_tokens": tokens,
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
            "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": tokens + output,
        }
        reply = {"answers": self.reshape(answers), "model": body["model"], "usage": usage}
        if self.valid and reply["answers"] is answers:
            Decision.model_validate(reply)
        return Reply(body=json.dumps(reply).encode())

    def _openai(self, question: dict[str, Any], texts: Texts) -> dict[str, Any]:
        kind, name = question["type"], question["name"]
        key = {"predicate": "", "choice": "choices", "score": "levels"}[kind]
        label = "value" if kind == "choice" else "label"
        options = [option[label] for option in question.get(key, [])]
        found = self._decide(name, options, texts)
        if isinstance(found, dict) and "raw" in found:
            self.valid = False
            return {"name": name, "type": kind, **found["raw"]}
        if found is None:
            return {"name": name, "type": "refusal"}
        if kind == "predicate":
            return {"name": name, "type": kind, "probability": found}
        pairs = [{label: option, "probability": found[option]} for option in options]
        best = max(range(len(options)), key=lambda place: found[options[place]])
        if kind == "choice":
            return {"name": name, "type": kind, "choice": options[best], "confidence": 1.0, "probabilities": pairs}
        levels = [pair | {"value": place} for place, pair in enumerate(pairs)]
        mean = sum(place * pair["probability"] for place, pair in enumerate(levels))
        return {"name": name, "type": kind, "score": mean, "confidence": 1.0, "probabilities": levels}

    def _systemone(self, body: dict[str, Any]) -> Reply:
        texts, answers = texts_in(body["state"]), {}
        for name, question in body["questions"].items():
            criteria = question.get("criteria", [])
            levels = [str(place) for place in range(len(criteria))]
            options = levels if question["type"] == "score" else list(criteria)
            found = self._decide(name, options, texts)
            answers[name] = {"type": question["type"]}
            if question["type"] == "noul":
                answers[name]["noul"] = found
            else:
                answers[name] |= {"confidence": 1.0, "probabilities": found}
        usage = {"input_tokens": self._tokens[0], "output_tokens": self._tokens[1]}
        reply = {"model": body["model"], "answers": self.reshape(answers), "usage": usage}
        return Reply(body=json.dumps(reply).encode())


def llm_verbatim(request: Request) -> Reply:
    """Answer as an LLM judge that sees the same truth as `verbatim`."""
    texts = texts_in(request.text)
    passages = texts.get("context", {})
    names = [f"s{place}" for place in range(20)]
    key = texts["question"][0].split()[-1].strip("?")
    if "statements" in request.body["response_format"]["json_schema"]["name"]:
        rows = [
            {"index": index, "statements": [{"statement": text, "relevant": key in text}]}
            for index, text in passages.items()
        ]
        return Reply(content={"contexts": rows})
    response = texts["response"][0]
    sentences = [text + "." for text in response.removesuffix(".").split(". ")]
    texts["sentence"] = dict(enumerate(sentences))
    options = ["supported", "contradicted", "not_mentioned"]
    claims = []
    for name, sentence in zip(names, sentences, strict=False):
        verdicts = verbatim(name, options, texts)
        verdict = max(verdicts, key=verdicts.get)
        denied = verdict == "contradicted"
        contexts = [0] if denied else [i for i, text in passages.items() if sentence in text]
        quote = passages[0] if denied else sentence
        claims.append(
            {"claim": sentence, "verdict": verdict, "relevance": "relevant", "contexts": contexts, "quote": quote}
        )
    return Reply(content={"noncommittal": False, "claims": claims})
