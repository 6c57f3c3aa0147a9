"""The model behind the gateway: follows a script, in the dialects of the three APIs, streamed or not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from tests.support.llm_server import Reply, Request

ANSWER = "The handbook says so in the passages above."
_USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
_REWRITES = ("tandalone question", "Rewrite the follow-up")
_FOLLOW_UP = re.compile(r"Follow Up (?:Input: |Message>\n)(.+)")


def answer(request: Request) -> Reply:
    """Ask for the tool where one is offered and has not been used in this turn; rewrite where asked to; answer else."""
    body = request.body
    if request.path.endswith("/responses"):
        return _responses(body)
    text = _rewritten(body) if any(mark in json.dumps(body) for mark in _REWRITES) else ANSWER
    if request.path.endswith("/chat/completions"):
        tool = _tool_to_call(body.get("messages", []), [one["function"] for one in body.get("tools", [])])
        return _chat(body, text, tool)
    choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": "stop", "logprobs": None}
    head = {"id": "c", "object": "text_completion", "created": 0, "model": body["model"]}
    return _json({**head, "choices": [choice], "usage": _USAGE})


def _rewritten(body: dict[str, Any]) -> str:
    last: str = body["messages"][-1]["content"]
    found = _FOLLOW_UP.search(last)
    return f"About the coffee machine: {found[1] if found else last}"


def _tool_to_call(turns: list[dict[str, Any]], tools: list[dict[str, Any]]) -> dict[str, str] | None:
    last = turns[-1] if turns else {}
    if not tools or last.get("role") == "tool" or last.get("type") == "function_call_output":
        return None
    asked = [turn["content"] for turn in turns if turn.get("role") == "user"][-1]
    query = asked if isinstance(asked, str) else "".join(part.get("text", "") for part in asked)
    parameters = tools[0]["parameters"]["properties"]
    return {"name": tools[0]["name"], "arguments": json.dumps({next(iter(parameters)): query})}


def _chat(body: dict[str, Any], text: str, tool: dict[str, str] | None) -> Reply:
    message: dict[str, Any] = {"role": "assistant", "content": None if tool else text}
    if tool:
        message["tool_calls"] = [{"index": 0, "id": "call_1", "type": "function", "function": tool}]
    finish = "tool_calls" if tool else "stop"
    head = {"id": "c", "created": 0, "model": body["model"]}
    if not body.get("stream"):
        for call in message.get("tool_calls", []):
            del call["index"]
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
        return _json({**head, "object": "chat.completion", "choices": [choice], "usage": _USAGE})
    halves = [message] if tool else [{"content": text[:9], "role": "assistant"}, {"content": text[9:]}]
    deltas: list[dict[str, Any]] = [{"index": 0, "delta": one, "finish_reason": None} for one in halves]
    deltas.append({"index": 0, "delta": {}, "finish_reason": finish})
    chunks = [{**head, "object": "chat.completion.chunk", "choices": [one]} for one in deltas]
    chunks.append({**head, "object": "chat.completion.chunk", "choices": [], "usage": _USAGE})
    return _stream([*(f"data: {json.dumps(one)}" for one in chunks), "data: [DONE]"])


def _responses(body: dict[str, Any]) -> Reply:
    said = body["input"]
    turns = [{"role": "user", "content": said}] if isinstance(said, str) else said
    tool = _tool_to_call(turns, body.get("tools", []))
    part = {"type": "output_text", "text": ANSWER, "annotations": [], "logprobs": []}
    item: dict[str, Any] = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
    if tool:
        item = {"type": "function_call", "id": "f", "call_id": "call_1", "status": "completed", **tool}
    usage: dict[str, Any] = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    response = {"id": "r", "object": "response", "created_at": 0, "model": body["model"], "status": "completed"}
    response |= {"output": [item], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "usage": usage}
    if not body.get("stream"):
        return _json(response)
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {**response, "output": []}}]
    place = {"output_index": 0, "item_id": item["id"]}
    if tool:
        opened = {**item, "arguments": "", "status": "in_progress"}
        filled = [{"type": "response.function_call_arguments.delta", **place, "delta": tool["arguments"]}]
        filled.append({"type": "response.function_call_arguments.done", **place, **tool})
    else:
        opened = {**item, "content": [], "status": "in_progress"}
        place = {**place, "content_index": 0}
        filled = [{"type": "response.content_part.added", **place, "part": {**part, "text": ""}}]
        filled.append({"type": "response.output_text.delta", **place, "delta": ANSWER, "logprobs": []})
        filled.append({"type": "response.output_text.done", **place, "text": ANSWER, "logprobs": []})
        filled.append({"type": "response.content_part.done", **place, "part": part})
    events += [{"type": "response.output_item.added", "output_index": 0, "item": opened}, *filled]
    events.append({"type": "response.output_item.done", "output_index": 0, "item": item})
    events.append({"type": "response.completed", "response": response})
    numbered = [{**event, "sequence_number": number} for number, event in enumerate(events)]
    return _stream(f"event: {event['type']}\ndata: {json.dumps(event)}" for event in numbered)


def _json(body: dict[str, Any]) -> Reply:
    return Reply(body=json.dumps(body).encode())


def _stream(events: Iterable[str]) -> Reply:
    body = "".join(event + "\n\n" for event in events).encode()
    return Reply(body=body, headers={"content-type": "text/event-stream"})
