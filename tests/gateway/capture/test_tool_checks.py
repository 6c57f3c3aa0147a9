"""What the tools of an exchange show: calls that do not fit, unknown and repeated ones, empty results."""

import json

import pytest

from gateway.capture.tool_checks import MAX_TOOLS, tool_checks
from gaugeway.exchange import Exchange, Request, Response
from gaugeway.records import ToolChecks

SCHEMA = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "top_k": {"type": "integer", "minimum": 1}},
    "required": ["query"],
    "additionalProperties": False,
}
CHAT_TOOLS = [{"type": "function", "function": {"name": "search", "parameters": SCHEMA}}]


def exchange(route, body, answer, calls):
    return Exchange(
        id="x",
        started_at=0.0,
        duration_s=1.0,
        first_chunk_s=None,
        ending="complete",
        stream=False,
        app="shop",
        model="m",
        request=Request(route=route, headers={}, body=body),
        response=Response(status=200, body=answer, tool_calls=calls, finish_reason="tool_calls" if calls else "stop"),
    )


def call(name, arguments, call_id="call_1"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def chat(calls=(), messages=({"role": "user", "content": "Where is my parcel?"},), tools=CHAT_TOOLS):
    answer = {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": list(calls)}}]}
    body = {"messages": list(messages)} | ({"tools": tools} if tools else {})
    return exchange("chat", body, answer, len(calls))


def anthropic(arguments):
    body = {
        "tools": [{"name": "search", "input_schema": SCHEMA}],
        "messages": [{"role": "user", "content": "Where is my parcel?"}],
    }
    answer = {"content": [{"type": "tool_use", "id": "t1", "name": "search", "input": arguments}]}
    return exchange("messages", body, answer, 1)


def responses(arguments):
    body = {"tools": [{"type": "function", "name": "search", "parameters": SCHEMA}], "input": "Where is my parcel?"}
    answer = {"output": [{"type": "function_call", "call_id": "c1", "name": "search", "arguments": arguments}]}
    return exchange("responses", body, answer, 1)


@pytest.mark.parametrize(
    ("arguments", "invalid"),
    [
        ('{"query": "parcel"}', 0),
        ('{"query": "parcel", "top_k": 3}', 0),
        ('{"query": 7}', 1),
        ('{"top_k": 3}', 1),
        ('{"query": "parcel", "top_k": 0}', 1),
        ('{"query": "parcel", "colour": "red"}', 1),
        ('{"query": "par', 1),
        ("", 1),
        ("parcel", 1),
    ],
)
def test_arguments_are_compared_with_the_schema_of_the_request(arguments, invalid):
    for one in (chat([call("search", arguments)]), responses(arguments)):
        assert tool_checks(one) == ToolChecks(calls=1, offered=1, validated=1, invalid=invalid)


@pytest.mark.parametrize(("arguments", "invalid"), [({"query": "parcel"}, 0), ({"query": None}, 1), ({}, 1)])
def test_arguments_of_anthropics_calls_are_objects(arguments, invalid):
    assert tool_checks(anthropic(arguments)) == ToolChecks(calls=1, offered=1, validated=1, invalid=invalid)


def test_a_tool_that_was_not_offered_is_unknown():
    found = tool_checks(chat([call("search", '{"query": "a"}'), call("delete_everything", "{}")]))
    assert (found.calls, found.unknown, found.validated, found.invalid) == (2, 1, 1, 0)


def test_without_tools_there_is_nothing_to_check():
    assert tool_checks(chat(tools=None)) is None


def test_a_request_with_too_many_tools_is_not_compared():
    tools = [{"type": "function", "function": {"name": f"tool_{number}"}} for number in range(MAX_TOOLS + 1)]
    assert tool_checks(chat([call("search", "{}")], tools=tools)) == ToolChecks(calls=1)


def test_a_tool_without_a_schema_is_not_validated():
    tools = [{"type": "function", "function": {"name": "search"}}, {"type": "web_search"}]
    assert tool_checks(chat([call("search", "anything")], tools=tools)) == ToolChecks(calls=1, offered=2)


def loop(*results, arguments='{"query": "parcel"}'):
    """A turn in which `search` was called once for each result."""
    messages = [{"role": "user", "content": "Where is my parcel?"}]
    for number, result in enumerate(results):
        messages.append({"role": "assistant", "content": None, "tool_calls": [call("search", arguments, f"c{number}")]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": result})
    return messages


@pytest.mark.parametrize(
    ("again", "repeated"),
    [('{"query": "parcel"}', 1), ('{ "query" : "parcel" }', 1), ('{"query": "parcels"}', 0), ("not JSON", 0)],
)
def test_a_call_repeats_one_of_the_same_turn_with_the_same_arguments(again, repeated):
    found = tool_checks(chat([call("search", again)], loop("Parcel 7 is in Bruges.")))
    assert found.repeated == repeated


def test_a_call_of_an_earlier_turn_is_not_repeated():
    messages = [*loop("Parcel 7 is in Bruges."), {"role": "assistant", "content": "In Bruges."}]
    messages.append({"role": "user", "content": "And now?"})
    assert tool_checks(chat([call("search", '{"query": "parcel"}')], messages)).repeated == 0


def test_two_equal_calls_of_one_response_count_once():
    same = call("search", '{"query": "parcel", "top_k": 1}'), call("search", '{"top_k": 1, "query": "parcel"}')
    assert tool_checks(chat(same)).repeated == 1


@pytest.mark.parametrize(
    "result", ["", "  ", "[]", "{}", "null", '""', "No results found.", '{"hits": [], "total": 0}']
)
def test_a_result_that_holds_nothing_is_empty(result):
    found = tool_checks(chat(messages=loop("Parcel 7 is in Bruges.", result)))
    assert (found.results, found.empty_results) == (1, 1)


@pytest.mark.parametrize(
    "result", ["0", "[0]", '{"total": 0}', '{"id": 7, "notes": []}', "No parcel is late.", '["", "a"]']
)
def test_a_result_that_says_something_is_not(result):
    found = tool_checks(chat(messages=loop("", result)))
    assert (found.results, found.empty_results) == (1, 0)


def test_an_image_is_no_empty_result():
    image = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
    assert tool_checks(chat(messages=loop(image))).results == 0


def test_results_of_anthropics_messages_are_read():
    body = {
        "tools": [{"name": "search", "input_schema": SCHEMA}],
        "messages": [
            {"role": "user", "content": "Where?"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "search", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "[]"}]},
        ],
    }
    found = tool_checks(exchange("messages", body, {"content": [{"type": "text", "text": "Nowhere."}]}, 0))
    assert (found.results, found.empty_results) == (1, 1)


@pytest.mark.parametrize(
    "schema",
    [
        {"required": "n"},
        {"type": "object", "properties": {"n": {"type": "strnig"}}},
        {"type": "object", "properties": {"n": {"type": "integer", "required": True}}},
        {"properties": {"n": {"minimum": "1"}}},
        {"minLength": -1},
        {"enum": "a"},
    ],
)
@pytest.mark.parametrize("arguments", ['{"n": 1}', "{}", "", "no JSON"])
def test_a_schema_that_is_not_valid_gives_no_value(schema, arguments):
    tools = [{"type": "function", "function": {"name": "search", "parameters": schema}}]
    found = tool_checks(chat([call("search", arguments)], tools=tools))
    assert (found.validated, found.invalid) == (0, 0)


@pytest.mark.parametrize("arguments", [None, "", " ", "null", "{}", {}])
def test_missing_arguments_are_none_at_all(arguments):
    free = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}]
    assert tool_checks(chat([call("now", arguments)], tools=free)) == ToolChecks(calls=1, offered=1, validated=1)
    assert tool_checks(chat([call("search", arguments)])).invalid == 1


@pytest.mark.parametrize(
    "body",
    [
        {"tools": "all", "messages": "none"},
        {"tools": [None, 7, {"type": "function"}, {"type": "function", "function": {"name": 3}}], "messages": []},
        {"functions": [{"name": "f", "parameters": "none"}], "messages": [{"role": "tool", "content": None}]},
        {"tools": [{"name": "f", "input_schema": []}], "messages": [{"role": "tool", "content": [None, {"text": 1}]}]},
    ],
)
def test_bodies_of_another_shape_raise_nothing(body):
    for route in ("chat", "messages", "responses"):
        tool_checks(exchange(route, body, json.loads('{"choices": 1, "content": 2, "output": 3}'), 2))
