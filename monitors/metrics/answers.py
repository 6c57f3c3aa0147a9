"""What the judge answers to each prompt: msgspec structs whose field names are the JSON keys."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Verdict: TypeAlias = Literal["supported", "contradicted", "not_mentioned"]
Relevance: TypeAlias = Literal["relevant", "borderline", "irrelevant"]
Rating: TypeAlias = Literal[0, 1, 2]


class FusedClaim(msgspec.Struct, frozen=True):
    """One claim with everything that is asked about it."""

    claim: str
    verdict: Verdict
    relevance: Relevance
    contexts: list[int] = []
    quote: str = ""


class ClaimsVerdicts(msgspec.Struct, frozen=True):
    """The answer to `claims_verdicts`."""

    noncommittal: bool
    claims: list[FusedClaim]


class Statement(msgspec.Struct, frozen=True):
    """One statement of a context."""

    statement: str
    relevant: bool


class StatementsOfContext(msgspec.Struct, frozen=True):
    """All statements of one context."""

    index: int
    statements: list[Statement]


class ContextStatements(msgspec.Struct, frozen=True):
    """The answer to `context_statements`."""

    contexts: list[StatementsOfContext]


class Claims(msgspec.Struct, frozen=True):
    """The answer to `claims`."""

    noncommittal: bool
    claims: list[str]


class ClaimVerdict(msgspec.Struct, frozen=True):
    """The verdict on one claim."""

    id: int
    verdict: Verdict
    contexts: list[int] = []
    quote: str = ""


class ClaimVerdicts(msgspec.Struct, frozen=True):
    """The answer to `claim_verdicts`."""

    verdicts: list[ClaimVerdict]


class RelevanceVerdict(msgspec.Struct, frozen=True):
    """The relevance of one claim."""

    id: int
    relevance: Relevance


class ClaimRelevance(msgspec.Struct, frozen=True):
    """The answer to `claim_relevance`."""

    verdicts: list[RelevanceVerdict]


class ContradictedContext(msgspec.Struct, frozen=True):
    """Whether the response contradicts one context."""

    index: int
    contradicted: bool
    reason: str = ""


class ContradictedContexts(msgspec.Struct, frozen=True):
    """The answer to `contradicted_contexts`."""

    contexts: list[ContradictedContext]


class GeneratedQuestions(msgspec.Struct, frozen=True):
    """The answer to `generated_questions`."""

    noncommittal: bool
    questions: list[str]


class ContextRating(msgspec.Struct, frozen=True):
    """How much one context helps with the question."""

    index: int
    rating: Rating


class ContextRatings(msgspec.Struct, frozen=True):
    """The answer to `context_ratings` and `context_ratings_reworded`."""

    contexts: list[ContextRating]


class UsefulContext(msgspec.Struct, frozen=True):
    """Whether one context was of use for an answer."""

    index: int
    useful: bool
    reason: str = ""


class UsefulContexts(msgspec.Struct, frozen=True):
    """The answer to `useful_contexts`."""

    contexts: list[UsefulContext]


class Entity(msgspec.Struct, frozen=True):
    """A name in the reference, and how the contexts write it."""

    entity: str
    found_as: str = ""


class ReferenceEntities(msgspec.Struct, frozen=True):
    """The answer to `reference_entities`."""

    entities: list[Entity]


class GEvalSteps(msgspec.Struct, frozen=True):
    """The answer to `geval_steps`."""

    steps: list[str]


class GEvalForm(msgspec.Struct, frozen=True):
    """The answer to `geval_form`."""

    score: int
