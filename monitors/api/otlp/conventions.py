"""Semantic conventions of spans of retrievers, tools and agents, and their conversion to supplements. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from gaugeway.records import Context, Supplement, ToolCall
from gaugeway.settings.bounds import MAX_PASSAGE_NAME, MAX_TEXT, bounded_name, shed
from monitors.api.otlp import Span

_DAY_S, _HOUR_S = 86_400.0, 3600.0
_TEXTS = ("content", "page_content", "text", "document", "chunk")
_IDS = ("id", "doc_id", "document_id", "chunk_id", "id_", "node_id")
_SCORES = ("score", "relevance_score", "similarity")
_SOURCES = ("source", "url", "file_name", "file_path", "title")
_LISTS = ("documents", "output", "outputs", "results", "nodes", "result")
_QUERIES = ("query", "question", "input", "query_str", "q", "text")
_OPENINFERENCE = re.compile(r"retrieval\.documents\.(\d{1,6})\.document\.(\w+)")
_RESULT_EVENTS = {"db.query.result": "db.query.result.", "db.search.result": "db.search.result."}
_REDACTED = "__REDACTED__"


class NoTextError(ValueError):
    """A retriever span without passage texts: the app's tracing omits content."""


def conventions_of(span: Span) -> list[str]:
    """The conventions that a retriever span follows (possibly several); empty for other spans."""
    attributes, name = span.attributes, span.attributes.get("traceloop.entity.name")
    signs = {
        "openinference": attributes.get("openinference.span.kind") == "RETRIEVER",
        "langsmith": attributes.get("langsmith.span.kind") == "retriever",
        "gen_ai": attributes.get("gen_ai.operation.name") == "retrieval" or "gen_ai.retrieval.documents" in attributes,
        "traceloop": any(event in _RESULT_EVENTS for event, _ in span.events)
        or (isinstance(name, str) and "retriev" in name.lower()),
    }
    return [convention for convention, seen in signs.items() if seen]


def retrieved(span: Span, conventions: Sequence[str], now: float) -> tuple[str, Supplement]:
    """Return what a retriever's span found, and the first of its `conventions` that tells it.

    A retrieval of more than an hour is not believed. Raises NoTextError, and ValueError for documents
    that are no documents.
    """
    for convention in conventions:
        try:
            question, contexts = _found(span, convention)
        except ValueError:
            if convention == conventions[-1]:
                raise
            continue
        question = None if question == _REDACTED else question
        found = replace(blank(span, now), question=question, contexts=contexts, retrieval_s=took_s(span))
        return convention, shed(found)
    raise ValueError("no convention is known")


def took_s(span: Span) -> float | None:
    """Return how long a step took; None if its times are not known, or say more than an hour."""
    took = round((span.ended_ns - span.started_ns) / 1e9, 6)
    return took if span.started_ns and 0.0 <= took <= _HOUR_S else None


def blank(span: Span, now: float) -> Supplement:
    """Return the supplement of a span without what it says.

    It counts as received when it started, so that several of one trace stay in order; a start of more than a day away
    is not believed, as retention would delete a span from a clock that is far behind before it joins its exchange.
    """
    started, ended = span.started_ns / 1e9, span.ended_ns / 1e9
    believed = abs(now - started) < _DAY_S
    return Supplement(
        id=f"span-{span.trace_id}-{span.span_id}",
        received_at=started if believed else now,
        source="spans",
        trace_id=span.trace_id,
        ended_at=ended if believed and started <= ended < now + _DAY_S else None,
    )


def _found(span: Span, convention: str) -> tuple[str | None, tuple[Context, ...]]:
    read = {"openinference": _openinference, "langsmith": _langsmith, "gen_ai": _gen_ai, "traceloop": _traceloop}
    question, documents = read[convention](span)
    contexts = tuple(context for document in documents if (context := _context(document)) is not None)
    if documents and not contexts:
        raise NoTextError("no document has a text")
    return question, contexts


def _openinference(span: Span) -> tuple[str | None, list[Any]]:
    """Documents are flattened: `retrieval.documents.<n>.document.<field>`."""
    found: dict[int, dict[str, Any]] = {}
    for name, value in span.attributes.items():
        if match := _OPENINFERENCE.fullmatch(name):
            found.setdefault(int(match[1]), {})[match[2]] = value
    if not found:
        raise NoTextError("no retrieval.documents")
    return _query(span.attributes.get("input.value")), [found[index] for index in sorted(found)]


def _gen_ai(span: Span) -> tuple[str | None, list[Any]]:
    """OpenTelemetry's convention: a list of objects, or a JSON list."""
    if (documents := _parsed(span.attributes.get("gen_ai.retrieval.documents"))) is None:
        raise NoTextError("no gen_ai.retrieval.documents")
    return _query(span.attributes.get("gen_ai.retrieval.query.text")), _listed(documents)


def _traceloop(span: Span) -> tuple[str | None, list[Any]]:
    """A vector store's span has one event per result; a retriever task has its output as JSON."""
    question = _query(_parsed(span.attributes.get("traceloop.entity.input")))
    results = [
        {name.removeprefix(_RESULT_EVENTS[event]): value for name, value in attributes.items()}
        for event, attributes in span.events
        if event in _RESULT_EVENTS
    ]
    if results:
        return question, results
    if (output := _parsed(span.attributes.get("traceloop.entity.output"))) is None:
        raise NoTextError("no db.query.result events and no traceloop.entity.output")
    return question, _listed(output)


