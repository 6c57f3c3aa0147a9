"""LettuceDetect: the unsupported spans of an answer, from its generative model or from its web API."""

from __future__ import annotations

import re
from abc import abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Literal, TypeAlias

import msgspec

from gaugeway.data_files import table
from monitors.judges import Judge, JudgeError, Prompt
from monitors.judges.decisions import probability
from monitors.judges.grounding import Material, Span, Support
from monitors.judges.grounding.documents import TASK, Document, DocumentVerifier, digest
from monitors.judges.grounding.http import Protocolled, decoded

MAX_SPANS = 1_000
"""Spans of one reply; a reply with more is unreadable."""

Category: TypeAlias = Literal["contradiction", "fabricated_reference", "unsupported_addition"]
Subcategory: TypeAlias = Literal[
    "entity",
    "temporal",
    "numerical",
    "value",
    "relational",
    "identifier",
    "section",
    "attribute",
    "claim",
    "behavior",
    "elaboration",
    "subjective",
    "unspecified",
]

_PROMPTS: Mapping[str, str] = table("monitors.judges.grounding", "lettucedetect.toml")
SYSTEM, _ASKED, _SUMMARISED = (_PROMPTS[name] for name in ("system", "asked", "summarised"))
_ANSWER = "\n\nAnswer to verify:\n"
_GAP = 16
"""Characters of an answer that may lie between two tokens."""


class QuotedSpan(msgspec.Struct, frozen=True):
    """A span that the generative model quotes from the answer."""

    text: str
    category: Category
    subcategory: Subcategory


class QuotedSpans(msgspec.Struct, frozen=True):
    """The reply of the generative model."""

    hallucinated_spans: list[QuotedSpan]


class Spans(msgspec.Struct, frozen=True):
    """Places in an answer as (start, end, probability of being unsupported), and their (category, subcategory)."""

    spans: list[tuple[int, int, float]]
    types: list[tuple[str, str]] = []


class SpanVerifier(DocumentVerifier):
    """A verifier that gets the unsupported spans of a whole answer for each document.

    A sentence's support is 1 minus the greatest score of a span in it.
    """

    async def _checked(self, material: Material, document: Document) -> tuple[Support, ...]:
        return tuple(_supports(material.sentences, document, await self._spans(material, document)))

    @abstractmethod
    async def _spans(self, material: Material, document: Document) -> list[Span]:
        """Return the unsupported spans of the answer, beside one document. Raises JudgeError."""


class GenerativeDetector(SpanVerifier):
    """The generative v2 model behind a chat endpoint: quotes spans, without probabilities, so scores are 0 or 1.

    The prompt is the model's own and has no fence: see the threat model. A quote that is not in the answer is left
    out, as in LettuceDetect itself; a reply of nothing but such quotes is unreadable.
    """

    def __init__(self, judge: Judge, *, most: int, ask_again: bool = True) -> None:
        super().__init__(judge, version=digest("lettucedetect chat 1", SYSTEM, _ASKED, _SUMMARISED, _ANSWER), most=most)
        self._ask_again = ask_again

    async def _spans(self, material: Material, document: Document) -> list[Span]:
        user = f"{context_of(material.question, document.texts)}{_ANSWER}{material.answer}"
        prompt = Prompt(
            task=TASK, version=self._version, system=SYSTEM, user=user, frozen=True, ask_again=self._ask_again
        )
        if len(quoted := (await self._judge.ask(prompt, QuotedSpans)).hallucinated_spans) > MAX_SPANS:
            raise JudgeError("unreadable", f"{len(quoted)} spans in one answer")
        placed = place(material.answer, quoted)
        if quoted and not placed:
            raise JudgeError("unreadable", "no quoted span is in the answer")
        return placed


class DetectorApi(SpanVerifier):
    """LettuceDetect's web API, with spans or tokens of an encoder and their probabilities."""

    async def _spans(self, material: Material, document: Document) -> list[Span]:
        body = {"contexts": document.texts, "question": material.question, "answer": material.answer}
        user = msgspec.json.encode(body).decode()
        prompt = Prompt(task=TASK, version=self._version, system="", user=user, frozen=True)
        found = await self._judge.ask(prompt, Spans)
        types = found.types or [("", "")] * len(found.spans)
        return [Span(*place, *kind) for place, kind in zip(found.spans, types, strict=True)]


def context_of(question: str, passages: Sequence[str]) -> str:
    """Return what stands before the answer: the question and the numbered passages, in the trained wording.

    Not by `str.format` on the whole: braces in the texts stay what they are.
    """
    numbered = "\n".join(f"passage {number}: {text}" for number, text in enumerate(passages, 1))
    if not question.strip():
        return _SUMMARISED.format(passages=numbered)
    return _ASKED.format(question=question, count=len(passages), passages=numbered)


