"""Finds passages retrieved by the provider or its hosted tools: Responses API items, and parts of a response.

Citations name a source and a stretch of the answer, mostly without the source's text. Only those with a text of the
source are passages: a title is nothing an answer could be judged by, and the answer's own words prove nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.contexts import Extraction, extraction, last_user_text, messages_of
from gateway.contexts.parse import decoded, read
from gateway.contexts.retrieval_rule import descriptions_of, retrieved
from gateway.contexts.tool_messages import MOST_HOPS, Call, marker_of, query_of
from gateway.exchange import Request, Response
from monitors.records import Context


class ResultExtractor:
    """Reads the retrieval in the response, and the Responses API items since the last user turn, in order."""

    def extract(self, request: Request, response: Response) -> Extraction | None:
        contexts: list[Context] = []
        hops: list[Call] = []
        steps = _items(request, response) if request.route == "responses" else _beside_the_answer(response.body)
        for call, found in steps:
            contexts += call.placed(found)
            hops.append(call)
        if not hops:
            return None
        question = last_user_text(request) or next((said for hop in hops if (said := query_of(hop.arguments))), None)
        return extraction(question, contexts, source="results", marker=marker_of(hops))


_Step = tuple[Call, tuple[Context, ...]]


def _items(request: Request, response: Response) -> Iterator[_Step]:
    """Yield the retrievals of this turn: first those in the request, then those made for this answer."""
    turn: list[dict[str, Any]] = []
    calls: dict[str, Call] = {}
    descriptions = descriptions_of(request.body)
    hop, calling = 0, False
    for item in messages_of(request):
        if item.get("role") == "user":
            turn.clear()
            hop, calling = 0, False
        elif isinstance(item.get("type"), str):
            turn.append(item)
            if item["type"] in ("function_call", "custom_tool_call") and isinstance(item.get("call_id"), str):
                hop += not calling  # several calls in a row are one response's
                arguments = item.get("arguments", item.get("input"))
                calls[item["call_id"]] = Call(_string(item.get("name")), arguments, hop)
            calling = item["type"] in ("function_call", "custom_tool_call")
    for item in [*turn[-MOST_HOPS:], *_dicts(response.body.get("output"))[:MOST_HOPS]]:
        yield from _item(item, calls, descriptions)


def _item(item: dict[str, Any], calls: dict[str, Call], descriptions: dict[str, str]) -> Iterator[_Step]:
    kind = item.get("type")
    if kind in ("function_call_output", "custom_tool_call_output"):
        identity = item.get("call_id")
        call = calls.get(identity) if isinstance(identity, str) else None
        call = call or Call(_string(item.get("name")), None)
        if (found := retrieved(call.name, item.get("output"), descriptions.get(call.name or ""))) is not None:
            yield call, found
    elif kind == "mcp_call":
        call = Call(_string(item.get("name")), item.get("arguments"))
        if not item.get("error") and (found := retrieved(call.name, item.get("output"))) is not None:
            yield call, found
    elif kind == "file_search_call" and isinstance(item.get("results"), list):
        yield Call("file_search", {"queries": item.get("queries")}), tuple(_hits(item["results"]))
    elif kind == "web_search_call":
        said = item.get("action")
        action = said if isinstance(said, dict) else item
        hits = tuple(_hits(action.get("sources"))) + tuple(_hits(item.get("results")))
        if hits:
            yield Call("web_search", action), hits
    elif kind == "message" and (hits := _citations(item)):
        yield Call("citations", None), hits


def _beside_the_answer(body: dict[str, Any]) -> Iterator[_Step]:
    """Yield the retrievals that chat completions and Anthropic messages return beside the answer."""
    for choice in _dicts(body.get("choices"))[:1]:
        message = choice.get("message")
        message = message if isinstance(message, dict) else {}
        context = message.get("context", choice.get("context"))
        if isinstance(context, dict):
            yield from _azure(context)
        if hits := _citations({"content": [message]}):
            yield Call("citations", None), hits
    if hits := tuple(_hits(body.get("search_results"))):
        yield Call("search_results", None), hits
    yield from _anthropic(_dicts(body.get("content")))


def _azure(context: dict[str, Any]) -> Iterator[_Step]:
    """Azure On Your Data: `context.citations`; before 2024-02-15 JSON in a tool message under `context.messages`."""
    for message in _dicts(context.get("messages")):
        inner = decoded(message["content"]) if isinstance(message.get("content"), str) else None
        if message.get("role") == "tool" and isinstance(inner, dict) and isinstance(inner.get("citations"), list):
            context = inner
    if not isinstance(context.get("citations"), list):
        return
    intent = context.get("intent")
    queries = decoded(intent) or [intent] if isinstance(intent, str) else intent
    yield (
        Call("context.citations", {"queries": queries}),
        tuple(
            Context(
                text=one["content"],
                id=_string(one.get("chunk_id")) or _string(one.get("id")),
                source=_string(one.get("filepath")) or _string(one.get("url")) or _string(one.get("title")),
            )
            for one in _dicts(context["citations"])
            if isinstance(one.get("content"), str) and one["content"].strip()
        ),
    )


def _anthropic(blocks: list[dict[str, Any]]) -> Iterator[_Step]:
    """Yield results of hosted MCP tools, and texts quoted by web search citations."""
    names = {block["id"]: block for block in blocks if isinstance(block.get("id"), str)}
    quoted: dict[str, Context] = {}
    for block in blocks:
        if block.get("type") == "mcp_tool_result" and block.get("is_error") is not True:
            identity = block.get("tool_use_id")
            use = names.get(identity, {}) if isinstance(identity, str) else {}
            call = Call(_string(use.get("name")), use.get("input"))
            if (found := retrieved(call.name, block.get("content"))) is not None:
                yield call, found
        for one in _dicts(block.get("citations")):
            text = one.get("cited_text")
            if one.get("type") == "web_search_result_location" and isinstance(text, str) and text.strip():
                source = _string(one.get("url")) or _string(one.get("title"))
                quoted.setdefault(text, Context(text=text, source=source))
    if quoted:
        yield Call("web_search", None), tuple(quoted.values())


def _citations(message: dict[str, Any]) -> tuple[Context, ...]:
    """Return the distinct texts quoted by URL and file citations."""
    quoted: dict[str, Context] = {}
    for part in _dicts(message.get("content")):
        for one in _dicts(part.get("annotations")):
            inner = one.get(one["type"]) if isinstance(one.get("type"), str) else None
            said = inner if isinstance(inner, dict) else one
            text = next((said[key] for key in ("content", "quote", "text") if isinstance(said.get(key), str)), "")
            if text.strip():
                source = _string(said.get("url")) or _string(said.get("filename")) or _string(said.get("title"))
                quoted.setdefault(text, Context(text=text, id=_string(said.get("file_id")), source=source))
    return tuple(quoted.values())


def _hits(value: Any) -> Iterator[Context]:
    if isinstance(value, list):
        yield from (one.context for one in read(value))


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
