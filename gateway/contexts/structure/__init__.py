"""Finds passages by the structure that prompts share, independent of wording: labels, tags, rules, numbers, JSON."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

from gateway.contexts import Extraction, messages_of, text_parts
from gateway.contexts.form import reader as form
from gateway.contexts.limits import extraction
from gateway.contexts.structure.conversation import Conversation, Reading, Turn, read
from gateway.exchange import Request, Response

__all__ = ["Conversation", "Reading", "StructureExtractor", "Turn", "read", "turns_of"]

MOST_TURNS = 200
"""Messages read of a longer conversation: the first `_FIRST`, which describe the app, and the last ones."""
_FIRST = 8
_TURN = re.compile(
    r"<\|(?:im_start|start_header_id|start_of_role)\|>(?P<marked>\w{1,20})(?:<\|(?:end_header_id|end_of_role)\|>)?\n*"
    r"|(?:<\||<start_of_turn>)(?P<plain>system|user|assistant|documents?|context|model)(?:\|>)?\n*",
    re.IGNORECASE,
)
_ENDS = re.compile(r"<\|[^|<>\n]{1,30}\|>|</?s>|<end_of_turn>")
_DIGITS = 3
_CLEAR = 0.9
"""Confidence of a reading by words from which the form, which takes longer, is not read."""
EMPTY = 0.8
"""Confidence that nothing was retrieved when the label of the passages is followed directly by the question's."""


class StructureExtractor:
    """Scores the blocks of a prompt that may hold passages; finds nothing when no score reaches the threshold."""

    def __init__(self, *, by_form: bool = True) -> None:
        self._by_form = by_form

    def extract(self, request: Request, response: Response) -> Extraction | None:  # noqa: ARG002 - the port's shape
        turns = turns_of(request)
        conversation = Conversation(turns)
        found = conversation.reading()
        if self._by_form and (found is None or found.confidence < _CLEAR or len(found.contexts) == 1):
            found = _clearer(found, form.read(turns))
        if found is not None:
            return extraction(
                found.question,
                found.contexts,
                source="structure",
                marker=found.how,
                confidence=round(found.confidence, _DIGITS),
                reason=found.reason,
            )
        if (question := conversation.question_without_passages()) is not None:
            reason = "the prompt's place for passages is empty"
            return Extraction(question=question, contexts=(), source="structure", confidence=EMPTY, reason=reason)
        if conversation.is_prompt():
            reason = "the user's message is a prompt whose passages were not recognised"
            return Extraction(question=None, contexts=(), source="none", confidence=0.0, reason=reason)
        return None


def _clearer(found: Reading | None, by_form: Reading | None) -> Reading | None:
    """Return the reading by form unless that by words is clear; of that one's lone passage it may see several."""
    if by_form is None or found is None or found.confidence < _CLEAR:
        return by_form or found
    return by_form if len(by_form.contexts) > 1 and by_form.contexts[0].text in found.contexts[0].text else found


def turns_of(request: Request) -> list[Turn]:
    """Return the messages of a request with their texts, part by part."""
    turns = [Turn(_role(message), text_parts(message.get("content"))) for message in messages_of(request)]
    if len(turns) == 1 and len(turns[0].parts) == 1 and "<" in turns[0].text:
        turns = _by_tokens(turns[0]) or turns
    return turns if len(turns) <= MOST_TURNS else turns[:_FIRST] + turns[_FIRST - MOST_TURNS :]


def _by_tokens(turn: Turn) -> list[Turn]:
    """Return the turns of a conversation rendered with a chat template's tokens; [] when there are no such tokens."""
    text = turn.text
    openings = list(islice(_TURN.finditer(text), MOST_TURNS))
    if not any(_role_of(one) == "user" for one in openings):
        return []
    ends = [one.start() for one in openings[1:]] + [len(text)]
    return [
        Turn(_role_of(one), (_ENDS.sub("", text[one.end() : end]).strip(),))
        for one, end in zip(openings, ends, strict=True)
    ]


def _role_of(opening: re.Match[str]) -> str:
    role = (opening["marked"] or opening["plain"]).lower()
    return role if role in ("user", "assistant") else "assistant" if role == "model" else "system"


def _role(message: dict[str, Any]) -> str:
    role = message.get("role")
    return role if isinstance(role, str) else ""
