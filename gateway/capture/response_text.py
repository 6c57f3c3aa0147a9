"""Reads the answer from response bodies: chat completions, completions, Responses API, Anthropic messages."""

from __future__ import annotations

from typing import Any

from gaugeway.exchange import Response
from gaugeway.prompts import text_of
from gaugeway.records import Usage
from gaugeway.settings.bounds import bounded_name
from gaugeway.settings.bounds import token_count as _count

_STOP_REASONS = {
    **dict.fromkeys(("max_tokens", "model_context_window_exceeded"), "length"),
    "tool_use": "tool_calls",
    "end_turn": "stop",
    "stop_sequence": "stop",
}


def read(route: str, body: dict[str, Any], status: int) -> Response:
    """Read the response body of a generation route; unexpected types are ignored, never an error."""
    if route == "responses":
        return _responses_answer(body, status)
    if route == "messages":
        return _messages_answer(body, status)
    return _choices_answer(body, status)


def _choices_answer(body: dict[str, Any], status: int) -> Response:
    """Read a chat completion or a completion; of several choices the first is the answer."""
    choices = body.get("choices")
    choice = _dict(choices[0]) if isinstance(choices, list) and choices else {}
    message = _dict(choice.get("message"))
    content = text_of(message.get("content")) if message else choice.get("text")
    refusal = message.get("refusal")
    calls = message.get("tool_calls")
    return Response(
        status=status,
        body=body,
        text=content if isinstance(content, str) and content else refusal if isinstance(refusal, str) else "",
        finish_reason=_name(choice.get("finish_reason")),
        tool_calls=len(calls) if isinstance(calls, list) else int(bool(message.get("function_call"))),
        refusal=bool(refusal),
        id=_name(body.get("id")),
        model=_name(body.get("model")),
        usage=_usage(body.get("usage")),
    )


def _responses_answer(body: dict[str, Any], status: int) -> Response:
    """Read an object of the Responses API."""
    raw = body.get("output")
    output = [item for item in raw if isinstance(item, dict)] if isinstance(raw, list) else []
    parts = [
        part
        for item in output
        if item.get("type") == "message" and isinstance(item.get("content"), list)
        for part in item["content"]
        if isinstance(part, dict)
    ]
    details = body.get("incomplete_details")
    cut = details.get("reason") if isinstance(details, dict) else None
    return Response(
        status=status,
        body=body,
        text="".join(part["text"] for part in parts if isinstance(part.get("text"), str)),
        finish_reason="length" if cut == "max_output_tokens" else _name(cut),
        tool_calls=sum(item.get("type") in ("function_call", "custom_tool_call") for item in output),
        refusal=any(part.get("type") == "refusal" for part in parts),
        id=_name(body.get("id")),
        model=_name(body.get("model")),
        usage=_usage(body.get("usage")),
    )


def _messages_answer(body: dict[str, Any], status: int) -> Response:
    """Read a message of Anthropic's API."""
    content = body.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    stop = _name(body.get("stop_reason"))
    usage = _dict(body.get("usage"))
    return Response(
        status=status,
        body=body,
        text="".join(block["text"] for block in blocks if isinstance(block.get("text"), str)),
        finish_reason=_STOP_REASONS.get(stop or "", stop),
        tool_calls=sum(block.get("type") == "tool_use" for block in blocks),
        refusal=stop == "refusal",
        id=_name(body.get("id")),
        model=_name(body.get("model")),
        usage=Usage(
            input_tokens=_count(usage.get("input_tokens")),
            output_tokens=_count(usage.get("output_tokens")),
            cached_tokens=_count(usage.get("cache_read_input_tokens")),
            cache_write_tokens=_count(usage.get("cache_creation_input_tokens")),
        )
        if usage
        else None,
    )


def _usage(usage: Any) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    given = _dict(usage.get("prompt_tokens_details") or usage.get("input_tokens_details"))
    answered = _dict(usage.get("completion_tokens_details") or usage.get("output_tokens_details"))
    written = given.get("cache_write_tokens", given.get("cache_creation_tokens"))  # OpenRouter's name, LiteLLM's
    return Usage(
        input_tokens=_count(usage.get("prompt_tokens", usage.get("input_tokens"))),
        output_tokens=_count(usage.get("completion_tokens", usage.get("output_tokens"))),
        cached_tokens=_count(given.get("cached_tokens")),
        cache_write_tokens=_count(written),
        reasoning_tokens=_count(answered.get("reasoning_tokens")),
    )


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _name(value: Any) -> str | None:
    return bounded_name(value) if isinstance(value, str) else None
