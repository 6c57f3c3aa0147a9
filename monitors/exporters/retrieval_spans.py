"""The retrieval span of a sample: its passages and their relevance in OpenTelemetry's attributes."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from gaugeway.records import Sample

LONGEST = 8_000


def span_id(sample: Sample) -> str:
    """Return the id of the span, which depends only on the sample."""
    return sha256(f"retrieval {sample.id}".encode()).hexdigest()[:16]


def attributes(sample: Sample, *, both: bool = False) -> dict[str, Any]:
    """Return the span's attributes: GenAI's and OpenInference's. Texts are cut at `LONGEST` characters.

    `gen_ai.retrieval.top_k` is the number of passages found: how many the app asked for is not known. With `both` it
    has its name before conventions 0.1 too.
    """
    found: dict[str, Any] = {
        "gen_ai.operation.name": "retrieval",
        "openinference.span.kind": "RETRIEVER",
        "gaugeway.exchange.id": sample.id,
        "gaugeway.app": sample.app,
        "gaugeway.context.source": sample.context_source,
        **origin_of(sample),
        **session_of(sample),
    }
    if sample.contexts:
        found["gen_ai.retrieval.top_k"] = len(sample.contexts)
        if both:
            found["gen_ai.request.top_k"] = float(len(sample.contexts))
    if sample.question:
        found["gen_ai.retrieval.query.text"] = found["input.value"] = cut(sample.question)
        found["input.mime_type"] = "text/plain"
    documents: list[dict[str, Any]] = []
    for index, context in enumerate(sample.contexts):
        metadata = {"source": context.source} if context.source else None
        fields = {"id": context.id, "score": context.score, "content": cut(context.text), "metadata": metadata}
        fields = {key: value for key, value in fields.items() if value is not None}
        documents.append(fields)
        for key, value in fields.items():
            shown = json.dumps(value) if key == "metadata" else value
            found[f"retrieval.documents.{index}.document.{key}"] = shown
    found["gen_ai.retrieval.documents"] = json.dumps(documents, ensure_ascii=False)
    return found


def session_of(sample: Sample) -> dict[str, str]:
    """Return the session by OpenInference's name, which Langfuse wants on every span of a trace."""
    return {"session.id": sample.session} if sample.session else {}


def origin_of(sample: Sample) -> dict[str, str]:
    """Return what an exchange came from: conversation and version of the prompt.

    The conversation is the session that the app names, else the conversation that was found.
    """
    named = {"gen_ai.conversation.id": sample.session or sample.conversation, "gen_ai.prompt.version": sample.prompt}
    return {key: value for key, value in named.items() if value}


def cut(text: str) -> str:
    """Return the text, shortened when it is very long."""
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"
