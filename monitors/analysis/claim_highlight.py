"""Highlighting of judged claims in a text: its sentences, each with a verdict."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from gaugeway.records import Evaluation, Score

Verdict: TypeAlias = Literal["supported", "contradicted", "not_mentioned"]

_WORST_FIRST: tuple[Verdict, ...] = ("contradicted", "not_mentioned", "supported")
OF_REFERENCE = frozenset({"context_recall"})
"""Metrics whose claims are from the reference, not from the response."""

_SENTENCE = re.compile(r".+?(?:[.!?][\"'\u201d\u2019)\]]*(?=\s|\Z)|[\u3002\uff01\uff1f]|\n|\Z)\s*", re.DOTALL)
_PLACED = 0.4
"""Minimum share of a claim's letter pairs in a sentence for a match."""


class Claim(Struct, frozen=True):
    """A claim with its verdict and the quote from the contexts, or what of the claim is in none of them."""

    text: str
    verdict: Verdict
    quote: str = ""


class Piece(Struct, frozen=True):
    """A sentence of the text; without claims it was not judged."""

    text: str
    verdict: Verdict | None = None
    claims: tuple[Claim, ...] = ()


def claims_in(evaluations: Iterable[Evaluation]) -> tuple[Claim, ...]:
    """Return the response's claims from the first evaluation that has any.

    Sentences with numbers or names found in no context count as claims that are "not_mentioned".
    """
    found = (_claims(evaluation) for evaluation in evaluations if evaluation.metric not in OF_REFERENCE)
    return next((claims for claims in found if claims), ())


def claims_of_reference(evaluation: Evaluation) -> tuple[Claim, ...]:
    """Return the reference's claims, if the metric judges those."""
    return _claims(evaluation) if evaluation.metric in OF_REFERENCE else ()


def mark(response: str, claims: Sequence[Claim]) -> tuple[tuple[Piece, ...], tuple[Claim, ...]]:
    """Split a text into sentences with their claims and worst verdict; also return the claims that match no sentence.

    A judge paraphrases claims, so each is assigned to the sentence with most of its letter pairs.
    """
    sentences = [match[0] for match in _SENTENCE.finditer(response)]
    pairs = [_pairs(sentence) for sentence in sentences]
    placed: dict[int, list[Claim]] = {}
    nowhere: list[Claim] = []
    for claim in claims:
        wanted = _pairs(claim.text)
        shares = [len(wanted & bigrams) / len(wanted) if wanted else 0.0 for bigrams in pairs]
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
        return Claim(item["claim"], item["verdict"], str(item.get("quote") or "") or _unsupported(item))
    if isinstance(item.get("sentence"), str):
        missing = [
            str(unsupported)
            for key, some in item.items()
            if key.startswith("unsupported_")
            for unsupported in _listed(some)
        ]
        return Claim(item["sentence"], "not_mentioned", ", ".join(missing)) if missing else None
    return None


def _unsupported(item: Mapping[str, Any]) -> str:
    """Return the unsupported spans that a verifier found in a claim, with their types where it gives them."""
    spans = [span for span in _listed(item.get("spans")) if isinstance(span, Mapping)]
    kinds = [": ".join(str(kind) for key in ("category", "subcategory") if (kind := span.get(key))) for span in spans]
    typed = zip(spans, (f" ({kind})".replace("_", " ") if kind else "" for kind in kinds), strict=True)
    return ", ".join(f"{span['text']}{kind}" for span, kind in typed if isinstance(span.get("text"), str))


def _listed(some: Any) -> list[Any]:
    return list(some) if isinstance(some, (list, tuple)) else []


def _worst(claims: Sequence[Claim]) -> Verdict | None:
    verdicts = {claim.verdict for claim in claims}
    return next((verdict for verdict in _WORST_FIRST if verdict in verdicts), None)


def _pairs(text: str) -> set[str]:
    """Return the pairs of adjacent letters, in any script."""
    letters = [letter for letter in text.casefold() if letter.isalnum()]
    return {letter + other for letter, other in pairwise(letters)} or set(letters)
