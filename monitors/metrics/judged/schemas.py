"""The judge's answer to each prompt: structs whose field names are the JSON keys."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

Verdict: TypeAlias = Literal["supported", "contradicted", "not_mentioned"]
Relevance: TypeAlias = Literal["relevant", "borderline", "irrelevant"]
Rating: TypeAlias = Literal[0, 1, 2]

MAX_ITEMS = 200
"""Entries of each list: as many as a sample has passages at most. The provider's grammar stops an endless list."""
MAX_TEXT = 10_000
"""Characters of each text, checked when an answer is decoded."""
Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]
_LIST = msgspec.Meta(max_length=MAX_ITEMS)


class Answer(msgspec.Struct, frozen=True):
    """A part of an answer. Its docstring stays out of its JSON schema.

    The schema goes with every request and is paid for; the prompt has said what the fields mean.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.__doc__ = None


class FusedClaim(Answer, frozen=True):
    """One claim with all its verdicts."""

    claim: Text
    verdict: Verdict
    relevance: Relevance
    contexts: Annotated[list[int], _LIST] = []
    quote: Text = ""


class ClaimsVerdicts(Answer, frozen=True):
    """The answer to `claims_verdicts`."""

    noncommittal: bool
    claims: Annotated[list[FusedClaim], _LIST]


class Statement(Answer, frozen=True):
    """One statement of a context."""

    statement: Text
    relevant: bool


class StatementsOfContext(Answer, frozen=True):
    """All statements of one context."""

    index: int
    statements: Annotated[list[Statement], _LIST]


class ContextStatements(Answer, frozen=True):
    """The answer to `context_statements`."""

    contexts: Annotated[list[StatementsOfContext], _LIST]


class Claims(Answer, frozen=True):
    """The answer to `claims`."""

    noncommittal: bool
    claims: Annotated[list[Text], _LIST]


class ClaimVerdict(Answer, frozen=True):
    """The verdict on one claim."""

    id: int
    verdict: Verdict
    contexts: Annotated[list[int], _LIST] = []
    quote: Text = ""


class ClaimVerdicts(Answer, frozen=True):
    """The answer to `claim_verdicts`."""

    verdicts: Annotated[list[ClaimVerdict], _LIST]


class RelevanceVerdict(Answer, frozen=True):
    """The relevance of one claim."""

    id: int
    relevance: Relevance


class ClaimRelevance(Answer, frozen=True):
    """The answer to `claim_relevance`."""

    verdicts: Annotated[list[RelevanceVerdict], _LIST]


class ContradictedContext(Answer, frozen=True):
    """Whether the response contradicts one context."""

    index: int
    contradicted: bool
    reason: Text = ""


class ContradictedContexts(Answer, frozen=True):
    """The answer to `contradicted_contexts`."""

    contexts: Annotated[list[ContradictedContext], _LIST]


class GeneratedQuestions(Answer, frozen=True):
    """The answer to `generated_questions`."""

    noncommittal: bool
    questions: Annotated[list[Text], _LIST]


class ContextRating(Answer, frozen=True):
    """How much one context helps with the question."""

    index: int
    rating: Rating


class ContextRatings(Answer, frozen=True):
    """The answer to `context_ratings` and `context_ratings_reworded`."""

    contexts: Annotated[list[ContextRating], _LIST]


class UsefulContext(Answer, frozen=True):
    """Whether one context was of use for an answer."""

    index: int
    useful: bool
    reason: Text = ""


class UsefulContexts(Answer, frozen=True):
    """The answer to `useful_contexts`."""

    contexts: Annotated[list[UsefulContext], _LIST]


class Entity(Answer, frozen=True):
    """An entity of the reference, and its forms in the contexts."""

    entity: Text
    found_as: Text = ""


class ReferenceEntities(Answer, frozen=True):
    """The answer to `reference_entities`."""

    entities: Annotated[list[Entity], _LIST]


class JudgedCall(Answer, frozen=True):
    """Whether one tool call was sensible, and its arguments right."""

    id: int
    choice: Literal["sensible", "unnecessary", "wrong"]
    arguments: Literal["right", "incomplete", "wrong"]
    reason: Text = ""


class JudgedCalls(Answer, frozen=True):
    """The answer to `tool_calls`."""

    calls: Annotated[list[JudgedCall], _LIST]


class ConversationOutcome(Answer, frozen=True):
    """The answer to `conversation_outcome`: how a conversation ended for its user."""

    goal: Text
    outcome: Literal["met", "partly_met", "not_met"]
    met_in_turn: int
    gave_up: bool
    reason: Text = ""


class GEvalSteps(Answer, frozen=True):
    """The answer to `geval_steps`."""

    steps: Annotated[list[Text], _LIST]


class GEvalForm(Answer, frozen=True):
    """The answer to `geval_form`."""

    score: int


class PassageMarks(Answer, frozen=True):
    """The first and last words of a passage, or of another stretch."""

    begins: Text
    ends: Text


class PromptMarks(Answer, frozen=True):
    """The answer to `prompt_marks`."""

    question: Text
    passages: Annotated[list[PassageMarks], _LIST]


class CaptureMarks(Answer, frozen=True):
    """The answer to `capture_audit`."""

    kind: Literal["answer", "auxiliary"]
    question: PassageMarks
    passages: Annotated[list[PassageMarks], _LIST]


class ClusterName(Answer, frozen=True):
    """The answer to `cluster_name`."""

    name: Text


class Preferred(Answer, frozen=True):
    """The answer to `preference`."""

    reason: Text
    better: Literal["first", "second", "equal"]
