"""Signals of texts alone: an answer declines, is cut off or in another language, or something addresses the judge."""

from __future__ import annotations

from collections.abc import Iterable

from gaugeway.records import Evaluation, Sample, Score, Skipped
from gaugeway.text.abstention import abstained
from gaugeway.text.language import asks_for_another_language, language_of
from gaugeway.text.phrases import addresses_judge

ANSWERED = frozenset({None, "truncated_response", "refusal"})
"""Skip reasons of exchanges that answered a user."""
NONCOMMITTAL = "noncommittal"
"""How the reason of a score ends where the judge calls the answer noncommittal."""
COMPLETED = ANSWERED | {"tool_call", "content_filter", "empty_response"}
"""Skip reasons of exchanges with a complete response of the model, which may be a tool call."""


def declines(sample: Sample) -> float | None:
    """Return 1 for an answer that declines or that the provider marked as a refusal, 0 for another answer."""
    if sample.skip_reason == "refusal":
        return 1.0
    return float(abstained(sample.response)) if sample.skip_reason in ANSWERED and sample.response else None


def declines_to_judge(evaluations: Iterable[Evaluation]) -> bool | None:
    """Return whether a judge finds that an answer declines; None if none of these evaluations says so or denies it.

    It does with a score of 0 for a noncommittal answer, or by skipping it as `abstained`; not with another score.
    """
    judged = [
        evaluation.outcome
        for evaluation in evaluations
        if evaluation.judge and isinstance(evaluation.outcome, Score | Skipped)
    ]
    if any(
        outcome.reason == "abstained"
        if isinstance(outcome, Skipped)
        else outcome.value == 0.0 and outcome.reason.endswith(NONCOMMITTAL)
        for outcome in judged
    ):
        return True
    return False if any(isinstance(outcome, Score) for outcome in judged) else None


def is_truncated(sample: Sample) -> float | None:
    """Return 1 for a response that ended at the token limit (`finish_reason` "length"), 0 for another one."""
    return float(sample.skip_reason == "truncated_response") if sample.skip_reason in COMPLETED else None


def speaks_to_judge(sample: Sample) -> float | None:
    """Return whether the answer or one of the passages addresses whoever judges it (`phrases.addresses_judge`)."""
    if sample.skip_reason not in ANSWERED or not sample.response:
        return None
    return float(any(map(addresses_judge, [sample.response, *(context.text for context in sample.contexts)])))


def mismatch(sample: Sample) -> float | None:
    """Return whether the answer's language differs from the question's.

    None where one of them does not show, and for a question that asks for another language.
    """
    if sample.skip_reason not in ANSWERED or not sample.question or asks_for_another_language(sample.question):
        return None
    asked = language_of(sample.question)
    answered = None if asked is None else language_of(sample.response)
    return None if answered is None else float(asked != answered)
