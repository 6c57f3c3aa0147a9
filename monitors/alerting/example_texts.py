"""Texts of an alert's worst exchanges as alerts quote them: question, answer, faults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gaugeway.records import Evaluation, Sample, Score

MOST_FAULTS, MAX_TEXT = 3, 300  # internal bound: size of a message that we send
HASHED = "blake2b:"


def faults_of(evaluations: Iterable[Evaluation], metric: str) -> tuple[str, ...]:
    """Return what is wrong with an answer: the unsupported claims, or else the reason of its score."""
    for evaluation in evaluations:
        if evaluation.metric == metric and isinstance(evaluation.outcome, Score):
            claims = [_shortened(text) for piece in evaluation.outcome.evidence if (text := _fault(piece))]
            return tuple(claims[:MOST_FAULTS]) or (
                (_shortened(evaluation.outcome.reason),) if evaluation.outcome.reason else ()
            )
    return ()


def _fault(piece: Mapping[str, Any]) -> str | None:
    """Return the claim of a piece of evidence against the answer."""
    if piece.get("verdict", "supported") != "supported" or piece.get("relevance") == "irrelevant":
        return str(piece.get("claim") or "") or None
    if piece.get("contradicted") is True:
        return str(piece.get("reason") or "") or None
    if piece.get("unsupported_numbers") or piece.get("unsupported_names"):
        return str(piece.get("sentence") or "") or None
    return None


def question_and_answer(sample: Sample) -> tuple[str, str]:
    """Return question and answer; of a whole conversation the first question and the last answer."""
    if not sample.transcript:
        return sample.question or "", sample.response
    asked = [message.text for message in sample.transcript if message.role == "user"]
    answers = [message.text for message in sample.transcript if message.role == "assistant"]
    return next(iter(asked), ""), answers[-1] if answers else ""


def quoted(text: str) -> str:
    """Return a stored text as alerts quote it; empty if only its hash is stored."""
    return "" if text.startswith(HASHED) else _shortened(text)


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
