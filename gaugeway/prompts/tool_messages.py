"""Finds passages in results: of the app's tools, of the provider's hosted tools, and in document fields and blocks.

What counts as retrieval is said in `retrieval_rule`. Every hop since the last user turn counts, in order. Citations
name a source and a stretch of the answer, mostly without the source's text. Only those with a text of the source are
passages: a title is nothing an answer could be judged by, and the answer's own words prove nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from gaugeway.exchange import Request, Response
from gaugeway.prompts import (
    BESIDE_RESULTS,
    Evidence,
    Extraction,
    dicts,
    extraction,
    last_user_text,
    messages_of,
    text_of,
    user_texts,
)
from gaugeway.prompts.form.reader import question_in
from gaugeway.prompts.form.word_index import IndexedText
from gaugeway.prompts.notation import decoded, json_value
from gaugeway.prompts.parse import read
from gaugeway.prompts.retrieval_rule import descriptions_of, retrieved
from gaugeway.prompts.sizes import CROWD, FEW, MANY, PARAGRAPH, SEVERAL
from gaugeway.prompts.structure import StructureExtractor
from gaugeway.prompts.templates import TemplateExtractor
from gaugeway.prompts.written_steps import ASKED, WRITTEN, asked_in
from gaugeway.records import Context
from gaugeway.settings.bounds import MAX_PASSAGES

_QUERY_KEYS = ("query", "question", "q", "input", "search_query", "queries", "keywords")
_MARKERS = FEW
_PARAGRAPHS = MANY
MOST_HOPS = CROWD
"""Most results read, the last ones: more than an agent needs for one answer."""

_RESULT_ROLES = ("tool", "function")
_LEAST_WRAPPED = SEVERAL
_PROMPT = PARAGRAPH // 2
"""Characters from which a user turn may be a whole prompt."""
_READERS = (TemplateExtractor(), StructureExtractor())


class Call(NamedTuple):
    """A tool call of the model. `arguments` is JSON text, or (Anthropic) an object.

    `hop` counts the model's messages with calls since the last user turn, from 1; None if the call is not shown.
    """

    name: str | None
    arguments: Any
    hop: int | None = None

    def placed(self, found: Iterable[Context]) -> Iterable[Context]:
        """Return passages that it retrieved, with its hop and its name, where the hop is known."""
        if self.hop is None:
            return found
        return [
            Context(
                text=passage.text,
                id=passage.id,
                score=passage.score,
                source=passage.source,
                hop=self.hop,
                tool=self.name,
            )
            for passage in found
        ]


_Step = tuple[Call, tuple[Context, ...]]


class ToolExtractor:
    """Reads the results of tools called since the last user turn."""

    evidence: Evidence = "tool results"

    def extract(self, request: Request, response: Response) -> Extraction | None:
        if request.route == "responses":
            return None
        descriptions = descriptions_of(request.body)
        results = ((call, content, descriptions.get(call.name or "")) for call, content in _results_of_turn(request))
        steps = ((call, retrieved(call.name, content, said)) for call, content, said in results)
        contexts, hops, query = _gathered((call, found) for call, found in steps if found is not None)
        if not hops:
            return None
        question = _asked(request) or query
        if (prompt := _prompt(question, response)) is not None:
            known = {passage.text for passage in prompt.contexts}
            question = prompt.question
            contexts = [*prompt.contexts, *(passage for passage in contexts if passage.text not in known)]
        return extraction(question, contexts, source="tools", marker=_marker_of(hops))


def _gathered(steps: Iterable[_Step]) -> tuple[list[Context], list[Call], str | None]:
    """Return the passages of some steps, their calls, and the first search query in these."""
    contexts: list[Context] = []
    hops: list[Call] = []
    for call, found in steps:
        contexts += call.placed(found)
        hops.append(call)
    return contexts, hops, next((said for hop in hops if (said := _query_of(hop.arguments))), None)


def _asked(request: Request) -> str | None:
    """Return the last user turn, from the question's label on where the turn has the steps of an agent.

    Of a turn that an app wrote around the user's one before it, once its tools had answered, that one.
    """
    users = [message for message in reversed(messages_of(request)) if message.get("role") == "user"]
    marked = next((message[ASKED] for message in users if ASKED in message), None)
    last, *before = user_texts(request) or [""]
    wrapped = bool(before) and _wraps(last, before[0].strip()) and messages_of(request)[-1].get("role") == "user"
    return marked or (before[0].strip() if wrapped else last_user_text(request))


def _wraps(said: str, asked: str) -> bool:
    """Whether a text has all of a question in it, and more."""
    return len(asked) >= _LEAST_WRAPPED and asked in said and said.strip() != asked


def _prompt(said: str | None, response: Response) -> Extraction | None:
    """Return what a user turn holds that an app has wrapped in a prompt before the tools were called."""
    if said is None:
        return None
    turn = [{"role": "user", "content": said}]
    alone = Request(route="chat_completions", headers={}, body={"messages": turn})
    found = (reader.extract(alone, response) for reader in _READERS if len(said) >= _PROMPT and "\n" in said)
    read = next((reading for reading in found if reading is not None and reading.question), None)
    if read is not None:
        return read
    if (asked := question_in(said)) is None and (labelled := asked_in(said)) is not None:
        asked = _without_instructions(labelled)
        asked = None if IndexedText(asked).is_meta(0, len(asked)) else asked
    return None if asked is None else Extraction(question=asked, contexts=(), source="structure")


def _query_of(arguments: Any) -> str | None:
    """Return the search query in a tool's arguments."""
    arguments = json_value(arguments) if isinstance(arguments, str) else arguments
    if not isinstance(arguments, dict):
        return None
    for key in _QUERY_KEYS:
        said = arguments.get(key)
        first = said[0] if isinstance(said, list) and said else said
        if isinstance(first, str) and first.strip():
            return first
    return None