def _langsmith(span: Span) -> tuple[str | None, list[Any]]:
    """LangSmith puts a run's inputs and outputs as JSON into the attributes for prompts and completions."""
    if (output := _parsed(span.attributes.get("gen_ai.completion"))) is None:
        raise NoTextError("no gen_ai.completion")
    return _query(_parsed(span.attributes.get("gen_ai.prompt"))), _listed(output)


def _parsed(value: Any) -> Any:
    """A value, parsed if it is a JSON string. Raises ValueError for invalid JSON."""
    if not isinstance(value, str):
        return value
    if value in ("", _REDACTED):
        return None
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error


def _listed(value: Any) -> list[Any]:
    """The list of documents in an output. Raises ValueError if there is none."""
    for _ in range(4):
        if isinstance(value, list):
            return value
        if not isinstance(value, dict):
            break
        value = next((value[name] for name in _LISTS if name in value), None)
    raise ValueError("no list of documents")


def _query(value: Any) -> str | None:
    """The question of an input: a text, an object containing one, or such an object as JSON."""
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return value or None
    for _ in range(4):
        if isinstance(value, str):
            return value or None
        inner: list[Any] = [*_inner(value)]
        if not inner:
            return None
        value = inner[0]
    return None


def _inner(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        named = [value[name] for name in (*_QUERIES, "inputs", "kwargs", "args") if value.get(name)]
        yield from named or [text for text in value.values() if isinstance(text, str)]
    elif isinstance(value, list) and len(value) == 1:
        yield value[0]


def _context(document: Any) -> Context | None:
    """Return a document as a context; None for one without a text.

    LangChain's serialised documents keep their fields in `kwargs`, LlamaIndex's scored ones in `node`. A distance is
    no score: less of it is better.
    """
    if isinstance(document, str):
        return Context(text=document) if document else None
    if not isinstance(document, dict):
        return None
    inner = [document[name] for name in ("kwargs", "node", "document") if isinstance(document.get(name), dict)]
    fields: dict[str, Any] = {**document, **(inner[0] if inner else {})}
    text = next((fields[name] for name in _TEXTS if isinstance(fields.get(name), str) and fields[name]), None)
    if text is None or text == _REDACTED:
        return None
    metadata = _metadata(fields.get("metadata"))
    return Context(
        text=text,
        id=_word(fields, _IDS) or _word(metadata, _IDS),
        score=_number(fields) if _number(fields) is not None else _number(metadata),
        source=_word(fields, _SOURCES) or _word(metadata, _SOURCES),
    )


def _metadata(value: Any) -> Mapping[str, Any]:
    try:
        parsed = _parsed(value)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _word(fields: Mapping[str, Any], names: Iterable[str]) -> str | None:
    for name in names:
        if isinstance(value := fields.get(name), str | int) and not isinstance(value, bool) and value != "":
            return bounded_name(str(value), MAX_PASSAGE_NAME)
    return None


def _number(fields: Mapping[str, Any]) -> float | None:
    for name in _SCORES:
        value = fields.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    return None


EXECUTE_TOOL, INVOKE_AGENT = "execute_tool", "invoke_agent"
_KINDS = {"TOOL": EXECUTE_TOOL, "AGENT": INVOKE_AGENT, "tool": EXECUTE_TOOL, "agent": INVOKE_AGENT}
"""`openinference.span.kind` and `traceloop.span.kind` -> operation."""

_NAMES = {
    EXECUTE_TOOL: ("gen_ai.tool.name", "tool.name", "tool_call.function.name", "traceloop.entity.name"),
    INVOKE_AGENT: ("gen_ai.agent.name", "agent.name", "traceloop.entity.name", "gen_ai.agent.id"),
}
_ARGUMENTS = ("gen_ai.tool.call.arguments", "tool_call.function.arguments", "input.value", "traceloop.entity.input")


def operation_of(span: Span) -> str | None:
    """Return "execute_tool" or "invoke_agent"; None for other spans.

    Conventions: OpenTelemetry's `gen_ai.operation.name`, OpenInference's and Traceloop's kind of a span.
    """
    if isinstance(named := span.attributes.get("gen_ai.operation.name"), str) and named:
        return named if named in _NAMES else None
    kinds = (span.attributes.get(f"{convention}.span.kind") for convention in ("openinference", "traceloop"))
    return next((_KINDS[kind] for kind in kinds if isinstance(kind, str) and kind in _KINDS), None)


def name_of(span: Span, operation: str) -> str | None:
    """Return the name of the tool or the agent."""
    found = (span.attributes.get(name) for name in _NAMES[operation])
    return next((text for text in found if isinstance(text, str) and text), None)


def step_of(span: Span, operation: str) -> ToolCall:
    """Return the tool that was called; an agent that was invoked counts as one. Raises ValueError without its name.

    The arguments of a call are content, which tracing leaves out by default: "" without them. What an
    agent was asked is not kept.
    """
    if (name := name_of(span, operation)) is None:
        raise ValueError(f"no {_NAMES[operation][0]}")
    arguments = _text(span.attributes) if operation == EXECUTE_TOOL else ""
    return ToolCall(name=bounded_name(name), arguments=arguments[:MAX_TEXT])  # cut to MAX_ARGUMENTS once redacted


def _text(attributes: dict[str, Any]) -> str:
    value = next((attributes[name] for name in _ARGUMENTS if attributes.get(name) not in (None, "", _REDACTED)), "")
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):  # a lone surrogate, a number beyond 64 bits
        return ""
