"""Finds passages by the form of a prompt, whatever its wording: records that repeat, labels, tags, rules, data."""

from __future__ import annotations

from gateway.contexts import Extraction, extraction
from gateway.contexts.form import reader
from gateway.contexts.form.empty_place import is_prompt, question_of_empty
from gateway.contexts.form.turns import turns_of
from gateway.exchange import Request, Response

_DIGITS = 3
EMPTY = 0.8
"""Confidence that nothing was retrieved when the label of the passages is followed directly by the question's."""


class StructureExtractor:
    """Reads the likeliest block of passages; finds nothing where none is likely enough."""

    def extract(self, request: Request, response: Response) -> Extraction | None:  # noqa: ARG002 - the port's shape
        turns = turns_of(request)
        if (found := reader.read(turns)) is not None:
            return extraction(
                found.question,
                found.contexts,
                source="structure",
                marker=found.how,
                confidence=round(found.confidence, _DIGITS),
                reason=found.reason,
            )
        asking = next((turn.text for turn in reversed(turns) if turn.role == "user" and turn.text.strip()), "")
        if (question := question_of_empty(asking)) is not None:
            reason = "the prompt's place for passages is empty"
            return Extraction(question=question, contexts=(), source="structure", confidence=EMPTY, reason=reason)
        if is_prompt(asking):
            reason = "the user's message is a prompt whose passages were not recognised"
            return Extraction(question=None, contexts=(), source="none", confidence=0.0, reason=reason)
        return None
