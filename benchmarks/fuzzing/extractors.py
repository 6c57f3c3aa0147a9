"""Requests as apps send them: every extractor, what the client says out of band, auxiliary calls, prompt versions.

Beyond "never raises": passages stay within the bounds, texts can be stored as UTF-8, the same request gives the same
extraction, and our own key is cut out of a body without touching the rest.
An input is one byte of choices, then a JSON body, or texts parted by 0xFF that become a conversation of one of four
APIs: so that the search works on prompts and not on JSON's punctuation.
"""

from __future__ import annotations

import json
from functools import cache

import msgspec

from benchmarks.fuzzing.finding import expect
from gateway.capture.auxiliary_calls import KINDS, auxiliary
from gateway.capture.factory import extractors_of
from gateway.capture.fingerprints import prompt_version
from gateway.config import Capture as Settings
from gateway.http.errors import Rejection
from gateway.http.json_member import cut_key
from gaugeway.exchange import GENERATION_ROUTES, Request
from gaugeway.prompts import Extraction, UserTemplate
from gaugeway.prompts import response_text as answers
from gaugeway.prompts.explicit import ExplicitError, from_body_key, from_headers
from gaugeway.prompts.prompt_parts import locate
from gaugeway.settings.bounds import MAX_BYTES, MAX_PASSAGES

ROUTES = sorted(GENERATION_ROUTES)
ROLES = ("user", "system", "tool", "assistant", "user", "developer")
WORDS = [
    b"\xff",
    b"<context>",
    b"</context>",
    b"<documents>",
    b"<document index='1'>",
    b"</document>",
    b"<source>",
    b"</source>",
    b"Context:\n",
    b"Question:",
    b"Use the following pieces of context to answer the question at the end.",
    b"Context information is below.\n---------------------\n",
    b"Given the context information and not prior knowledge, answer the query.\nQuery: ",
    b"---------------------",
    b"Answer:",
    b"### Task:\n",
    b"[1] ",
    b"[2] ",
    b"```json",
    b"\n\n",
    b"----",
    b"Source: ",
    b"Score: 0.5",
    b'{"results":[{"text":"a","score":0.5}]}',
    b'[{"page_content":"a","metadata":{"source":"b"}}]',
    b'"gaugeway":{"contexts":["a"]}',
    b'"g\\u0061ugeway" :',
    b'{"messages":[{"role":"user","content":"',
    b'"tool_calls":[{"id":"c","type":"function","function":{"name":"search","arguments":"{}"}}]',
    b'{"type":"tool_result","tool_use_id":"c","content":',
    b'"file_search_call","results":[{"text":"a"}]',
    b"No results found",
    b"standalone question",
    b"chat history",
]
SEEDS = [
    (
        b"\x00Use the following pieces of context to answer the question at the end.\n\nParis is big.\n\n"
        b"Rome is old.\n\nQuestion: How big?\nHelpful Answer:"
    ),
    b"\x01How big?\xffAnswer from these.\n<context>\n<document index='1'>\nParis\n</document>\n</context>",
    b'\x02How big?\xff\xff[{"page_content": "Paris is big", "metadata": {"source": "a"}}]\xffIt is big.',
    (
        b"\x03Context information is below.\n---------------------\nParis\n\nRome\n---------------------\n"
        b"Given the context information and not prior knowledge, answer the query.\nQuery: How big?\nAnswer: "
    ),
    b'\x84{"messages":[{"role":"user","content":"Hi"}],"gaugeway":{"contexts":["a",{"text":"b"}]}}',
    b'\x86{"input":[{"type":"file_search_call","results":[{"text":"a"}]},{"role":"user","content":"Hi"}]}',
    b"\x00[1] Paris is big\n[2] Rome is old\n\nQuestion: How big?\xffYou answer with sources. Chat history: none",
]
TEMPLATE = UserTemplate(name="own", pattern=r"Facts:\n(?P<contexts>.*?)\nAsk: (?P<question>.*)")


@cache
def extractors():
    """The built-in ones in their order, the last of them with a pattern of a user's own."""
    return tuple(extractors_of(Settings(templates=(TEMPLATE,))))


def one(data: bytes) -> None:
    """What the fuzzer calls."""
    if not data:
        return
    choices, rest = data[0], data[1:]
    route = ROUTES[choices % len(ROUTES)]
    if choices & 0x80:
        _cut(rest)
        body = _object(rest)
        if body is None:
            return
    else:
        body = _conversation(route, rest)
    request = Request(route=route, headers={}, body=body, explicit=_explicit(body, rest))
    response = answers.read(route, {"choices": [{"message": {"content": "It is big."}}]}, 200)
    kind = auxiliary(request, response)
    expect(kind is None or kind in KINDS, f"an unknown kind of auxiliary call: {kind!r}")
    for extractor in extractors():
        found = extractor.extract(request, response)
        expect(found == extractor.extract(request, response), "extracted twice with different results")
        if found is not None:
            _check(found)
            prompt_version(found, locate(request, found), salt="s")


def _check(found: Extraction) -> None:
    expect(found.question is None or found.question.strip(), f"a question without a text: {found.question!r}")
    expect(len(found.contexts) <= MAX_PASSAGES, f"{len(found.contexts)} passages")
    expect(sum(len(one.text.encode("utf-8", "surrogatepass")) for one in found.contexts) <= MAX_BYTES, "too many bytes")
    for context in found.contexts:
        kept = msgspec.json.decode(msgspec.json.encode(context), type=type(context))
        expect(kept == context, f"a passage that is not stored as it is: {context!r}")


def _conversation(route: str, rest: bytes) -> dict:
    texts = [piece.decode("utf-8", "replace") for piece in rest.split(b"\xff")]
    messages = [{"role": role, "content": text} for role, text in zip(ROLES, texts, strict=False) if text]
    for message in messages:
        if message["role"] == "tool":
            message["tool_call_id"] = "call-1"
    if route == "completions":
        return {"prompt": texts[0]}
    if route == "responses":
        return {"instructions": texts[-1], "input": messages}
    return {"messages": messages, "tools": [{"type": "function", "function": {"name": "search"}}]}


def _object(raw: bytes) -> dict | None:
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _explicit(body: dict, rest: bytes):
    said = None
    for raw in (rest, msgspec.json.encode(body.get("gaugeway"))):
        try:
            said = from_body_key(raw)
        except ExplicitError as error:
            expect(str(error) and error.field, "an error that says nothing")
    for name in (b"contexts", b"question", b"tags", b"capture", b"upstream", b"other"):
        try:
            from_headers([(b"x-gaugeway-" + name, rest[:2000])])
        except ExplicitError as error:
            expect(str(error) and error.field, "an error that says nothing")
    return said


def _cut(raw: bytes) -> None:
    """Held against the standard library, which knows the same JSON (and refuses some of what others read)."""
    try:
        kept, value = cut_key(raw)
    except Rejection as refused:
        expect(refused.param == "gaugeway", f"refused without naming the key: {refused}")
        return
    expect(value is not None or kept == raw, "a body without the key was touched")
    try:
        before, after, said = json.loads(raw), json.loads(kept), json.loads(value or b"null")
    except (ValueError, RecursionError):
        return
    if value is None:
        expect(not isinstance(before, dict) or "gaugeway" not in before, "the key was overlooked")
        return
    expect(said == before.pop("gaugeway") or _odd(raw), "another value than the body has")
    expect(before == after or _odd(raw), f"more was cut than the key: {after!r} of {before!r}")


def _odd(raw: bytes) -> bool:
    return b"NaN" in raw  # which equals nothing, not even itself
