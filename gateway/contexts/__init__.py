"""Extractors: where the question and the retrieved passages stand in a request or response."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from gateway.exchange import Request, Response
from monitors.records import Context

BUILT_IN = {
    "explicit": "gateway.contexts.explicit:ExplicitExtractor",
    "tools": "gateway.contexts.tool_messages:ToolExtractor",
    "results": "gateway.contexts.provider_results:ResultExtractor",
    "templates": "gateway.contexts.templates:TemplateExtractor",
    "patterns": "gateway.contexts.user_patterns:PatternExtractor",
    "documents": "gateway.contexts.document_tags:DocumentExtractor",
    "structure": "gateway.contexts.structure:StructureExtractor",
}
DEFAULT_ORDER = ("explicit", "tools", "results", "templates", "patterns", "documents", "structure")
"""From what is certain to what is likely: said, structured, a known prompt, the user's own prompt, tags, structure."""

INFERRING = frozenset({"templates", "structure"})
"""Extractors that infer passages from a prompt's text. What Gaugeway learned from an app's own prompts is surer."""

BESIDE_RESULTS = "gaugeway_beside_results"
"""Set on a user message that came together with tool results (Anthropic): it opens no new turn."""


MOST_MESSAGES = 2_000
"""Messages of a request that are read, and blocks of one message: beyond that its first ones and its last."""
_FIRST = 100
MOST_SYSTEM_TEXTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """What an extractor found. `contexts` empty: the retrieval found nothing. `source` names the extractor.

    `marker` is what gave it away, for people: a template's name, a tag, a tool. `cut` says that passages were left out
    or shortened because there were too many or too long ones. `confidence` lies in [0, 1]: below 1 it was inferred from
    the prompt's structure, and `reason` names the signs. With the source "none" nothing was found, and the question is
    None when the user's turn is a whole prompt.
    """

    question: str | None
    contexts: tuple[Context, ...]
    source: str
    marker: str | None = None
    cut: bool = False
    confidence: float = 1.0
    reason: str | None = None


class Extractor(Protocol):
    """Recognises one kind of request."""

    def extract(self, request: Request, response: Response) -> Extraction | None:
        """Return what was found; None when the request is not of this kind. Pure, and never raises on odd content."""


def trace(request: Request, response: Response, extractors: Sequence[Extractor]) -> list[tuple[str, Extraction | None]]:
    """Return what each extractor said, by name, up to and with the first that recognised the request."""
    said: list[tuple[str, Extraction | None]] = []
    for extractor in extractors:
        found = extractor.extract(request, response)
        said.append((name_of(extractor), found))
        if found is not None:
            break
    return said


def name_of(extractor: Extractor) -> str:
    """Return the short name a configuration uses, for one that is not built in its import string."""
    kind = type(extractor)
    target = f"{kind.__module__}:{kind.__qualname__}"
    return next((name for name, built_in in BUILT_IN.items() if built_in == target), target)


def messages_of(request: Request) -> Iterator[dict[str, Any]]:
    """Yield the conversation's messages, whichever API carries them; tool results are messages of their own."""
    body = request.body
    system = body.get({"responses": "instructions", "messages": "system"}.get(request.route, ""))
    if text := text_of(system):
        yield {"role": "system", "content": text}
    messages = body.get("input" if request.route == "responses" else "messages")
    prompt = messages if request.route == "responses" else body.get("prompt")
    if isinstance(messages, list):
        for message in _bounded(messages):
            if isinstance(message, dict):
                yield from _tool_results_apart(message) if request.route == "messages" else (message,)
    elif isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
        yield {"role": "user", "content": prompt[0]}
    elif isinstance(prompt, str):
        yield {"role": "user", "content": prompt}


def _bounded(listed: list[Any]) -> list[Any]:
    """Leave out the middle of a list that is too long: what an app says of itself comes first, what is asked last."""
    return listed if len(listed) <= MOST_MESSAGES else listed[:_FIRST] + listed[_FIRST - MOST_MESSAGES :]


def _tool_results_apart(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Anthropic puts tool results into the user's message: yield them as tool messages, after the rest of it.

    What stands beside results (a reminder, mostly) is marked: it opens no new turn.
    """
    content = message.get("content")
    if not isinstance(content, list):
        yield message
        return
    blocks = [block for block in _bounded(content) if isinstance(block, dict)]
    results = [block for block in blocks if block.get("type") == "tool_result"]
    if rest := [block for block in blocks if block.get("type") != "tool_result"]:
        yield {**message, "content": rest, BESIDE_RESULTS: bool(results)}
    for block in results:
        failed = block.get("is_error") is True
        yield {
            "role": "tool",
            "tool_call_id": block.get("tool_use_id"),
            "content": "" if failed else block.get("content"),
        }


def text_of(content: Any) -> str:
    """Return the text of a message's content, its parts in lines of their own."""
    return "\n".join(text_parts(content))


def text_parts(content: Any) -> tuple[str, ...]:
    """Return the texts of a message's content: a string, or the text parts of a list, without images and files."""
    if isinstance(content, str):
        return (content,)
    if not isinstance(content, list):
        return ()
    return tuple(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))


def user_texts(request: Request) -> list[str]:
    """Return the texts of the user's turns that have one, the last first."""
    texts = [text_of(message.get("content")) for message in messages_of(request) if message.get("role") == "user"]
    return [text for text in reversed(texts) if text and not text.isspace()]


def last_user_text(request: Request) -> str | None:
    """Return the text of the last user turn, or None."""
    return next((text.strip() for text in user_texts(request)), None)


def system_texts(request: Request) -> list[str]:
    """Return the texts of the system and developer messages, in order: the first ones of too many."""
    texts = (
        text_of(message.get("content"))
        for message in messages_of(request)
        if message.get("role") in ("system", "developer")
    )
    return list(islice(texts, MOST_SYSTEM_TEXTS))
