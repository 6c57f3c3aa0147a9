"""Results of the app's tools: which are retrieval, and what their passages are."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gaugeway.exchange import Request, Response
from gaugeway.prompts.parse import read
from gaugeway.prompts.tool_messages import ToolExtractor
from gaugeway.records import Context

NOTHING = Response(status=200, body={})
PROSE = "Books may be kept for four weeks; a loan can be extended twice as long as nobody else has reserved the book."
GERMAN = "Die Leihfrist beträgt vier Wochen und kann zweimal verlängert werden, sofern niemand das Buch vorgemerkt hat."
CHINESE = "图书可以借阅四周。如果没有其他读者预约就可以续借两次。逾期每天罚款两角。请按时归还所借的图书。"


def found(messages, route="chat_completions"):
    return ToolExtractor().extract(Request(route=route, headers={}, body={"messages": messages}), NOTHING)


def asked(name, content, arguments='{"query": "loan period"}'):
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return [
        {"role": "user", "content": "How long?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": content},
    ]


def texts(extraction):
    return None if extraction is None else [context.text for context in extraction.contexts]


@pytest.mark.parametrize(
    ("content", "passages"),
    [
        ("plain text", ["plain text"]),
        ('["one", "two"]', ["one", "two"]),
        ('{"text": "only"}', ["only"]),
        ('{"page_content": "one"}\n{"page_content": "two"}\n', ["one", "two"]),
        ('[{"page_content": "one", "metadata": {"source": "a.md"}}, {"text": "two"}]', ["one", "two"]),
        ('{"results": [{"snippet": "one"}, {"content": "two", "score": 0.5}]}', ["one", "two"]),
        ('{"data": {"documents": [{"text": "one"}]}}', ["one"]),
        ('{"hits": {"total": 1, "hits": [{"_id": "7", "_score": 1.5, "_source": {"body": "one"}}]}}', ["one"]),
        ('{"documents": [["one", "two"]], "ids": [["a", "b"]]}', ["one", "two"]),
        ('{"retrievalResults": [{"content": {"text": "one"}, "score": 0.4}]}', ["one"]),
        ('{"matches": [{"id": "1", "score": 0.9, "metadata": {"text": "one"}}]}', ["one"]),
        ('{"result": [{"id": 1, "score": 0.9, "payload": {"text": "one"}}]}', ["one"]),
        ('{"source_nodes": [{"node": {"text": "one", "id_": "n1"}, "score": 0.8}]}', ["one"]),
        ('{"data": [{"file_id": "f", "score": 0.5, "content": [{"type": "text", "text": "one"}]}]}', ["one"]),
        ('{"content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}', ["one", "two"]),
        ('{"content": [{"type": "text", "text": "[{\\"snippet\\": \\"one\\"}]"}]}', ["one"]),
        (
            (
                '{"content": [{"type": "text", "text": "one; two"}], "structuredContent": {"result": {"passages": '
                '[{"text": "one"}, {"text": "two"}]}}, "isError": false}'
            ),
            ["one", "two"],
        ),
        ('{"structuredContent": {"result": "one"}}', ["one"]),
        ("Source: {'f': 1}\nContent: one\ntwo\n\nSource: b\nContent: three", ["one\ntwo", "three"]),
        ([{"type": "text", "text": "part"}], ["part"]),
        ([{"type": "text", "text": '{"chunks": ["one", "two"]}'}], ["one", "two"]),
        ("{broken json", ["{broken json"]),
        ('[{"flight": "XY 1", "price": 90}]', ['{"flight":"XY 1","price":90}']),
        ([{"type": "text", "text": '[{"flight": "XY 1"}]'}], ['{"flight":"XY 1"}']),
        ("[]", []),
        ("", []),
        ('{"results": [], "total": 0}', []),
        ("No results found.", []),
        ("Keine Treffer gefunden", []),
        ('{"content": [{"type": "text", "text": "timed out"}], "isError": true}', []),
    ],
)
def test_what_a_search_tool_returns_is_passages_in_every_usual_shape(content, passages):
    extraction = found(asked("search_library", content))
    assert (texts(extraction), extraction.source, extraction.marker) == (passages, "tools", "search_library")


@pytest.mark.parametrize(
    "name",
    [
        "search",
        "web_search",
        "searchDocs",
        "knowledge-base",
        "retrieve_context",
        "get_faq_articles",
        "RAGLookup",
        "query_docs",
    ],
)
def test_the_name_of_a_tool_says_that_it_searches(name):
    assert texts(found(asked(name, "four weeks"))) == ["four weeks"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (None, '{"ok": true}'),
        (None, '{"temperature": 21}'),
        (None, "21"),
        (None, "true"),
        (None, "null"),
        (None, "Done."),
        (None, "[]"),
        (None, '["red", "green"]'),
        (None, "No results found."),
        ("get_weather", '{"summary": "Light rain in the morning, clearing up later.", "temperature": 21}'),
        ("get_weather", PROSE),
        ("get_order", '{"id": 4711, "state": "shipped", "items": [{"sku": "A-1", "count": 2}]}'),
        ("create_ticket", PROSE),
        ("send_email", '{"status": "sent", "text": "' + PROSE + '"}'),
        ("run_python", PROSE),
        ("update_knowledge_base", '{"documents": [{"text": "' + PROSE + '"}]}'),
        ("query_database", "id | name | total\n1 | Ann | 30.20\n2 | Bob | 44.10\n" * 10),
        ("read_logs", "2026-03-01 12:00:01.311 [main] INFO port=8080 status=200 took=3ms\n" * 10),
        ("read_file", "def add(a, b):\n    return a + b\n\n\nassert add(1, 2) == 3\n" * 10),
    ],
)
def test_what_is_plainly_no_retrieval_gives_no_contexts(name, content):
    assert found(asked(name, content)) is None


@pytest.mark.parametrize("key", ["tools", "functions"])
@pytest.mark.parametrize(
    ("description", "passages"), [("Searches the rules.", ["four weeks"]), ("Opens a door.", None)]
)
def test_the_description_of_a_tool_may_say_that_it_searches(key, description, passages):
    inner = {"name": "rules", "description": description}
    body = {"messages": asked("rules", "four weeks"), key: [{"type": "function", "function": inner}, inner, 7]}
    request = Request(route="chat_completions", headers={}, body=body)
    assert texts(ToolExtractor().extract(request, NOTHING)) == passages


@pytest.mark.parametrize("text", [PROSE, GERMAN, CHINESE])
@pytest.mark.parametrize("name", [None, "ask_the_desk", "team_notes"])
def test_running_text_of_any_other_tool_is_a_passage(name, text):
    assert texts(found(asked(name, text))) == [text]
    assert texts(found(asked(name, json.dumps({"items": [{"text": text}, {"text": "short"}]})))) == [text, "short"]


def test_an_empty_answer_in_a_retrievers_own_shape_is_a_retrieval_that_found_nothing():
    assert texts(found(asked("ask", '{"documents": []}'))) == []


def test_id_score_and_source_of_a_hit_are_kept():
    hits = [
        {"id": 7, "score": 0.5, "text": "one", "metadata": {"source": "a.md"}},
        {"chunk_id": "c9", "content": "two", "url": "https://example.com", "score": "high"},
        {"_id": "e1", "_score": 2, "_source": {"text": "three", "title": "T"}},
        {"text": "four", "score": True, "id": False},
    ]
    by = {"hop": 1, "tool": "search"}
    assert found(asked("search", json.dumps(hits))).contexts == (
        Context(text="one", id="7", score=0.5, source="a.md", **by),
        Context(text="two", id="c9", source="https://example.com", **by),
        Context(text="three", id="e1", score=2.0, source="T", **by),
        Context(text="four", **by),
    )


def test_several_hops_of_one_turn_are_kept_in_order_and_other_tools_are_left_out():
    def hop(identity, name, content):
        return [
            {"role": "assistant", "tool_calls": [{"id": identity, "function": {"name": name, "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": identity, "content": content},
        ]

    extraction = found(
        [
            {"role": "user", "content": "first"},
            *hop("0", "search_docs", "of an earlier turn"),
            {"role": "assistant", "content": "answer"},
            {"role": "user", "content": "second"},
            *hop("1", "search_docs", "one"),
            *hop("2", "get_time", '{"time": "12:00"}'),
            *hop("3", "search_web", '["two", "three"]'),
            *hop("4", "search_docs", "four"),
        ]
    )
    assert (texts(extraction), extraction.question) == (["one", "two", "three", "four"], "second")
    assert extraction.marker == "search_docs, search_web"


def steps(extraction):
    return [(one.text, one.hop, one.tool) for one in extraction.contexts]


def test_each_passage_names_its_hop_and_its_tool_since_the_last_user_turn():
    def calls(*named):
        return {
            "role": "assistant",
            "tool_calls": [{"id": one, "function": {"name": name, "arguments": "{}"}} for one, name in named],
        }

    def result(identity, text):
        return {"role": "tool", "tool_call_id": identity, "content": json.dumps([text])}

    messages = [
        {"role": "user", "content": "Before?"},
        calls(("x", "search_old")),
        result("x", "old"),
        {"role": "assistant", "content": "Thus."},
        {"role": "user", "content": "Now?"},
        calls(("a", "search_faq")),
        result("a", "one"),
        calls(("b", "search_docs"), ("c", "search_wiki")),
        result("b", "two"),
        result("c", "three"),
    ]
    assert steps(found(messages)) == [("one", 1, "search_faq"), ("two", 2, "search_docs"), ("three", 2, "search_wiki")]


@pytest.mark.parametrize("form", ["Answer from the results.\n\nQuestion: {}\n\nBe brief.", "{}\n\nCite your sources."])
def test_a_question_that_is_wrapped_once_the_tools_have_answered_is_still_the_users(form):
    question = "How long is a loan, and who may extend it?"
    messages = [{"role": "user", "content": question}, *asked("search_docs", f"1. {PROSE}\n\n2. {GERMAN}")[-2:]]
    wrapped = found([*messages, {"role": "user", "content": form.format(question)}])
    assert (wrapped.question, texts(wrapped)) == (question, [PROSE, GERMAN])
    assert found([*messages, {"role": "user", "content": "And who pays?"}]) is None


def test_a_result_whose_call_is_not_shown_has_no_hop():
    messages = [{"role": "user", "content": "Now?"}, {"role": "tool", "name": "search", "content": '["one"]'}]
    assert steps(found(messages)) == [("one", None, None)]


def test_calls_made_at_once_are_told_apart_by_their_ids():
    calls = [
        {"id": "a", "function": {"name": "get_time", "arguments": "{}"}},
        {"id": "b", "function": {"name": "search", "arguments": "{}"}},
    ]
    messages = [
        {"role": "user", "content": "Q"},
        {"role": "assistant", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "b", "content": "found"},
        {"role": "tool", "tool_call_id": "a", "content": "noon"},
    ]
    assert texts(found(messages)) == ["found"]


def test_legacy_functions_are_paired_by_name():
    messages = [
        {"role": "user", "content": "Q"},
        {"role": "assistant", "function_call": {"name": "search", "arguments": '{"query": "q"}'}},
        {"role": "function", "name": "search", "content": "found"},
    ]
    assert (texts(found(messages)), found(messages).marker) == (["found"], "search")


def test_without_a_user_turn_the_question_is_what_the_tool_was_asked():
    assert found(asked("search", "found")[1:]).question == "loan period"
    assert found(asked("search", "found", '{"queries": ["one", "two"]}')[1:]).question == "one"
    assert found(asked("search", "found", "{broken")[1:]).question is None


def anthropic(content, **beside):
    return [
        {"role": "user", "content": "How far?"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t", "name": "search", "input": {"query": "far"}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": content, **beside}]},
    ]


def test_anthropic_tool_results_are_passages_and_their_call_is_known():
    assert texts(found(anthropic('["one", "two"]'), "messages")) == ["one", "two"]
    extraction = found(anthropic([{"type": "text", "text": "short"}]), "messages")
    assert (texts(extraction), extraction.marker, extraction.question) == (["short"], "search", "How far?")
    block = {"type": "search_result", "source": "u", "title": "t", "content": [{"type": "text", "text": "one"}]}
    assert found(anthropic([block]), "messages").contexts == (Context(text="one", source="u", hop=1, tool="search"),)
    assert texts(found(anthropic("boom", is_error=True), "messages")) == []


def test_a_reminder_beside_anthropic_results_begins_no_new_turn():
    messages = anthropic("one")
    messages += [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "u", "name": "search", "input": {}}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "u", "content": "two"},
                {"type": "text", "text": "Remember to cite."},
            ],
        },
    ]
    assert texts(found(messages, "messages")) == ["one", "two"]


LOAN, RENEWAL = "Books may be kept for four weeks.", "A loan can be extended twice."


@pytest.mark.parametrize("name", ["lookup", "look_up", "lookup_info", "lookupTool"])
@pytest.mark.parametrize(
    ("content", "passages"),
    [
        (json.dumps([{"text": LOAN}, {"text": RENEWAL}]), [LOAN, RENEWAL]),
        (json.dumps({"results": [{"content": LOAN}, {"content": RENEWAL}]}), [LOAN, RENEWAL]),
        (json.dumps([LOAN, RENEWAL]), [LOAN, RENEWAL]),
        (f"[1] {LOAN}\n[2] {RENEWAL}", [LOAN, RENEWAL]),
        (f"{LOAN}\n\n{RENEWAL}", [LOAN, RENEWAL]),
        (LOAN, [LOAN]),
        ("42", None),
        ("in stock", None),
        ('{"status": "shipped"}', None),
        ('[{"name": "Gold", "price": 3}]', None),
        ("1. Gold\n2. Silver", None),
        ("No results found.", None),
        ('{"documents": []}', []),
    ],
)
def test_a_tool_that_is_just_called_lookup_returns_the_sentences_it_found(name, content, passages):
    assert texts(found(asked(name, content))) == passages


@pytest.mark.parametrize("name", ["lookup_order", "customer_lookup", "lookup_price", "lookup_user_messages"])
@pytest.mark.parametrize("content", ["The order has been shipped today.", json.dumps([{"text": LOAN, "id": 3}])])
def test_a_lookup_of_something_else_is_no_retrieval_by_its_name(name, content):
    assert texts(found(asked(name, content))) is None


class _Nothing(frozenset[str]):
    def isdisjoint(self, other: object) -> bool:
        return False


_SCALARS = st.sampled_from(["The mill turns.", "", " ", "https://x.test/a", "7", 7, 0.5, True, None, 10**30])
_KEYS = [
    "text",
    "body",
    "content",
    "page_content",
    "title",
    "url",
    "id",
    "score",
    "rank",
    "metadata",
    "node",
    "result",
    "hit",
]
_HITS = st.recursive(
    _SCALARS,
    lambda inner: (
        st.dictionaries(
            st.sampled_from([*_KEYS, "documents", "results", "isError", "type", "other"]), inner, max_size=5
        )
        | st.lists(inner, max_size=3)
    ),
    max_leaves=10,
)


@given(_HITS)
@example([{"text": "The mill turns.", "title": "Mills", "score": 0.5}, {"text": " ", "body": "It stands."}])
@example(
    [{"hit": {"text": "The mill turns."}, "score": 0.5}, {"hit": {"text": "It stands."}}, {"snippet": 7, "text": "a"}]
)
@example({"metadata": {"source": "a.md"}, "node": {"text": "The mill turns."}})
def test_a_flat_hit_is_read_as_by_the_walk_through_all_of_a_result(value: Any) -> None:
    found = read(value)
    with mock.patch("gaugeway.prompts.parse._MORE_THAN_A_HIT", _Nothing()):
        assert read(value) == found
