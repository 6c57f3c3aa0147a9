"""Retrieval by the provider or its hosted tools: items of the Responses API, and what responses carry."""

from __future__ import annotations

import json

import pytest

from gateway.http import sse
from gaugeway.exchange import Request, Response
from gaugeway.prompts.tool_messages import ResultExtractor
from gaugeway.records import Context


def found(body, answer=None, route="responses"):
    return ResultExtractor().extract(
        Request(route=route, headers={}, body=body), Response(status=200, body=answer or {})
    )


def texts(extraction):
    return None if extraction is None else [context.text for context in extraction.contexts]


ASKED = {"input": [{"role": "user", "content": [{"type": "input_text", "text": "Q"}]}]}


def test_outputs_of_the_apps_functions_are_read_by_the_rule_for_tools():
    def items(name, output):
        call = {"type": "function_call", "call_id": "c", "name": name, "arguments": '{"query": "q"}'}
        return {"input": [*ASKED["input"], call, {"type": "function_call_output", "call_id": "c", "output": output}]}

    extraction = found(items("search", '["p1", "p2"]'))
    assert (texts(extraction), extraction.source, extraction.marker) == (["p1", "p2"], "results", "search")
    assert extraction.question == "Q"
    assert texts(found(items("search", [{"type": "input_text", "text": "p1"}]))) == ["p1"]
    assert found(items("get_weather", '{"temperature": 21}')) is None
    assert found({"input": "just text"}) is None


def test_a_continued_conversation_has_the_query_as_its_question():
    items = [
        {"type": "function_call", "call_id": "c", "name": "search", "arguments": '{"query": "q"}'},
        {"type": "function_call_output", "call_id": "c", "output": "p"},
    ]
    assert found({"input": items, "previous_response_id": "r"}).question == "q"


def test_file_search_results_are_in_the_response_when_they_were_asked_for():
    hit = {"file_id": "f1", "filename": "a.md", "score": 0.7, "text": "one", "attributes": {}}
    call = {"type": "file_search_call", "id": "fs", "queries": ["q"], "results": [hit]}
    assert found(ASKED, {"output": [call, {"type": "message", "content": []}]}).contexts == (
        Context(text="one", id="f1", score=0.7, source="a.md"),
    )
    assert found(ASKED, {"output": [{**call, "results": None}]}) is None
    assert texts(found(ASKED, {"output": [{**call, "results": []}]})) == []


def test_mcp_calls_count_like_tools_and_failed_ones_do_not():
    call = {"type": "mcp_call", "name": "search_docs", "arguments": "{}", "output": '{"snippet": "one"}', "error": None}
    assert texts(found(ASKED, {"output": [call]})) == ["one"]
    assert found(ASKED, {"output": [{**call, "error": "no"}]}) is None
    assert found(ASKED, {"output": [{**call, "name": "delete_file", "output": "gone"}]}) is None


def test_all_retrievals_of_a_turn_are_kept_in_order_on_both_sides():
    items = [
        {"role": "user", "content": "old"},
        {"type": "file_search_call", "queries": [], "results": [{"text": "old passage"}]},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "Q"},
        {"type": "mcp_call", "name": "search", "output": "one"},
        {"type": "function_call", "call_id": "c", "name": "find_in_docs", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "two"},
    ]
    answer = {"output": [{"type": "file_search_call", "queries": ["q"], "results": [{"text": "three"}]}]}
    extraction = found({"input": items}, answer)
    assert (texts(extraction), extraction.marker) == (["one", "two", "three"], "search, find_in_docs, file_search")


def test_web_search_shows_sources_without_text_unless_the_provider_adds_it():
    cited = {"type": "url_citation", "url": "https://example.com", "title": "T", "start_index": 0, "end_index": 5}
    search = {
        "type": "web_search_call",
        "action": {"type": "search", "query": "q", "sources": [{"type": "url", "url": "u"}]},
    }
    message = {"type": "message", "content": [{"type": "output_text", "text": "a", "annotations": [cited]}]}
    assert found(ASKED, {"output": [search, message]}) is None
    message["content"][0]["annotations"] = [{**cited, "content": "page text"}, {**cited, "content": "page text"}]
    assert found(ASKED, {"output": [search, message]}).contexts == (
        Context(text="page text", source="https://example.com"),
    )
    quote = {"type": "file_citation", "file_id": "f", "filename": "a.md", "quote": "as written"}
    message["content"][0]["annotations"] = [quote]
    assert found(ASKED, {"output": [message]}).contexts == (Context(text="as written", id="f", source="a.md"),)


CHAT = {"messages": [{"role": "user", "content": "Q"}]}
CITATIONS = [
    {"content": "one", "title": "T", "url": "https://example.com", "filepath": "a.md", "chunk_id": "0"},
    {"content": "two", "title": "T", "url": None, "filepath": None, "chunk_id": "1"},
    {"content": "", "title": "T"},
]
PASSAGES = (Context(text="one", id="0", source="a.md"), Context(text="two", id="1", source="T"))


