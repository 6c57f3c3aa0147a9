"""Passages found by the structure that prompts share, whatever their wording: labels, tags, rules, numbers, JSON."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gateway.contexts import Extraction, messages_of
from gateway.contexts.bounds import extraction
from gateway.contexts.structure.reading import Reading, Turn, is_prompt, read
from gateway.exchange import Request, Response

__all__ = ["Reading", "StructureExtractor", "Turn", "is_prompt", "read", "turns_of"]

MOST_TURNS = 200
"""The last messages of a conversation that are read, after the first ones, which say what the app is."""
_FIRST = 8


class StructureExtractor:
    """The reader of structure: it decides by a score, and says nothing below its threshold."""

    def extract(self, request: Request, response: Response) -> Extraction | None:  # noqa: ARG002 - the port's shape
        turns = turns_of(request)
        found = read(turns)
        if found is not None:
            kept = extraction(found.question, found.contexts, source="structure", marker=found.how)
            return replace(kept, confidence=round(found.confidence, 3), reason=found.reason)
        last = next((turn for turn in reversed(turns) if turn.role == "user" and turn.text.strip()), None)
        if last is not None and is_prompt(last.text):
            reason = "the user's message is a prompt whose passages were not recognised"
            return Extraction(question=None, contexts=(), source="none", confidence=0.0, reason=reason)
        return None


def turns_of(request: Request) -> list[Turn]:
    """Return the messages of a request with their texts, part by part."""
    turns = [Turn(_role(message), _parts(message.get("content"))) for message in messages_of(request)]
    return turns if len(turns) <= MOST_TURNS else turns[:_FIRST] + turns[_FIRST - MOST_TURNS :]


def _role(message: dict[str, Any]) -> str:
    role = message.get("role")
    return role if isinstance(role, str) else ""


def _parts(content: Any) -> tuple[str, ...]:
    if isinstance(content, str):
        return (content,)
    if not isinstance(content, list):
        return ()
    return tuple(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
