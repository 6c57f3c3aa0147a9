"""Passages that came as results of the app's tools (chat tool and function messages, Responses API outputs)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from gateway.contexts import Extraction, last_user_text, messages_of, text_of
from gateway.exchange import Request, Response
from monitors.records import Context

_TEXT_KEYS = ("text", "content", "page_content", "snippet", "chunk", "passage", "body")
_LIST_KEYS = ("results", "documents", "docs", "passages", "contexts", "chunks", "items", "data", "matches", "content")
_SOURCE_KEYS = ("source", "url", "filename", "file", "title", "path")
_QUERY_KEYS = ("query", "question", "q", "input", "search_query")
_SOURCE_BLOCKS = re.compile(r"(?:\A|\n\n)Source: (?P<source>[^\n]*)\nContent: ", re.DOTALL)
_decode = msgspec.json.Decoder().decode


class ToolExtractor:
    """Results of tools called since the last user turn; each list entry or `Source:`/`Content:` block is a passage."""

    def extract(self, request: Request, response: Response) -> Extraction | None:  # noqa: ARG002 - the port's shape
        results = list(_results_of_this_turn(request))
        if not results:
            return None
        contexts = tuple(context for result in results for context in passages(result))
        question = last_user_text(request) or _query(request)
        return Extraction(question=question, contexts=contexts, source="tools")


def passages(content: str) -> tuple[Context, ...]:
    """Read one tool result: JSON lists and objects with the usual text keys, LangChain's blocks, or plain text."""
    stripped = content.strip()
    if stripped[:1] in ("[", "{"):
        try:
            value = _decode(stripped.encode())
        except (msgspec.DecodeError, UnicodeEncodeError):
            value = None
        found = tuple(_from_json(value))
        if found or value in ([], {}):
            return found
    blocks = list(_SOURCE_BLOCKS.finditer(stripped))
    if blocks and blocks[0].start() == 0:
        ends = [block.start() for block in blocks[1:]] + [len(stripped)]
        return tuple(
            Context(text=stripped[block.end() : end].strip(), source=block["source"].strip() or None)
            for block, end in zip(blocks, ends, strict=True)
        )
    return (Context(text=stripped),) if stripped else ()


def _results_of_this_turn(request: Request) -> Iterator[str]:
    turn: list[str] = []
    for message in messages_of(request):
        if message.get("role") == "user":
            turn.clear()
        elif message.get("role") in ("tool", "function"):
            turn.append(text_of(message.get("content")))
        elif message.get("type") == "function_call_output":
            turn.append(text_of(message.get("output")))
    yield from turn


def _from_json(value: Any) -> Iterator[Context]:
    if isinstance(value, list):
        for entry in value:
            if isinstance(entry, str) and entry.strip():
                yield Context(text=entry)
            elif isinstance(entry, dict):
                yield from _from_object(entry)
    elif isinstance(value, dict):
        for key in _LIST_KEYS:
            if isinstance(value.get(key), list):
                yield from _from_json(value[key])
                return
        yield from _from_object(value)


def _from_object(entry: dict[str, Any]) -> Iterator[Context]:
    inner = entry.get("metadata")
    metadata = inner if isinstance(inner, dict) else {}
    text = next((entry[key] for key in _TEXT_KEYS if isinstance(entry.get(key), str) and entry[key].strip()), None)
    if text is None:
        return
    source = next(
        (one for key in _SOURCE_KEYS for one in (entry.get(key), metadata.get(key)) if isinstance(one, str)), None
    )
    identity = entry.get("id")
    yield Context(
        text=text,
        id=str(identity) if isinstance(identity, str | int) and not isinstance(identity, bool) else None,
        score=_score(entry.get("score")),
        source=source,
    )


def _score(value: Any) -> float | None:
    """Return a retriever's score; whatever is no finite number is left out."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > sys.float_info.max:
        return None
    return float(value) if value == value else None  # noqa: PLR0124 - NaN is not equal to itself


def _query(request: Request) -> str | None:
    """Return what the app's model searched for, from the arguments of its last tool call."""
    for message in reversed(list(messages_of(request))):
        calls = message.get("tool_calls") if isinstance(message.get("tool_calls"), list) else [{"function": message}]
        for call in reversed(calls):
            function = call.get("function") if isinstance(call, dict) else None
            arguments = function.get("arguments") if isinstance(function, dict) else None
            if not isinstance(arguments, str):
                continue
            try:
                value = _decode(arguments.encode())
            except (msgspec.DecodeError, UnicodeEncodeError):
                continue
            for key in _QUERY_KEYS:
                if isinstance(value, dict) and isinstance(value.get(key), str):
                    return str(value[key])
    return None