def chat(message):
    return {"choices": [{"index": 0, "message": {"role": "assistant", "content": "a", **message}}]}


@pytest.mark.parametrize(
    "context",
    [
        {"citations": CITATIONS, "intent": '["q1", "q2"]'},
        {"messages": [{"role": "tool", "content": json.dumps({"citations": CITATIONS, "intent": "[]"})}]},
    ],
)
def test_azure_on_your_data_puts_citations_beside_the_answer(context):
    extraction = found(CHAT, chat({"context": context}), "chat_completions")
    assert (extraction.contexts, extraction.question) == (PASSAGES, "Q")
    assert extraction.marker == "context.citations"


def test_azures_query_is_the_question_when_there_is_no_user_turn():
    answer = chat({"context": {"citations": CITATIONS, "intent": '["q1", "q2"]'}})
    assert found({"messages": []}, answer, "chat_completions").question == "q1"
    assert texts(found(CHAT, chat({"context": {"citations": []}}), "chat_completions")) == []


def test_azure_streams_the_context_in_the_first_chunk():
    events = [
        {
            "choices": [
                {"index": 0, "delta": {"role": "assistant", "context": {"citations": CITATIONS, "intent": "[]"}}}
            ]
        },
        {"choices": [{"index": 0, "delta": {"content": "a"}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]
    stream = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + b"data: [DONE]\n\n"
    assert found(CHAT, sse.fold("chat_completions", stream), "chat_completions").contexts == PASSAGES


def test_other_providers_put_results_and_page_texts_beside_the_answer():
    annotation = {"type": "url_citation", "url_citation": {"url": "u", "title": "T", "content": "page"}}
    assert texts(found(CHAT, chat({"annotations": [annotation]}), "chat_completions")) == ["page"]
    results = {"search_results": [{"title": "T", "url": "u", "snippet": "one"}, {"title": "no text", "url": "u"}]}
    assert found(CHAT, {**chat({}), **results}, "chat_completions").contexts == (Context(text="one", source="u"),)


def test_anthropics_hosted_tools_are_read():
    content = [
        {"type": "mcp_tool_use", "id": "m", "name": "search", "input": {"query": "q"}},
        {"type": "mcp_tool_result", "tool_use_id": "m", "content": [{"type": "text", "text": "one"}]},
        {
            "type": "text",
            "text": "a",
            "citations": [{"type": "web_search_result_location", "cited_text": "two", "url": "u", "title": "T"}],
        },
    ]
    extraction = found(CHAT, {"content": content}, "messages")
    assert (texts(extraction), extraction.marker) == (["one", "two"], "search, web_search")


def test_an_ordinary_answer_is_no_retrieval():
    assert found(CHAT, chat({"annotations": []}), "chat_completions") is None
    assert found(ASKED, {"output": [{"type": "message", "content": [{"type": "output_text", "text": "a"}]}]}) is None


FACT, OTHER = "A refund takes five days.", "Parcels to France cost four euros."
OF_OTHER_THINGS = [
    FACT,
    f"{FACT}\n\n{OTHER}",
    [FACT, OTHER],
    [{"text": FACT}, {"text": OTHER}],
    [{"id": 7, "text": "Call the plumber about the sink."}],
    [{"id": "msg_a81", "text": "Are you coming to dinner tomorrow?"}],
    [{"id": "p1", "text": FACT, "done": False}],
    [{"url": "https://a/1", "title": "Bug", "body": "It crashes when I log in.", "state": "open"}],
    [{"role": "user", "content": "How are you doing today?", "source": "web"}],
    [{"text": FACT, "source": "a.md"}, {"text": OTHER}],
    [{"text": "shipped", "source": "dhl"}],
    [{"source": "a.md", "content": ""}],
    {"results": [{"content": FACT, "source": "a.md"}], "error": "partial"},
    {"sent": True, "items": [{"text": FACT, "source": "a.md"}]},
    [],
    {"status": "ok"},
]


def continued(output, **more):
    item = {"type": "function_call_output", "call_id": "call_1", "output": output}
    return {"previous_response_id": "resp_1", "input": [item], **more}


@pytest.mark.parametrize("value", OF_OTHER_THINGS)
def test_without_the_tools_name_all_else_stays_unread(value):
    assert found(continued(value if isinstance(value, str) else json.dumps(value))) is None


@pytest.mark.parametrize("name", ["list_notes", "get_messages", "stock_status"])
def test_a_named_tool_is_judged_by_its_name(name):
    call = {"type": "function_call", "call_id": "call_1", "name": name, "arguments": "{}"}
    body = continued(json.dumps([{"text": "Call the plumber.", "source": "phone.txt"}]))
    body["input"].insert(0, call)
    assert found(body) is None
