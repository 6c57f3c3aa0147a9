"""All extractors in their order: bounds, time, odd requests, and chats that retrieve nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.capture.exchange_reader import extract
from gaugeway.exchange import Exchange, Explicit, Request, Response
from gaugeway.extensions import load, registered
from gaugeway.prompts import UserTemplate, default_order, extraction, last_user_text, trace
from gaugeway.prompts.user_patterns import PatternExtractor
from gaugeway.records import Context
from gaugeway.settings.bounds import MAX_BYTES, MAX_PASSAGES
from tests.gaugeway.prompts.prompts import PROMPTS, text_qa, user
from tests.support.work import calls

EXTRACTORS = [load(name, registered("readers"))() for name in default_order()]
EXTRACTORS[default_order().index("patterns")] = PatternExtractor(
    [UserTemplate(name="facts", pattern=r"FACTS:(?P<contexts>.*)ASKED:(?P<question>.*)")]
)
ROOT = Path(__file__).parents[3]
ORDINARY = Path(__file__).parents[2] / "corpora" / "ordinary.jsonl"
ONE = "A book may be kept for four weeks, and longer if no other reader waits for it."
TWO = "Whoever keeps a book for longer pays ten cents a day until it is returned."
NOTHING = Response(status=200, body={})


def found(body, explicit=None, route="chat_completions", response=None):
    exchange = Exchange(
        id="e",
        started_at=0.0,
        duration_s=0.0,
        first_chunk_s=None,
        ending="complete",
        stream=False,
        app="a",
        model="m",
        request=Request(route=route, headers={}, body=body, explicit=explicit),
        response=response or NOTHING,
    )
    extraction = extract(exchange, EXTRACTORS)
    return extraction.question, [context.text for context in extraction.contexts], extraction.source


def searched(content):
    call = {"id": "c", "function": {"name": "search", "arguments": "{}"}}
    return [
        {"role": "user", "content": "u"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": content},
    ]


def test_a_plain_question_has_no_contexts_and_says_so():
    messages = [*user("old"), {"role": "assistant", "content": "x"}, *user("Hi?")]
    assert found({"messages": messages}) == ("Hi?", [], "none")


def test_text_parts_of_the_last_user_turn_are_the_question():
    parts = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "data:"}}]
    assert found({"messages": [{"role": "user", "content": parts}]})[0] == "What is this?"


def test_what_the_client_says_itself_beats_everything_inferred():
    explicit = Explicit(question="Q", contexts=(Context(text="mine", id="1"),))
    assert found({"messages": searched("found")}, explicit) == ("Q", ["mine"], "explicit")


def test_an_explicit_question_without_contexts_keeps_the_inferred_contexts():
    assert found({"messages": searched("found")}, Explicit(question="Q")) == ("Q", ["found"], "tools")


def test_an_explicit_empty_list_says_that_retrieval_found_nothing():
    assert found({"messages": user("Q")}, Explicit(contexts=())) == ("Q", [], "explicit")


def test_tools_come_before_templates_and_templates_before_tags():
    prompt = text_qa("real?", ["<context>\nfrom the prompt\n</context>"])
    assert found({"messages": prompt})[2] == "llamaindex"
    assert found({"messages": prompt + searched("found")[1:]})[1:] == (["found"], "tools")
    pattern = user("FACTS:\n<context>\none\n</context>\nASKED: q")
    assert found({"messages": pattern}) == ("q", ["\n<context>\none\n</context>\n"], "patterns")
    said = f"Use the sources.\n\nSources:\n[1] {ONE}\n[2] {TWO}\n\nQuestion: How long may a book be kept?"
    assert found({"messages": user(said)}) == ("How long may a book be kept?", [ONE, TWO], "structure")


def test_a_tool_that_retrieved_nothing_lets_the_others_try():
    messages = [*text_qa("real?", ["from the prompt"]), {"role": "tool", "content": '{"ok": true}'}]
    assert found({"messages": messages}) == ("real?", ["from the prompt"], "llamaindex")


def test_trace_says_what_each_extractor_thought_until_one_recognised_it():
    request = Request(route="chat_completions", headers={}, body={"messages": text_qa("q", ["one"])})
    tried = trace(request, NOTHING, EXTRACTORS)
    assert [name for name, _ in tried] == ["explicit", "tools", "results", "templates"]
    assert [one is None for _, one in tried] == [True, True, True, False]
    nothing = trace(Request(route="models", headers={}, body={}), NOTHING, [*EXTRACTORS, _Own()])
    assert [name for name, _ in nothing] == [*default_order(), f"{__name__}:_Own"]


class _Own:
    def extract(self, request, response):
        return None


@pytest.mark.parametrize("size", [1, 300])
def test_too_many_or_too_long_passages_are_cut_and_it_is_said(size):
    passages = [f"{index} " + "über" * 2_500 * size for index in range(MAX_PASSAGES + 50)]
    cut = extraction("q", (Context(text=one) for one in passages), source="s")
    assert cut.cut
    assert sum(len(one.text.encode()) for one in cut.contexts) <= MAX_BYTES
    assert all(passages[index].startswith(one.text) for index, one in enumerate(cut.contexts))
    few = extraction("q", (Context(text=one[:50]) for one in passages[:MAX_PASSAGES]), source="s")
    assert (few.cut, len(few.contexts)) == (False, MAX_PASSAGES)
    assert extraction("q", (Context(text=one[:50]) for one in passages), source="s").cut


@pytest.mark.parametrize("prompt", PROMPTS, ids=[prompt.build.__name__ for prompt in PROMPTS])
def test_every_extraction_is_bounded(prompt):
    long = [f"Passage {index} of many: " + "word " * 60 for index in range(MAX_PASSAGES + 20)]
    request = Request(route="chat_completions", headers={}, body={"messages": prompt.build("q", long)})
    extraction = trace(request, NOTHING, EXTRACTORS)[-1][1]
    assert (len(extraction.contexts), extraction.cut) == (MAX_PASSAGES, True)


def test_what_tools_and_clients_give_is_bounded_too():
    many = json.dumps([f"passage {index}" for index in range(MAX_PASSAGES + 1)])
    explicit = Explicit(contexts=tuple(Context(text=str(index)) for index in range(MAX_PASSAGES + 1)))
    for request in (
        Request(route="chat_completions", headers={}, body={"messages": searched(many)}),
        Request(route="chat_completions", headers={}, body={}, explicit=explicit),
    ):
        found = trace(request, NOTHING, EXTRACTORS)[-1][1]
        assert (len(found.contexts), found.cut) == (MAX_PASSAGES, True)


_KEYS = [
    *("messages", "role", "content", "text", "input", "tool_calls", "function", "arguments", "type", "name", "id"),
    *(
        "output",
        "results",
        "documents",
        "citations",
        "context",
        "annotations",
        "choices",
        "message",
        "queries",
        "action",
    ),
    *("structuredContent", "isError", "metadata", "score", "ids", "call_id", "tool_call_id", "tool_use_id", "source"),
]
_WORDS = [
    *(
        "user",
        "system",
        "developer",
        "assistant",
        "tool",
        "function",
        "text",
        "tool_use",
        "tool_result",
        "search_result",
    ),
    *(
        "function_call",
        "function_call_output",
        "mcp_call",
        "file_search_call",
        "web_search_call",
        "message",
        "document",
    ),
    *(
        "mcp_tool_result",
        "search",
        "c",
        "<documents>",
        "[",
        "{",
        '{"results": [1, {}]}',
        "<context>x</context>",
        "\ud800",
    ),
]
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(_WORDS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=5),
    max_leaves=25,
)
_ROUTES = ["chat_completions", "responses", "completions", "messages", "embeddings"]


@pytest.mark.full
@settings(max_examples=4 * settings.default.max_examples)
@given(
    st.dictionaries(st.sampled_from(["messages", "input", "prompt", "instructions", "system", "documents"]), _json),
    st.dictionaries(st.sampled_from(["choices", "output", "content", "search_results"]), _json),
    st.sampled_from(_ROUTES),
)
def test_odd_requests_and_responses_never_make_an_extractor_raise(body, answer, route):
    request, response = Request(route=route, headers={}, body=body), Response(status=200, body=answer)
    for extractor in EXTRACTORS:
        extractor.extract(request, response)
    last_user_text(request)


@given(st.binary(max_size=200), st.sampled_from(_ROUTES))
def test_any_bytes_as_content_never_make_an_extractor_raise(raw, route):
    text = raw.decode("utf-8", "surrogateescape")
    for content in (text, "[" + text, "{" + text, [{"type": "text", "text": text}], f"<documents>{text}</documents>"):
        for role in ("user", "system", "tool"):
            request = Request(route=route, headers={}, body={"messages": [{"role": role, "content": content}]})
            for extractor in EXTRACTORS:
                extractor.extract(request, NOTHING)


@pytest.mark.parametrize("opening", ["[", '{"results":', '{"content":[', '{"a":[{"text":'])
def test_deeply_nested_json_in_a_tool_result_is_no_harm(opening):
    assert found({"messages": searched(opening * 100_000)})[2] == "tools"


MARKERS = [
    *("\nQuestion: ", "\nContext: ", "\nAnswer:", f"\n{'-' * 21}\n", "\nQuery: ", "\n\n", "\n", " ", "<context>\n"),
    *("\n<doc id='1'>", "</doc>\n<doc id='1'>", "</source>\n<source>", "<contextItem><![CDATA[", "\nID: 1\n├── a: b\n"),
    *(
        "<file><filename>",
        "Source 1:\n",
        "\n[END CONTEXT 0]\n\n[CONTEXT 1]:\n",
        "\n```",
        "Source: a\nContent: ",
        "\n<documents>",
    ),
    *("\n\nContext:\n", "\n\nDocument 1:\n", "\n\n# a\nDocumentation URL:b\n\n", "Source: {'a': 1}\nContent: "),
    *("<a>\n<b>\n", "<doc1>\n", "</context>\n", "- - -\n", "=", "- a\n", "[1] ", "[", "(source: a) ", '"', '"""\n'),
    *("[x begin]", "[x begin]a[x end]\n", "BEGIN DOC\n", "[END DOC 1]\n", "Title: a\nContent: b\n", "a: ", "\n \t\n"),
    *("1. a\n", "## Sources\n", "a | b ", "a.md: x\n", "Document(page_content='a',", '{"a": [', "<|im_start|>user\n"),
    *("Please answer from the context.\n", "the context\n", "Use the following context:\n", "a? ", "[INST]", "a. "),
]


