"""Fields of a data set about the conversation of a record: its session, the messages before, and the tool calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from gaugeway.records import Message, Sample, ToolCall
from gaugeway.redaction import Redactor
from gaugeway.settings.bounds import MAX_CALLS, MAX_HISTORY, MAX_TURNS, bounded_calls, bounded_history, optional_name
from gaugeway.settings.shared import Sampled

MESSAGES, CALLS = "history", "tool_calls"
NAMES = frozenset({"session", "conversation_id"})
COUNTS = frozenset({"turn", "hop"})
_ROLES = ("user", "assistant")


def problems(name: str, value: Any) -> Iterator[str]:
    """Yield the problems of a value of one of these fields."""
    if name in NAMES:
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            yield "expected a name or a number"
    elif name in COUNTS:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value <= MAX_TURNS or value % 1:
            yield f"expected a whole number from 1 to {MAX_TURNS:,}"
    elif isinstance(value, str) or not isinstance(value, Sequence):
        yield "expected a list of objects"
    else:
        check = _message_problem if name == MESSAGES else _call_problem
        for index, item in enumerate(value):
            if problem := check(item):
                yield f"[{index}] {problem}"


def in_conversation(sample: Sample, found: Mapping[str, Any]) -> Sample:
    """Return the sample with the fields of `found` that are about its conversation."""
    said = (_message(item) for item in found.get(MESSAGES, ()))
    return replace(
        sample,
        session=optional_name(_name(found.get("session"))),
        conversation=optional_name(_name(found.get("conversation_id"))),
        cluster=optional_name(found.get("cluster")),
        turn=_count(found.get("turn")),
        hop=_count(found.get("hop")),
        history=tuple(message for message in said if message is not None),
        calls=tuple(_call(item) for item in found.get(CALLS, ())),
    )


def protected(samples: Iterable[Sample], capture: Sampled) -> list[Sample]:
    """Return the samples with histories and tool calls redacted as `[capture]` says, and bounded like captured ones."""
    redactor = Redactor(capture.redact, tuple(capture.redact_patterns.items()), capture.salt)
    return [_protected(sample, redactor) if sample.history or sample.calls else sample for sample in samples]


def _protected(sample: Sample, redactor: Redactor) -> Sample:
    """Redact, then truncate: a secret that is cut in half would not be recognised."""
    history = (replace(message, text=redactor.redact(message.text)) for message in sample.history[-MAX_HISTORY:])
    calls = (replace(call, arguments=redactor.redact(call.arguments)) for call in sample.calls[:MAX_CALLS])
    return replace(sample, history=bounded_history(tuple(history)), calls=bounded_calls(tuple(calls)))


def _message_problem(item: Any) -> str:
    if isinstance(item, Message):
        return ""
    if not isinstance(item, Mapping) or not isinstance(item.get("role"), str):
        return "expected an object with role and content"
    content = item.get("content")
    return "" if content is None or isinstance(content, str) else "content: expected a text"


def _message(item: Any) -> Message | None:
    """Return a message of user or model; None for what a captured history leaves out (other roles, no text)."""
    if isinstance(item, Message):
        return item
    role, text = item["role"], item.get("content")
    return Message(role=role, text=text) if role in _ROLES and text and not text.isspace() else None


def _call_problem(item: Any) -> str:
    if isinstance(item, ToolCall):
        return ""
    if not isinstance(item, Mapping) or not isinstance(item.get("name"), str):
        return "expected an object with name and arguments"
    if not isinstance(item.get("arguments"), (str, Mapping, type(None))):
        return "arguments: expected a text or an object"
    hop = item.get("hop")
    return "" if hop is None else next((f"hop: {problem}" for problem in problems("hop", hop)), "")


def _call(item: Any) -> ToolCall:
    if isinstance(item, ToolCall):
        return item
    said = item.get("arguments") or ""
    text = said if isinstance(said, str) else msgspec.json.encode(said).decode()
    return ToolCall(name=item["name"], arguments=text, hop=_count(item.get("hop")))


def _name(value: Any) -> str | None:
    return None if value is None or not str(value).strip() else str(value)


def _count(value: Any) -> int | None:
    return None if value is None else int(value)