def _marker_of(hops: list[Call]) -> str:
    """Return the distinct tool names."""
    names = list(dict.fromkeys(hop.name for hop in hops if hop.name))
    return ", ".join(names[:_MARKERS]) or "tool"


def _results_of_turn(request: Request) -> list[tuple[Call, Any]]:
    calls: dict[str, Call] = {}
    turn: list[tuple[Call, Any]] = []
    hop, asked, role = 0, "", None
    message: dict[str, Any] = {}
    for message in messages_of(request):
        before, role = role, message.get("role")
        said = text_of(message.get("content")).strip() if role == "user" and not message.get(BESIDE_RESULTS) else ""
        if said and not (before in _RESULT_ROLES and _wraps(said, asked)):
            turn.clear()
            asked, hop = said, 0
        elif role == "assistant":
            called = {name: call._replace(hop=hop + 1) for name, call in _calls_of(message)}
            hop += bool(called)
            calls |= called
        elif role in _RESULT_ROLES:
            identity, name = message.get("tool_call_id"), message.get("name")
            call = calls.get(identity) if isinstance(identity, str) else None
            if call is None and isinstance(name, str):
                call = calls.get(name) or Call(name, None)
            turn.append((call or Call(None, None), message.get("content")))
    if turn and message.get(WRITTEN):
        turn[-1] = turn[-1][0], _without_instructions(message["content"])
    return turn[-MOST_HOPS:]


def _without_instructions(said: str) -> str:
    """Cut the paragraphs at the end of a result written as text that instruct the model: the prompt goes on there."""
    words = IndexedText(said)
    for _ in range(_PARAGRAPHS):
        at = said.rfind("\n\n")
        if at <= 0 or not words.is_meta(at, len(said)):
            break
        said = said[:at].rstrip()
    return said


def _calls_of(message: dict[str, Any]) -> Iterator[tuple[str, Call]]:
    """Yield the calls of an assistant message by ID; the legacy single call, which has none, by name."""
    for call in dicts(message.get("tool_calls")):
        function = call.get("function")
        if isinstance(function, dict) and isinstance(call.get("id"), str):
            yield call["id"], Call(_string(function.get("name")), function.get("arguments"))
    if isinstance(legacy := message.get("function_call"), dict) and isinstance(legacy.get("name"), str):
        yield legacy["name"], Call(legacy["name"], legacy.get("arguments"))
    for block in dicts(message.get("content")):
        if block.get("type") == "tool_use" and isinstance(block.get("id"), str):
            yield block["id"], Call(_string(block.get("name")), block.get("input"))


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


class ResultExtractor:
    """Reads the retrieval in the response, and the Responses API items since the last user turn, in order."""

    evidence: Evidence = "response"

    def extract(self, request: Request, response: Response) -> Extraction | None:
        steps = _items(request, response) if request.route == "responses" else _beside_the_answer(response.body)
        contexts, hops, query = _gathered(steps)
        if not hops:
            return None
        return extraction(last_user_text(request) or query, contexts, source="results", marker=_marker_of(hops))


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
                calls[item["call_id"]] = Call(_filled(item.get("name")), arguments, hop)
            calling = item["type"] in ("function_call", "custom_tool_call")
    for item in [*turn[-MOST_HOPS:], *dicts(response.body.get("output"))[:MOST_HOPS]]:
        yield from _item(item, calls, descriptions)


