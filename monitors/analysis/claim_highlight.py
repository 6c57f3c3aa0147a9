"""Where in a response the judged claims are: the text in pieces, each with the verdict on it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from monitors.records import Evaluation, Score

Verdict: TypeAlias = Literal["supported", "contradicted", "not_mentioned"]

_WORST_FIRST: tuple[Verdict, ...] = ("contradicted", "not_mentioned", "supported")
OF_REFERENCE = frozenset({"context_recall"})
"""Metrics whose claims are those of the reference, not of the response."""

_SENTENCE = re.compile(r".+?(?:[.!?][\"'\u201d\u2019)\]]*(?=\s|\Z)|[\u3002\uff01\uff1f]|\n|\Z)\s*", re.DOTALL)
_PLACED = 0.4
"""The share of a claim's letter pairs that a sentence must have to be where the claim was made."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim with its verdict and the words of the contexts it was held against."""

    text: str
    verdict: Verdict
    quote: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the response; without claims, nobody judged it."""

    text: str
    verdict: Verdict | None = None
    claims: tuple[Claim, ...] = ()


def claims_in(evaluations: Iterable[Evaluation]) -> tuple[Claim, ...]:
    """The response's claims, from the first evaluation whose evidence has any.

    Beside claims of a judge, sentences with numbers or names that no context has: these are "not mentioned".
    """
    found = (_claims(one) for one in evaluations if one.metric not in OF_REFERENCE)
    return next((claims for claims in found if claims), ())


def claims_of_reference(evaluation: Evaluation) -> tuple[Claim, ...]:
    """The reference's claims, where the metric judges those."""
    return _claims(evaluation) if evaluation.metric in OF_REFERENCE else ()


def mark(response: str, claims: Sequence[Claim]) -> tuple[tuple[Piece, ...], tuple[Claim, ...]]:
    """The response in sentences, each with the claims it makes and the worst verdict on them; and claims of no place.

    A judge puts claims in words of its own: each belongs to the sentence that has most of its letter pairs.
    """
    sentences = [match[0] for match in _SENTENCE.finditer(response)]
    pairs = [_pairs(sentence) for sentence in sentences]
    placed: dict[int, list[Claim]] = {}
    nowhere: list[Claim] = []
    for claim in claims:
        wanted = _pairs(claim.text)
        shares = [len(wanted & one) / len(wanted) if wanted else 0.0 for one in pairs]
        best = max(range(len(shares)), key=shares.__getitem__, default=None)
        if best is None or shares[best] < _PLACED:
            nowhere.append(claim)
        else:
            placed.setdefault(best, []).append(claim)
    pieces = [Piece(text, _worst(placed.get(at, ())), tuple(placed.get(at, ()))) for at, text in enumerate(sentences)]
    return tuple(pieces), tuple(nowhere)


def _claims(evaluation: Evaluation) -> tuple[Claim, ...]:
    evidence = evaluation.outcome.evidence if isinstance(evaluation.outcome, Score) else ()
    return tuple(claim for item in evidence if (claim := _claim(item)) is not None)


def _claim(item: Mapping[str, Any]) -> Claim | None:
    if item.get("verdict") in _WORST_FIRST and isinstance(item.get("claim"), str):
        return Claim(item["claim"], item["verdict"], str(item.get("quote") or ""))
    if isinstance(item.get("sentence"), str):
        missing = [str(one) for key, some in item.items() if key.startswith("unsupported_") for one in _listed(some)]
        return Claim(item["sentence"], "not_mentioned", ", ".join(missing)) if missing else None
    return None


def _listed(some: Any) -> list[Any]:
    return list(some) if isinstance(some, (list, tuple)) else []


def _worst(claims: Sequence[Claim]) -> Verdict | None:
    verdicts = {claim.verdict for claim in claims}
    return next((verdict for verdict in _WORST_FIRST if verdict in verdicts), None)


def _pairs(text: str) -> set[str]:
    """The pairs of neighbouring letters, in any script."""
    letters = [letter for letter in text.casefold() if letter.isalnum()]
    return {one + other for one, other in pairwise(letters)} or set(letters)
