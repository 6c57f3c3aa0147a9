"""Reads the answer from response bodies: chat completions, completions, Responses API, Anthropic messages."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from gaugeway.exchange import DECISION_ROUTES, Response
from gaugeway.prompts import dicts, text_of, text_parts
from gaugeway.records import Usage
from gaugeway.settings.bounds import bounded_name
from gaugeway.settings.bounds import token_count as _count

_STOP_REASONS = {
    **dict.fromkeys(("max_tokens", "model_context_window_exceeded"), "length"),
    "tool_use": "tool_calls",
    "end_turn": "stop",
    "stop_sequence": "stop",
}


class _Answer(NamedTuple):
    """What each API writes in a way of its own."""

    text: str
    finish_reason: str | None
    tool_calls: int
    refusal: bool
    usage: Usage | None


def read(route: str, body: dict[str, Any], status: int) -> Response:
    """Read the response body of a generation route; unexpected types are ignored, never an error."""
    decisions = dict.fromkeys(DECISION_ROUTES, _decisions)
    readers = {"responses": _responses_answer, "messages": _messages_answer, **decisions}
    answer = readers.get(route, _choices_answer)(body)
    return Response(
        status=status, body=body, id=_name(body.get("id")), model=_name(body.get("model")), **answer._asdict()
    )


def _choices_answer(body: dict[str, Any]) -> _Answer:
    """Read a chat completion or a completion; of several choices the first is the answer."""
    choices = body.get("choices")
    choice = _dict(choices[0]) if isinstance(choices, list) and choices else {}
    message = _dict(choice.get("message"))
    content = text_of(message.get("content")) if message else choice.get("text")
    refusal = message.get("refusal")
    calls = message.get("tool_calls")
    return _Answer(
        content if isinstance(content, str) and content else refusal if isinstance(refusal, str) else "",
        _name(choice.get("finish_reason")),
        len(calls) if isinstance(calls, list) else int(bool(message.get("function_call"))),
        bool(refusal),
        _usage(body.get("usage")),
    )


def _responses_answer(body: dict[str, Any]) -> _Answer:
    """Read an object of the Responses API."""
    output = dicts(body.get("output"))
    parts = [part for item in output if item.get("type") == "message" for part in dicts(item.get("content"))]
    cut = _dict(body.get("incomplete_details")).get("reason")
    return _Answer(
        "".join(text_parts(parts)),
        "length" if cut == "max_output_tokens" else _name(cut),
        sum(item.get("type") in ("function_call", "custom_tool_call") for item in output),
        any(part.get("type") == "refusal" for part in parts),
        _usage(body.get("usage")),
    )


def _messages_answer(body: dict[str, Any]) -> _Answer:
    """Read a message of Anthropic's API."""
    blocks = dicts(body.get("content"))
    stop = _name(body.get("stop_reason"))
    said = _dict(body.get("usage"))
    usage = Usage(
        input_tokens=_count(said.get("input_tokens")),
        output_tokens=_count(said.get("output_tokens")),
        cached_tokens=_count(said.get("cache_read_input_tokens")),
        cache_write_tokens=_count(said.get("cache_creation_input_tokens")),
    )
    return _Answer(
        "".join(text_parts(blocks)),
        _STOP_REASONS.get(stop or "", stop),
        sum(block.get("type") == "tool_use" for block in blocks),
        stop == "refusal",
        usage if said else None,
    )


def _decisions(body: dict[str, Any]) -> _Answer:
    """Read the answers to typed questions, a list (OpenAI) or an object by name (TypeSafe): their text is JSON."""
    answers = body.get("answers")
    text = msgspec.json.encode(answers).decode() if isinstance(answers, (list, dict)) else ""
    return _Answer(text, None, 0, refusal=False, usage=_usage(body.get("usage")))


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
