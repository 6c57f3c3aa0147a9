"""A server that speaks the published contracts of verifiers: text-embeddings-inference, vLLM, LettuceDetect, MiniCheck.

A claim is supported where the document holds it verbatim; what is not is unsupported.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from tests.support.llm_server import LLMServer, Reply, Request

HIGH, LOW = 0.97, 0.04
MOST_TOKENS, MOST_PAIRS = 512, 32
TEMPLATE = "<pad> Determine if the hypothesis is true given the premise?\n\nPremise: {document}\n\nHypothesis: {claim}"
"""The prompt of HHEM-2.1."""
_HHEM = re.compile(r"<pad> .*?\n\nPremise: (.*)\n\nHypothesis: (.*)", re.DOTALL)
_SENTENCE = re.compile(r"[^.!?]+[.!?]")


def probability(document: str, claim: str) -> float:
    """How sure the model is that the document supports the claim."""
    return HIGH if claim.strip() in document else LOW


class VerifierServer(LLMServer):
    """Answers by path and, for chat, by the system text. `labels` are TEI's names of unsupported and supported."""

    def __init__(self, labels: tuple[str, str] = ("hallucinated", "consistent")) -> None:
        super().__init__(self._answer, api_path="")
        self._labels = labels

    def _answer(self, request: Request) -> Reply:
        answering = {
            "/predict": self._predict,
            "/classify": self._classify,
            "/v1/lettucedetect/spans": self._spans,
            "/v1/lettucedetect/token": self._tokens,
            "/v1/chat/completions": self._chat,
        }
        return answering[request.path](request.body)

    def _predict(self, body: dict[str, Any]) -> Reply:
        pairs = body["inputs"]
        if len(pairs) > MOST_PAIRS:
            return refused(413, f"batch size {len(pairs)} > maximum allowed batch size {MOST_PAIRS}")
        for pair in pairs:
            tokens = len(" ".join(pair).split())
            if tokens >= MOST_TOKENS and not body["truncate"]:
                text = f"Input validation error: `inputs` must have less than {MOST_TOKENS} tokens. Given: {tokens}"
                return refused(413, text)
        rows = [self._row(probability(*pair)) for pair in pairs]
        return Reply(body=json.dumps(rows).encode(), headers={"x-compute-tokens": str(100 * len(pairs))})

    def _row(self, chance: float) -> list[dict[str, Any]]:
        row = [{"label": self._labels[1], "score": chance}, {"label": self._labels[0], "score": 1.0 - chance}]
        return sorted(row, key=lambda one: -one["score"])

    def _classify(self, body: dict[str, Any]) -> Reply:
        data = []
        for index, text in enumerate(body["input"]):
            chance = probability(*_HHEM.fullmatch(text).groups())
            label = self._labels[chance >= 0.5]
            data.append({"index": index, "label": label, "probs": [1.0 - chance, chance], "num_classes": 2})
        usage = {"prompt_tokens": 50 * len(data), "total_tokens": 50 * len(data), "completion_tokens": 0}
        reply = {"id": "classify-1", "object": "list", "created": 0, "model": body["model"], "data": data}
        return Reply(body=json.dumps({**reply, "usage": usage}).encode())

    def _spans(self, body: dict[str, Any]) -> Reply:
        found = unsupported(body["contexts"], body["answer"])
        rows = [
            {"start": one, "end": end, "text": body["answer"][one:end], "hallucination_score": HIGH}
            for one, end in found
        ]
        return Reply(body=json.dumps({"predictions": rows}).encode())

    def _tokens(self, body: dict[str, Any]) -> Reply:
        answer, found = body["answer"], unsupported(body["contexts"], body["answer"])
        rows = [
            {
                "token": one[0],
                "hallucination_score": HIGH if any(start < one.end() <= end for start, end in found) else LOW,
            }
            for one in re.finditer(r"\s?\w+|[^\w\s]", answer)
        ]
        return Reply(body=json.dumps({"predictions": rows}).encode())

    def _chat(self, body: dict[str, Any]) -> Reply:
        system, user = (message["content"] for message in body["messages"])
        if system.startswith("Determine whether the provided claim"):
            document, claim = re.fullmatch(r"Document: (.*)\nClaim: (.*)", user, re.DOTALL).groups()
            return yes_or_no(probability(document, claim), body)
        prompt, _, answer = user.partition("\n\nAnswer to verify:\n")
        passages = re.findall(r"^passage \d+: (.*)$", prompt, re.MULTILINE)
        spans = [
            {"text": answer[start:end], "category": "contradiction", "subcategory": "numerical"}
            for start, end in unsupported(passages, answer)
        ]
        return Reply(content={"hallucinated_spans": spans}, tokens=(400, 40))


def unsupported(passages: Sequence[str], answer: str) -> list[tuple[int, int]]:
    """The sentences of the answer that no passage holds."""
    document = "\n".join(passages)
    places = [(one.start() + len(one[0]) - len(one[0].lstrip()), one.end()) for one in _SENTENCE.finditer(answer)]
    return [(start, end) for start, end in places if answer[start:end] not in document]


def yes_or_no(chance: float, body: dict[str, Any]) -> Reply:
    """A chat completion of one token with its alternatives, as vLLM writes it."""
    odds = {"Yes": chance * 0.9, "yes": chance * 0.1, "No": 1.0 - chance}
    top = [{"token": token, "logprob": math.log(max(odd, 1e-9)), "bytes": None} for token, odd in odds.items()]
    best = max(top, key=lambda one: one["logprob"])
    logprobs = {"content": [{**best, "top_logprobs": top}]} if body.get("logprobs") else None
    message = {"role": "assistant", "content": best["token"]}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": logprobs}
    usage = {"prompt_tokens": 200, "completion_tokens": 1, "total_tokens": 201}
    reply = {"id": "1", "object": "chat.completion", "created": 0, "model": body["model"], "choices": [choice]}
    return Reply(body=json.dumps({**reply, "usage": usage}).encode())


def refused(status: int, message: str, kind: str = "Validation") -> Reply:
    """An error as text-embeddings-inference writes it."""
    return Reply(status=status, body=json.dumps({"error": message, "error_type": kind}).encode())
