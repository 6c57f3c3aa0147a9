"""Finds passages in results of the app's tools: chat tool and function messages, Anthropic tool results.

What counts as retrieval is said in `retrieval`. Every hop since the last user turn counts, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from gateway.contexts import BESIDE_RESULTS, Extraction, extraction, last_user_text, messages_of, text_of
from gateway.contexts.form.reader import question_in
from gateway.contexts.form.word_index import IndexedText
from gateway.contexts.retrieval_rule import descriptions_of, retrieved
from gateway.contexts.structure import StructureExtractor
from gateway.contexts.templates import TemplateExtractor
from gateway.contexts.written_steps import ASKED, WRITTEN, asked_in
from gateway.exchange import Request, Response
from monitors.records import Context

_QUERY_KEYS = ("query", "question", "q", "input", "search_query", "queries", "keywords")
_MARKERS = 3
_PARAGRAPHS = 20
MOST_HOPS = 400
"""Most results read, the last ones: more than an agent needs for one answer."""

_decode = msgspec.json.Decoder().decode


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
            Context(text=one.text, id=one.id, score=one.score, source=one.source, hop=self.hop, tool=self.name)
            for one in found
        ]


_PROMPT = 200
"""Characters from which a user turn may be a whole prompt."""


_READERS = (TemplateExtractor(), StructureExtractor())


class ToolExtractor:
    """Reads the results of tools called since the last user turn."""

    def extract(self, request: Request, response: Response) -> Extraction | None:
        if request.route == "responses":
            return None
        contexts: list[Context] = []
        hops: list[Call] = []
        descriptions = descriptions_of(request.body)
        for call, content in _results_of_this_turn(request):
            if (found := retrieved(call.name, content, descriptions.get(call.name or ""))) is not None:
                contexts += call.placed(found)
                hops.append(call)
        if not hops:
            return None
        question = _asked(request) or next((said for hop in hops if (said := query_of(hop.arguments))), None)
        if (prompt := _prompt(question, response)) is not None:
            known = {one.text for one in prompt.contexts}
            question = prompt.question
            contexts = [*prompt.contexts, *(one for one in contexts if one.text not in known)]
        return extraction(question, contexts, source="tools", marker=marker_of(hops))


def _asked(request: Request) -> str | None:
    """Return the last user turn, from the question's label on where the turn has the steps of an agent."""
    users = (one for one in reversed(messages_of(request)) if one.get("role") == "user")
    marked = next((one[ASKED] for one in users if ASKED in one), None)
    return marked or last_user_text(request)


def _prompt(said: str | None, response: Response) -> Extraction | None:
    """Return what a user turn holds that an app has wrapped in a prompt before the tools were called."""
    if said is None:
        return None
    turn = [{"role": "user", "content": said}]
    alone = Request(route="chat_completions", headers={}, body={"messages": turn})
    found = (one.extract(alone, response) for one in _READERS if len(said) >= _PROMPT and "\n" in said)
    read = next((one for one in found if one is not None and one.question), None)
    if read is not None:
        return read
    if (asked := question_in(said)) is None and (labelled := asked_in(said)) is not None:
        asked = _without_instructions(labelled)
        asked = None if IndexedText(asked).is_meta(0, len(asked)) else asked
    return None if asked is None else Extraction(question=asked, contexts=(), source="structure")


def query_of(arguments: Any) -> str | None:
    """Return the search query in a tool's arguments."""
    if isinstance(arguments, str):
        try:
            arguments = _decode(arguments.encode())
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return None
    if not isinstance(arguments, dict):
        return None
    for key in _QUERY_KEYS:
        said = arguments.get(key)
        first = said[0] if isinstance(said, list) and said else said
        if isinstance(first, str) and first.strip():
            return first
    return None


def marker_of(hops: list[Call]) -> str:
    """Return the distinct tool names."""
    names = list(dict.fromkeys(hop.name for hop in hops if hop.name))
    return ", ".join(names[:_MARKERS]) or "tool"


def _results_of_this_turn(request: Request) -> list[tuple[Call, Any]]:
    calls: dict[str, Call] = {}
    turn: list[tuple[Call, Any]] = []
    hop = 0
    message: dict[str, Any] = {}
    for message in messages_of(request):
        role = message.get("role")
        if role == "user" and not message.get(BESIDE_RESULTS) and text_of(message.get("content")).strip():
            turn.clear()
            hop = 0
        elif role == "assistant":
            called = {name: call._replace(hop=hop + 1) for name, call in _calls_of(message)}
            hop += bool(called)
            calls |= called
        elif role in ("tool", "function"):
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
    listed = message.get("tool_calls")
    for call in listed if isinstance(listed, list) else []:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict) and isinstance(call.get("id"), str):
            yield call["id"], Call(_string(function.get("name")), function.get("arguments"))
    if isinstance(legacy := message.get("function_call"), dict) and isinstance(legacy.get("name"), str):
        yield legacy["name"], Call(legacy["name"], legacy.get("arguments"))
    blocks = message.get("content")
    for block in blocks if isinstance(blocks, list) else []:
        if isinstance(block, dict) and block.get("type") == "tool_use" and isinstance(block.get("id"), str):
            yield block["id"], Call(_string(block.get("name")), block.get("input"))


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None
