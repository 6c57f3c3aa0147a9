"""The judge's answer to each prompt: structs whose field names are the JSON keys."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Verdict: TypeAlias = Literal["supported", "contradicted", "not_mentioned"]
Relevance: TypeAlias = Literal["relevant", "borderline", "irrelevant"]
Rating: TypeAlias = Literal[0, 1, 2]


class Answer(msgspec.Struct, frozen=True):
    """A part of an answer. Its docstring stays out of its JSON schema.

    The schema goes with every request and is paid for; the prompt has said what the fields mean.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.__doc__ = None


class FusedClaim(Answer, frozen=True):
    """One claim with all its verdicts."""

    claim: str
    verdict: Verdict
    relevance: Relevance
    contexts: list[int] = []
    quote: str = ""


class ClaimsVerdicts(Answer, frozen=True):
    """The answer to `claims_verdicts`."""

    noncommittal: bool
    claims: list[FusedClaim]


class Statement(Answer, frozen=True):
    """One statement of a context."""

    statement: str
    relevant: bool


class StatementsOfContext(Answer, frozen=True):
    """All statements of one context."""

    index: int
    statements: list[Statement]


class ContextStatements(Answer, frozen=True):
    """The answer to `context_statements`."""

    contexts: list[StatementsOfContext]


class Claims(Answer, frozen=True):
    """The answer to `claims`."""

    noncommittal: bool
    claims: list[str]


class ClaimVerdict(Answer, frozen=True):
    """The verdict on one claim."""

    id: int
    verdict: Verdict
    contexts: list[int] = []
    quote: str = ""


class ClaimVerdicts(Answer, frozen=True):
    """The answer to `claim_verdicts`."""

    verdicts: list[ClaimVerdict]


class RelevanceVerdict(Answer, frozen=True):
    """The relevance of one claim."""

    id: int
    relevance: Relevance


class ClaimRelevance(Answer, frozen=True):
    """The answer to `claim_relevance`."""

    verdicts: list[RelevanceVerdict]


class ContradictedContext(Answer, frozen=True):
    """Whether the response contradicts one context."""

    index: int
    contradicted: bool
    reason: str = ""


class ContradictedContexts(Answer, frozen=True):
    """The answer to `contradicted_contexts`."""

    contexts: list[ContradictedContext]


class GeneratedQuestions(Answer, frozen=True):
    """The answer to `generated_questions`."""

    noncommittal: bool
    questions: list[str]


class ContextRating(Answer, frozen=True):
    """How much one context helps with the question."""

    index: int
    rating: Rating


class ContextRatings(Answer, frozen=True):
    """The answer to `context_ratings` and `context_ratings_reworded`."""

    contexts: list[ContextRating]


class UsefulContext(Answer, frozen=True):
    """Whether one context was of use for an answer."""

    index: int
    useful: bool
    reason: str = ""


class UsefulContexts(Answer, frozen=True):
    """The answer to `useful_contexts`."""

    contexts: list[UsefulContext]


class Entity(Answer, frozen=True):
    """An entity of the reference, and its forms in the contexts."""

    entity: str
    found_as: str = ""


class ReferenceEntities(Answer, frozen=True):
    """The answer to `reference_entities`."""

    entities: list[Entity]


class JudgedCall(Answer, frozen=True):
    """Whether one tool call was sensible, and its arguments right."""

    id: int
    choice: Literal["sensible", "unnecessary", "wrong"]
    arguments: Literal["right", "incomplete", "wrong"]
    reason: str = ""


class JudgedCalls(Answer, frozen=True):
    """The answer to `tool_calls`."""

    calls: list[JudgedCall]


class ConversationOutcome(Answer, frozen=True):
    """The answer to `conversation_outcome`: how a conversation ended for its user."""

    goal: str
    outcome: Literal["met", "partly_met", "not_met"]
    met_in_turn: int
    gave_up: bool
    reason: str = ""


class GEvalSteps(Answer, frozen=True):
    """The answer to `geval_steps`."""

    steps: list[str]


class GEvalForm(Answer, frozen=True):
    """The answer to `geval_form`."""

    score: int


class PassageMarks(Answer, frozen=True):
    """The first and last words of a passage, or of another stretch."""

    begins: str
    ends: str


class PromptMarks(Answer, frozen=True):
    """The answer to `prompt_marks`."""

    question: str
    passages: list[PassageMarks]


class CaptureMarks(Answer, frozen=True):
    """The answer to `capture_audit`."""

    kind: Literal["answer", "auxiliary"]
    question: PassageMarks
    passages: list[PassageMarks]
