"""Pair scores of classifiers, as text-embeddings-inference (`/predict`) and vLLM (`/classify`) serve them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from monitors.judges.grounding.batching import PairSupports
from monitors.judges.grounding.http import decoded, probability, same_count, tokens_in
from monitors.judges.grounding.pairs import digest

SUPPORTED_LABELS = frozenset(
    {
        *("consistent", "entailment", "entailed", "supported", "support", "supports", "grounded", "factual", "yes"),
        *("label_1", "1"),
    }
)
"""Names, in lower case, under which models give the probability that the claim is supported."""
UNSUPPORTED_LABELS = frozenset(
    {
        *("hallucinated", "hallucination", "unsupported", "not_supported", "not supported", "inconsistent"),
        *("not_entailment", "ungrounded", "not_grounded", "non_factual", "no"),
    }
)
"""Names, in lower case, of the opposite: of two labels the other one then means supported."""
_BINARY = 2
_DOCUMENT, _CLAIM = "{document}", "{claim}"


class _Predicted(msgspec.Struct):
    label: str
    score: float


class _Inputs(msgspec.Struct):
    inputs: list[msgspec.Raw]


class Predict:
    """`POST /predict` of text-embeddings-inference: pairs in, a list of labels with their scores for each.

    `label` names the label that means supported; None: one of the usual names, of two labels the one beside a usual
    name for the opposite, or the only label of a model with one.
    Texts are not truncated: one that is too long is an error, and cut by the caller.
    """

    path = "/predict"

    def __init__(self, label: str | None = None) -> None:
        self._label = label
        self.version = digest("predict 1", label or "")

    def write(self, pairs: Sequence[tuple[str, str]]) -> bytes:
        """Return the body of the request."""
        return msgspec.json.encode({"inputs": pairs, "raw_scores": False, "truncate": False})

    def read(self, request: bytes, reply: bytes) -> PairSupports:
        """Return the probability of the label for each pair. Raises ValueError."""
        rows = decoded(reply, list[list[_Predicted]], "list of labels per pair")
        same_count(rows, len(msgspec.json.decode(request, type=_Inputs).inputs))
        return PairSupports(supports=[probability(self._score(row)) for row in rows])

    def tokens(self, reply: bytes, headers: Mapping[str, str]) -> int:  # noqa: ARG002 - the port's shape
        """Return the tokens in `x-compute-tokens`."""
        found = headers.get("x-compute-tokens", "")
        return int(found) if found.isascii() and found.isdigit() and len(found) <= 9 else 0  # noqa: PLR2004 - digits

    def _score(self, row: Sequence[_Predicted]) -> float:
        named = [predicted for predicted in row if self._means_supported(predicted.label)]
        if len(named) == 1:
            return named[0].score
        if self._label is None and len(row) == 1:
            return row[0].score
        others = [predicted for predicted in row if predicted.label.lower() not in UNSUPPORTED_LABELS]
        if self._label is None and not named and len(row) == _BINARY and len(others) == 1:
            return others[0].score
        given = ", ".join(predicted.label[:40] for predicted in row[:8])
        raise ValueError(f"set judge.grounding.label: which of the labels {given or '(none)'} means supported?")

    def _means_supported(self, label: str) -> bool:
        return label == self._label if self._label is not None else label.lower() in SUPPORTED_LABELS


class _Classified(msgspec.Struct):
    index: int
    probs: list[float]
    label: str | None = None


class _Reply(msgspec.Struct):
    data: list[_Classified]


class _Input(msgspec.Struct):
    input: list[msgspec.Raw]


class Classify:
    """`POST /classify` of vLLM: texts in, the probabilities of all classes for each.

    vLLM takes single texts: `template` makes one of a pair, with `{document}` and `{claim}`. `label` is the index of
    the class that means supported ("1", the default of models with two classes); the only class of a model with one.
    """

    path = "/classify"

    def __init__(self, model: str, template: str, label: str | None = None) -> None:
        if template.count(_DOCUMENT) != 1 or template.count(_CLAIM) != 1:
            raise ValueError("template: must contain {document} and {claim} exactly once")
        if label is not None and not (label.isascii() and label.isdigit()):
            raise ValueError('label: must be a class index such as "1" with api = "classify"')
        self._model = model
        self._template = template
        self._label = None if label is None else int(label)
        self.version = digest("classify 1", template, label or "")

    def write(self, pairs: Sequence[tuple[str, str]]) -> bytes:
        """Return the body of the request."""
        return msgspec.json.encode({"model": self._model, "input": [self._text(*pair) for pair in pairs]})

    def read(self, request: bytes, reply: bytes) -> PairSupports:
        """Return the probability of the class for each pair. Raises ValueError."""
        rows = decoded(reply, _Reply, "classification").data
        count = len(msgspec.json.decode(request, type=_Input).input)
        same_count(rows, count)
        found = {row.index: probability(self._score(row.probs)) for row in rows}
        if set(found) != set(range(count)):
            raise ValueError("the reply does not classify every text")
        return PairSupports(supports=[found[index] for index in range(count)])

    def tokens(self, reply: bytes, headers: Mapping[str, str]) -> int:  # noqa: ARG002 - the port's shape
        """Return `usage.prompt_tokens`."""
        return tokens_in(reply)

    def _text(self, document: str, claim: str) -> str:
        # Cut at the marks rather than replaced: a document may hold "{claim}" itself.
        before, after = self._template.split(_DOCUMENT)
        return document.join(part.replace(_CLAIM, claim) for part in (before, after))

    def _score(self, probs: Sequence[float]) -> float:
        index = self._label
        if index is None:
            if not 1 <= len(probs) <= _BINARY:
                raise ValueError(f"set judge.grounding.label: which of {len(probs)} classes means supported?")
            index = len(probs) - 1
        if index >= len(probs):
            raise ValueError(f"judge.grounding.label is {index}, and the model has {len(probs)} classes")
        return probs[index]