@pytest.mark.parametrize("marker", MARKERS)
def test_reading_a_prompt_full_of_markers_takes_work_in_proportion_to_its_length(marker):
    """In calls; the steps within regular expressions are counted below."""
    opening = (
        "Use the following pieces of retrieved context to answer the question.\nQuestion: q \nContext: "
        f"Context information is below.\n{'-' * 21}\nUse the following pieces of context to answer the "
        "question at the end. Here is the knowledge base: [CONTEXT 0]:\nretrieving the following context inside "
        "<context></context> XML tags.\n<context>answer the user's question\n------------\n"
    )

    def read(size):
        text = opening + marker * (size // len(marker)) + "x"
        for role in ("user", "system", "tool"):
            found({"messages": [{"role": role, "content": text}, *user("q")] if role != "user" else user(text)})

    read(1_000)  # what is made once
    few, many = (calls(partial(read, size)) for size in (50_000, 200_000))
    assert many < 6 * few


@pytest.mark.full
@pytest.mark.timeout(1_200)
def test_reading_takes_steps_in_proportion_to_the_length_within_regular_expressions_too():
    """Among the units are marks without line breaks: a line as long as the text."""
    units = [*MARKERS, "-", "#", "=-", "[", "*_", "x: ", "(a) ", "\t"]
    command = [sys.executable, "-m", "tests.support.reading_steps", json.dumps(units)]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    steps = json.loads(done.stdout)
    assert steps.keys() == set(units)
    slow = {unit: found for unit, found in steps.items() if found[1] > 1_350 or found[1] > 1.5 * found[0]}
    assert slow == {}


def ordinary():
    return [json.loads(line) for line in ORDINARY.read_text("utf-8").splitlines()]


def test_ordinary_chats_are_not_taken_for_retrieval():
    taken = []
    for case in ordinary():
        request = Request(route=case.get("route", "chat_completions"), headers={}, body=case["body"])
        name, extraction = trace(request, NOTHING, EXTRACTORS)[-1]
        if extraction is not None:
            taken.append((case["kind"], name, extraction.marker, extraction.contexts[:1]))
    print(f"{len(taken)} of {len(ordinary())} ordinary chats taken for retrieval: {taken}")  # noqa: T201 - the figure
    assert len(taken) <= 2, taken


def test_the_ordinary_chats_are_many_and_varied():
    kinds = Counter(case["kind"] for case in ordinary())
    assert sum(kinds.values()) >= 200
    assert len(kinds) >= 15
    assert len({json.dumps(case["body"]) for case in ordinary()}) == sum(kinds.values())