def _item(item: dict[str, Any], calls: dict[str, Call], descriptions: dict[str, str]) -> Iterator[_Step]:
    kind = item.get("type")
    if kind in ("function_call_output", "custom_tool_call_output"):
        identity = item.get("call_id")
        call = calls.get(identity) if isinstance(identity, str) else None
        call = call or Call(_filled(item.get("name")), None)
        if (found := retrieved(call.name, item.get("output"), descriptions.get(call.name or ""))) is not None:
            yield call, found
    elif kind == "mcp_call":
        call = Call(_filled(item.get("name")), item.get("arguments"))
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
    for choice in dicts(body.get("choices"))[:1]:
        message = choice.get("message")
        message = message if isinstance(message, dict) else {}
        context = message.get("context", choice.get("context"))
        if isinstance(context, dict):
            yield from _azure(context)
        if hits := _citations({"content": [message]}):
            yield Call("citations", None), hits
    if hits := tuple(_hits(body.get("search_results"))):
        yield Call("search_results", None), hits
    yield from _anthropic(dicts(body.get("content")))


def _azure(context: dict[str, Any]) -> Iterator[_Step]:
    """Azure On Your Data: `context.citations`; before 2024-02-15 JSON in a tool message under `context.messages`."""
    for message in dicts(context.get("messages")):
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
                text=citation["content"],
                id=_filled(citation.get("chunk_id")) or _filled(citation.get("id")),
                source=_filled(citation.get("filepath"))
                or _filled(citation.get("url"))
                or _filled(citation.get("title")),
            )
            for citation in dicts(context["citations"])
            if isinstance(citation.get("content"), str) and citation["content"].strip()
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
            call = Call(_filled(use.get("name")), use.get("input"))
            if (found := retrieved(call.name, block.get("content"))) is not None:
                yield call, found
        for citation in dicts(block.get("citations")):
            text = citation.get("cited_text")
            if citation.get("type") == "web_search_result_location" and isinstance(text, str) and text.strip():
                source = _filled(citation.get("url")) or _filled(citation.get("title"))
                quoted.setdefault(text, Context(text=text, source=source))
    if quoted:
        yield Call("web_search", None), tuple(quoted.values())


def _citations(message: dict[str, Any]) -> tuple[Context, ...]:
    """Return the distinct texts quoted by URL and file citations."""
    quoted: dict[str, Context] = {}
    for part in dicts(message.get("content")):
        for annotation in dicts(part.get("annotations")):
            inner = annotation.get(annotation["type"]) if isinstance(annotation.get("type"), str) else None
            said = inner if isinstance(inner, dict) else annotation
            text = next((said[key] for key in ("content", "quote", "text") if isinstance(said.get(key), str)), "")
            if text.strip():
                source = _filled(said.get("url")) or _filled(said.get("filename")) or _filled(said.get("title"))
                quoted.setdefault(text, Context(text=text, id=_filled(said.get("file_id")), source=source))
    return tuple(quoted.values())


def _hits(value: Any) -> Iterator[Context]:
    if isinstance(value, list):
        yield from (record.context for record in read(value))


def _filled(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


class DocumentExtractor:
    """Reads document blocks and fields."""

    evidence: Evidence = "document blocks"

    def extract(self, request: Request, response: Response) -> Extraction | None:  # noqa: ARG002 - the port's shape
        blocks = list(islice(_blocks(request), MAX_PASSAGES + 1))
        if not blocks:
            return None
        return extraction(last_user_text(request), blocks, source="documents", marker="document blocks")


def _blocks(request: Request) -> Iterator[Context]:
    yield from _hits(request.body.get("documents"))
    for message in messages_of(request):
        for block in dicts(message.get("content")) if message.get("role") == "user" else []:
            if block.get("type") == "search_result":
                yield from (record.context for record in read(block))
            elif block.get("type") == "document":
                yield from _document_block(block)


def _document_block(block: dict[str, Any]) -> Iterator[Context]:
    source, title = block.get("source"), block.get("title")
    said = source.get("data", source.get("content")) if isinstance(source, dict) else None
    if not isinstance(source, dict) or source.get("type") not in ("text", "content"):
        return
    for record in read({"content": said} if isinstance(said, list) else said):
        yield Context(text=record.context.text, source=title if isinstance(title, str) else None)
