"""Extractors: where the question and the retrieved passages stand in a request or response."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from gateway.exchange import Request, Response
from monitors.records import Context

BUILT_IN = {
    "explicit": "gateway.contexts.explicit:ExplicitExtractor",
    "tools": "gateway.contexts.tools:ToolExtractor",
    "templates": "gateway.contexts.templates:TemplateExtractor",
}
DEFAULT_ORDER = ("explicit", "tools", "templates")


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """What an extractor found. `contexts` empty: the retrieval found nothing. `source` names the extractor."""

    question: str | None
    contexts: tuple[Context, ...]
    source: str


class Extractor(Protocol):
    """Recognises one kind of request."""

    def extract(self, request: Request, response: Response) -> Extraction | None:
        """Return what was found; None when the request is not of this kind. Pure, and never raises on odd content."""


def messages_of(request: Request) -> Iterator[dict[str, Any]]:
    """Yield the conversation's messages, whichever API carries them."""
    body = request.body
    messages = body.get("input" if request.route == "responses" else "messages")
    if isinstance(instructions := body.get("instructions"), str) and request.route == "responses":
        yield {"role": "system", "content": instructions}
    prompt = messages if request.route == "responses" else body.get("prompt")
    if isinstance(messages, list):
        yield from (one for one in messages if isinstance(one, dict))
    elif isinstance(prompt, str):
        yield {"role": "user", "content": prompt}


def text_of(content: Any) -> str:
    """Return the text of a message's content: a string, or the text parts of a list (images and files are left out)."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))


def last_user_text(request: Request) -> str | None:
    """Return the text of the last user turn, or None."""
    for message in reversed(list(messages_of(request))):
        if message.get("role") == "user" and (text := text_of(message.get("content")).strip()):
            return text
    return None
