"""The objects and stream events of OpenAI's API, filled with the scripted model's replies: pure."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec
import numpy as np

from gaugeway.demo import model_text as texts
from gaugeway.demo.model_reply import Reply, Turn, pieces

CREATED = 1_767_225_600
"""Every object's creation time: the same request always gets the same bytes."""

DIMENSIONS = 256
MODELS = ("handbook-1", "judge-1", "embed-1")
Event: TypeAlias = dict[str, Any]


def chat(turn: Turn, reply: Reply) -> dict[str, Any]:
    """Return a `chat.completion`."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text, "refusal": None, "annotations": []}
    if reply.tool:
        message |= {"content": None, "tool_calls": [_call(turn, reply, reply.arguments)]}
    choices = [
        {"index": index, "message": message, "logprobs": None, "finish_reason": _finish(reply)}
        for index in range(turn.choices)
    ]
    return _head("chatcmpl-", "chat.completion", turn) | {
        "choices": choices,
        "usage": usage(turn, reply),
        "service_tier": "default",
        "system_fingerprint": "fp_demo",
    }


def chat_chunks(turn: Turn, reply: Reply, *, include_usage: bool) -> Iterator[Event]:
    """Yield the `chat.completion.chunk`s of a stream; the choices take turns, as they do at OpenAI."""
    head = _head("chatcmpl-", "chat.completion.chunk", turn) | {"system_fingerprint": "fp_demo"}
    tail: dict[str, Any] = {"usage": None} if include_usage else {}

    def chunks(delta: dict[str, Any], finish: str | None = None) -> Iterator[Event]:
        for index in range(turn.choices):
            choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
            yield head | {"choices": [choice]} | tail

    if reply.tool:
        call = {"index": 0} | _call(turn, reply, "")
        yield from chunks({"role": "assistant", "content": None, "tool_calls": [call]})
    else:
        yield from chunks({"role": "assistant", "content": "", "refusal": None})
    for piece in pieces(reply.said):
        called = {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
        yield from chunks(called if reply.tool else {"content": piece})
    yield from chunks({}, _finish(reply))
    if include_usage:
        yield head | {"choices": [], "usage": usage(turn, reply)}


def completion(turn: Turn, reply: Reply) -> dict[str, Any]:
    """Return a `text_completion`."""
    choices = [
        {"text": reply.text, "index": index, "logprobs": None, "finish_reason": _finish(reply)}
        for index in range(turn.choices)
    ]
    return _head("cmpl-", "text_completion", turn) | {"choices": choices, "usage": usage(turn, reply)}


def completion_chunks(turn: Turn, reply: Reply, *, include_usage: bool) -> Iterator[Event]:
    """Yield the chunks of a streamed completion."""
    head = _head("cmpl-", "text_completion", turn)
    tail: dict[str, Any] = {"usage": None} if include_usage else {}
    parts = pieces(reply.text) or [""]
    for position, piece in enumerate(parts):
        finish = _finish(reply) if position == len(parts) - 1 else None
        for index in range(turn.choices):
            choice = {"text": piece, "index": index, "logprobs": None, "finish_reason": finish}
            yield head | {"choices": [choice]} | tail
    if include_usage:
        yield head | {"choices": [], "usage": usage(turn, reply)}


def response(turn: Turn, reply: Reply, status: str | None = None) -> dict[str, Any]:
    """Return a `response` object; with `status` the one that a stream shows while it runs."""
    done = status is None
    final = "incomplete" if reply.cut else "completed"
    return {
        "id": f"resp_{turn.fingerprint}",
        "object": "response",
        "created_at": CREATED,
        "status": status or final,
        "background": False,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if done and reply.cut else None,
        "instructions": next((text for role, text in turn.messages if role == "system"), None),
        "max_output_tokens": turn.max_tokens,
        "metadata": {},
        "model": turn.model,
        "output": [_item(turn, reply, reply.said, final)] if done else [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": response_usage(reply) if done else None,
    }


def response_events(turn: Turn, reply: Reply) -> Iterator[Event]:
    """Yield the events of a streamed response, in the order and with the numbering of the Responses API."""
    for number, event in enumerate(_response_events(turn, reply)):
        yield event | {"sequence_number": number}


def embeddings(model: str, inputs: list[str], encoding: str, dimensions: int) -> dict[str, Any]:
    """Return a list of embeddings, as floats or as base64 of little-endian 32-bit floats."""
    vectors = [embed(text, dimensions) for text in inputs]
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": base64.b64encode(vector.astype("<f4").tobytes()).decode()
            if encoding == "base64"
            else [float(value) for value in vector],
        }
        for index, vector in enumerate(vectors)
    ]
    tokens = sum(len(text.split()) for text in inputs)
    return {
        "object": "list",
        "data": data,
        "model": model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def embed(text: str, dimensions: int = DIMENSIONS) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Hash the content words of a text into a unit vector: texts that share words are near each other."""
    vector = np.zeros(dimensions, dtype=np.float32)
    for word in [*texts.content_words(text), *texts.numbers(text)] or ["(empty)"]:
        place = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "big")
        vector[place % dimensions] += 1.0 if place >> 63 else -1.0
    length = math.sqrt(float(vector @ vector))
    return np.asarray(vector / length if length else vector, dtype=np.float32)


