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
    """Yield the conversation's messages, whichever API carries them; tool results are messages of their own."""
    body = request.body
    system = body.get({"responses": "instructions", "messages": "system"}.get(request.route, ""))
    if text := text_of(system):
        yield {"role": "system", "content": text}
    messages = body.get("input" if request.route == "responses" else "messages")
    prompt = messages if request.route == "responses" else body.get("prompt")
    if isinstance(messages, list):
        for message in messages:
            if isinstance(message, dict):
                yield from _tool_results_apart(message) if request.route == "messages" else (message,)
    elif isinstance(prompt, str):
        yield {"role": "user", "content": prompt}


def _tool_results_apart(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Anthropic puts tool results into the user's message: yield them as tool messages, after the rest of it."""
    content = message.get("content")
    if not isinstance(content, list):
        yield message
        return
    blocks = [block for block in content if isinstance(block, dict)]
    results = [block for block in blocks if block.get("type") == "tool_result"]
    if rest := [block for block in blocks if block.get("type") != "tool_result"]:
        yield {**message, "content": rest}
    yield from ({"role": "tool", "content": block.get("content")} for block in results)


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
