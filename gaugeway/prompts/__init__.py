"""Extractors: find the question and the retrieved passages in a request or response."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any, Literal, Protocol, TypeAlias, get_args

import msgspec

from gaugeway.exchange import Request, Response
from gaugeway.extensions import load, registered
from gaugeway.prompts.written_steps import apart
from gaugeway.records import Context
from gaugeway.settings import bounds
from gaugeway.settings.bounds import MAX_PASSAGES

_log = logging.getLogger("gaugeway")
Evidence: TypeAlias = Literal[
    "sent separately", "tool results", "response", "known prompt", "configured pattern", "document blocks", "structure"
]
"""What a reader recognises passages by, the most certain first: the order in which readers are tried by default."""
BESIDE_RESULTS = "gaugeway_beside_results"
"""Key set on a user message that accompanies tool results (Anthropic): it does not start a new turn."""


MOST_MESSAGES = 2_000
"""Messages read of a request, and blocks of a message; of more the first `_FIRST` and the last ones."""
_FIRST = 100
MOST_SYSTEM_TEXTS = 100
MOST_PIECES = 1_000
"""Pieces that a text of passages is split into: far more than the limits keep."""


class Extraction(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an extractor. `contexts` empty: retrieval returned nothing. `source` is the extractor's name.

    `marker` is what identified the passages, for users: a template's name, a tag, a tool. `cut`: passages were dropped
    or shortened because they were too many or too long. `confidence` is in [0, 1]; below 1 the passages were inferred
    from the prompt's structure, and `reason` lists the evidence. Source "none": nothing was found, and the question is
    None when the user's turn is a whole prompt.
    """

    question: str | None
    contexts: tuple[Context, ...]
    source: str
    marker: str | None = None
    cut: bool = False
    confidence: float = 1.0
    reason: str | None = None


class UserTemplate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A prompt of the user's app. `pattern` has a group `contexts` and maybe one `question`; a dot matches line breaks.

    A group `contexts` that matches repeatedly gives one piece each time; every piece is split at `separator`, or where
    `separator_pattern` matches. Its groups `id`, `source`, `title` and `score` say it of the passage that follows. With
    `read_as` the reader of structure separates them, by its splitting of that name. With `clean` that reader takes
    titles, sources and the like off each passage.
    """

    name: str
    pattern: str
    separator: str = "\n\n"
    separator_pattern: str | None = None
    read_as: str | None = None
    clean: bool = False


class Extractor(Protocol):
    """Reads one kind of request.

    A class with the attribute `evidence` is used by default; one without it only where the configuration names it.
    """

    def extract(self, request: Request, response: Response) -> Extraction | None:
        """Return the extraction; None when the request is not of this kind. Pure; never raises on malformed content."""


def extraction(
    question: str | None,
    contexts: Iterable[Context],
    *,
    source: str,
    marker: str | None = None,
    confidence: float = 1.0,
    reason: str | None = None,
) -> Extraction:
    """Return an extraction with as many passages as the limits allow; the last one may be shortened.

    `contexts` is not read beyond that, unless it is a tuple.
    """
    if isinstance(contexts, list) and len(contexts) <= MAX_PASSAGES:
        contexts = tuple(contexts)
    bounded = (
        bounds.bounded_passages(contexts) if isinstance(contexts, tuple) else map(bounds.bounded_passage, contexts)
    )
    kept, cut = bounds.passages(bounded)
    return Extraction(
        question=(question or "").strip() or None,
        contexts=kept,
        source=source,
        marker=marker,
        cut=cut,
        confidence=confidence,
        reason=reason,
    )


def trace(request: Request, response: Response, extractors: Sequence[Extractor]) -> list[tuple[str, Extraction | None]]:
    """Return each extractor's name and result, up to and including the first that recognised the request."""
    said: list[tuple[str, Extraction | None]] = []
    for extractor in extractors:
        found = extractor.extract(request, response)
        said.append((name_of(extractor), found))
        if found is not None:
            break
    return said


def name_of(extractor: Extractor) -> str:
    """Return the name used in the configuration: the short name, or the import string of one that is not registered."""
    kind = type(extractor)
    target = f"{kind.__module__}:{kind.__qualname__}"
    return next((name for name, registered_as in registered("readers").items() if registered_as == target), target)


def evidence_of(extractor: Extractor | type[Extractor]) -> Evidence | None:
    """Return what an extractor recognises passages by; None if it does not say."""
    return getattr(extractor, "evidence", None)


@cache
def default_order() -> tuple[str, ...]:
    """Return the names of the extractors that are used by default, the most certain first.

    One that cannot be imported, which a package has registered, is left out with a warning. Raises ValueError in a
    source tree that was never installed: it has no entry points.
    """
    if not registered("readers"):
        raise ValueError("no extractor is registered: gaugeway is not installed (pip install --editable .)")
    evidence: dict[str, Evidence | None] = {}
    for name in sorted(registered("readers")):
        try:
            evidence[name] = evidence_of(load(name, registered("readers")))
        except ValueError as error:
            _log.warning("extractor left out: %s", error)
    return tuple(name for kind in get_args(Evidence) for name in evidence if evidence[name] == kind)


def messages_of(request: Request) -> list[dict[str, Any]]:
    """Return the messages of a request of any API; tool results, those written as text too, are separate messages."""
    if request.messages is None:
        object.__setattr__(request, "messages", list(apart(messages_as_sent(request))))
    return request.messages or []


def messages_as_sent(request: Request) -> Iterator[dict[str, Any]]:
    """Yield the messages without looking for steps of an agent in their texts."""
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
    """Drop the middle of a list that is too long: instructions come first, the question last."""
    return listed if len(listed) <= MOST_MESSAGES else listed[:_FIRST] + listed[_FIRST - MOST_MESSAGES :]


def _tool_results_apart(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the tool results in an Anthropic user message as tool messages, after the rest of the message.

    Text beside results (usually a reminder) is marked with `BESIDE_RESULTS`: it does not start a new turn.
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
    """Return the text of a message's content, its parts joined by line breaks."""
    if isinstance(content, str):
        return content
    return "\n".join(text_parts(content))


def text_parts(content: Any) -> tuple[str, ...]:
    """Return the texts of a message's content: a string, or the text parts of a list, without images and files."""
    if isinstance(content, str):
        return (content,)
    return tuple(part["text"] for part in dicts(content) if isinstance(part.get("text"), str))


def dicts(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a list; [] for anything else."""
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def user_texts(request: Request) -> list[str]:
    """Return the non-blank texts of the user's turns, the last first."""
    texts = [text_of(message.get("content")) for message in messages_of(request) if message.get("role") == "user"]
    return [text for text in reversed(texts) if text and not text.isspace()]


def last_user_text(request: Request) -> str | None:
    """Return the text of the last user turn, or None."""
    return next((text.strip() for text in user_texts(request)), None)


def system_texts(request: Request) -> list[str]:
    """Return the texts of the first system and developer messages, in order."""
    texts = (
        text_of(message.get("content"))
        for message in messages_of(request)
        if message.get("role") in ("system", "developer")
    )
    return list(islice(texts, MOST_SYSTEM_TEXTS))