def models() -> dict[str, Any]:
    """Return the list of models."""
    data = [{"id": name, "object": "model", "created": CREATED, "owned_by": "gaugeway-demo"} for name in MODELS]
    return {"object": "list", "data": data}


def error(message: str, code: str | None, *, param: str | None = None, server: bool = False) -> dict[str, Any]:
    """Return an error object."""
    kind = "server_error" if server else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def usage(turn: Turn, reply: Reply) -> dict[str, Any]:
    """Return the usage of the chat and completions APIs."""
    completion_tokens = reply.completion_tokens * turn.choices
    return {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": reply.prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


def response_usage(reply: Reply) -> dict[str, Any]:
    """Return the usage of the Responses API."""
    return {
        "input_tokens": reply.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": reply.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": reply.prompt_tokens + reply.completion_tokens,
    }


def server_sent(event: Event, *, named: bool = False) -> bytes:
    """Frame one event; `named` adds the event line of the Responses API."""
    line = f"event: {event['type']}\n".encode() if named else b""
    return line + b"data: " + msgspec.json.encode(event) + b"\n\n"


def _response_events(turn: Turn, reply: Reply) -> Iterator[Event]:
    final = "incomplete" if reply.cut else "completed"
    yield {"type": "response.created", "response": response(turn, reply, "in_progress")}
    yield {"type": "response.in_progress", "response": response(turn, reply, "in_progress")}
    started = _item(turn, reply, "", "in_progress")
    if not reply.tool:
        started |= {"content": []}
    yield {"type": "response.output_item.added", "output_index": 0, "item": started}
    yield from (_argument_events if reply.tool else _text_events)(turn, reply)
    item = _item(turn, reply, reply.said, final)
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": f"response.{final}", "response": response(turn, reply)}


def _text_events(turn: Turn, reply: Reply) -> Iterator[Event]:
    where = {"item_id": f"msg_{turn.fingerprint}", "output_index": 0, "content_index": 0}
    yield {"type": "response.content_part.added", **where, "part": _part("")}
    for piece in pieces(reply.text):
        yield {"type": "response.output_text.delta", **where, "delta": piece, "logprobs": []}
    yield {"type": "response.output_text.done", **where, "text": reply.text, "logprobs": []}
    yield {"type": "response.content_part.done", **where, "part": _part(reply.text)}


def _argument_events(turn: Turn, reply: Reply) -> Iterator[Event]:
    where = {"item_id": f"fc_{turn.fingerprint}", "output_index": 0}
    for piece in pieces(reply.arguments):
        yield {"type": "response.function_call_arguments.delta", **where, "delta": piece}
    done = {"name": reply.tool, "arguments": reply.arguments}
    yield {"type": "response.function_call_arguments.done", **where, **done}


def _item(turn: Turn, reply: Reply, said: str, status: str) -> dict[str, Any]:
    if reply.tool:
        call = {"call_id": f"call_{turn.fingerprint}", "name": reply.tool, "arguments": said}
        return {"id": f"fc_{turn.fingerprint}", "type": "function_call", "status": status, **call}
    message = {"status": status, "role": "assistant", "content": [_part(said)]}
    return {"id": f"msg_{turn.fingerprint}", "type": "message", **message}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _head(prefix: str, kind: str, turn: Turn) -> dict[str, Any]:
    return {"id": prefix + turn.fingerprint, "object": kind, "created": CREATED, "model": turn.model}


def _call(turn: Turn, reply: Reply, arguments: str) -> dict[str, Any]:
    function = {"name": reply.tool, "arguments": arguments}
    return {"id": f"call_{turn.fingerprint}", "type": "function", "function": function}


def _finish(reply: Reply) -> str:
    return "tool_calls" if reply.tool else "length" if reply.cut else "stop"