def place(answer: str, quoted: Iterable[QuotedSpan]) -> list[Span]:
    """Find each quote in the answer: the first place that no other quote took, by words where not verbatim.

    >>> [(at.start, at.end) for at in place("Rome fell. Rome fell.", [QuotedSpan("Rome  fell", "contradiction",
    ...     "entity")] * 3)]
    [(0, 9), (11, 20)]
    """
    taken: list[tuple[int, int]] = []
    found = []
    for span in quoted:
        if not (words := span.text.split()):
            continue
        for match in re.compile(r"\s+".join(map(re.escape, words)), re.IGNORECASE).finditer(answer):
            start, end = match.span()
            if not any(start < other_end and other_start < end for other_start, other_end in taken):
                taken.append((start, end))
                found.append(Span(start, end, 1.0, span.category, span.subcategory))
                break
    return found


def _supports(sentences: Sequence[tuple[int, int]], document: Document, spans: Iterable[Span]) -> list[Support]:
    """Return the support of each sentence; the spans do not overlap."""
    ordered = sorted(spans, key=lambda span: span.start)
    starts, ends = [span.start for span in ordered], [span.end for span in ordered]
    rows = []
    for start, end in sentences:
        inside = tuple(ordered[bisect_right(ends, start) : bisect_left(starts, end)])
        worst = max((span.score for span in inside), default=0.0)
        rows.append(Support(score=1.0 - worst, passages=document.indexes, spans=inside))
    return rows


_KIND = msgspec.Meta(max_length=64)
"""The API of LettuceDetect 0.2.3 leaves out the types that its detectors find; a server may add them."""


class _Detected(msgspec.Struct):
    start: int
    end: int
    hallucination_score: float
    category: Annotated[str, _KIND] = ""
    subcategory: Annotated[str, _KIND] = ""


class _DetectedReply(msgspec.Struct):
    predictions: list[_Detected]


class _Scored(msgspec.Struct):
    token: str
    hallucination_score: float


class _ScoredReply(msgspec.Struct):
    predictions: list[_Scored]


class _Request(msgspec.Struct):
    answer: str


class SpansApi(Protocolled):
    """`POST /v1/lettucedetect/spans`: places in the answer with the probability of being unsupported."""

    path = "/v1/lettucedetect/spans"
    version = digest("lettucedetect spans 1")

    def read(self, request: bytes, reply: bytes) -> Spans:
        """Return the spans. Raises ValueError for places outside the answer."""
        found = decoded(reply, _DetectedReply, "list of spans").predictions
        length = len(msgspec.json.decode(request, type=_Request).answer)
        if len(found) > MAX_SPANS or not all(0 <= detected.start < detected.end <= length for detected in found):
            raise ValueError("the reply has spans outside the answer, or too many")
        found.sort(key=lambda detected: detected.start)
        if any(detected.end > other.start for detected, other in pairwise(found)):
            raise ValueError("the spans of the reply overlap")
        return Spans(
            spans=[(detected.start, detected.end, probability(detected.hallucination_score)) for detected in found],
            types=[(detected.category, detected.subcategory) for detected in found],
        )


class TokensApi(Protocolled):
    """`POST /v1/lettucedetect/token`: the tokens of the answer with the probability of being unsupported.

    Each is a span: a sentence's support is 1 minus the greatest probability in it.
    """

    path = "/v1/lettucedetect/token"
    version = digest("lettucedetect token 1")

    def read(self, request: bytes, reply: bytes) -> Spans:
        """Return the spans. Raises ValueError when the tokens are not those of the answer."""
        found = decoded(reply, _ScoredReply, "list of tokens").predictions
        answer = msgspec.json.decode(request, type=_Request).answer
        places = token_places(answer, [scored.token for scored in found])
        scores = [probability(scored.hallucination_score) for scored in found]
        placed = [(*at, score) for at, score in zip(places, scores, strict=True) if at[0] < at[1]]
        if not placed or len(placed) * 2 < len(found):
            raise ValueError("the tokens of the reply are not those of the answer")
        return Spans(spans=placed)


def token_places(answer: str, tokens: Sequence[str]) -> list[tuple[int, int]]:
    """Find each token in the answer, after the one before; part of a character, which is no text, has no length.

    >>> token_places("A caf\u00e9.", ["A", " caf\u00e9", "\ufffd", "."])
    [(0, 1), (2, 6), (6, 6), (6, 7)]
    """
    places, at = [], 0
    for token in tokens:
        text = token.strip()
        # Not far ahead: a token that is not in the answer must not swallow the rest of it.
        start = answer.find(text, at, at + len(text) + _GAP) if text else -1
        if start < 0:
            places.append((at, at))
        else:
            at = start + len(text)
            places.append((start, at))
    return places
