"""Spans of called tools and invoked agents. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from gaugeway.records import ToolCall
from gaugeway.settings.bounds import MAX_TEXT, bounded_name
from monitors.api.otlp import Span

EXECUTE_TOOL, INVOKE_AGENT = "execute_tool", "invoke_agent"
_REDACTED = "__REDACTED__"
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
    named = span.attributes.get("gen_ai.operation.name")
    if isinstance(named, str) and named:
        return named if named in _NAMES else None
    kinds = (span.attributes.get(f"{convention}.span.kind") for convention in ("openinference", "traceloop"))
    return next((_KINDS[kind] for kind in kinds if isinstance(kind, str) and kind in _KINDS), None)


def step_of(span: Span, operation: str) -> ToolCall:
    """Return the tool that was called; an agent that was invoked counts as one. Raises ValueError without its name.

    The arguments of a call are content, which tracing leaves out by default: "" without them. What an
    agent was asked is not kept.
    """
    found = (span.attributes.get(name) for name in _NAMES[operation])
    name = next((text for text in found if isinstance(text, str) and text), None)
    if name is None:
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
