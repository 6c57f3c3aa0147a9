"""An answer that is handed over as the argument of a tool call is an answer, and its text is judged."""

from __future__ import annotations

import json

import pytest

from gateway.capture.auxiliary_calls import auxiliary
from gateway.capture.output_tools import with_answer_by_tool
from gaugeway.exchange import Request
from gaugeway.prompts import response_text

PROSE = "Below 90 degrees."


def read(route, name, arguments, *, more=(), **body):
    calls = [(name, arguments), *more]
    if route == "messages":
        blocks = [{"type": "tool_use", "id": "c", "name": name, "input": given} for name, given in calls]
        said = {"content": blocks, "stop_reason": "tool_use"}
    elif route == "responses":
        said = {
            "output": [{"type": "function_call", "name": name, "arguments": json.dumps(given)} for name, given in calls]
        }
    else:
        functions = [{"id": "c", "function": {"name": name, "arguments": json.dumps(given)}} for name, given in calls]
        said = {"choices": [{"message": {"content": None, "tool_calls": functions}, "finish_reason": "tool_calls"}]}
    request = Request(route=route, headers={}, body=body)
    response = with_answer_by_tool(request, response_text.read(route, said, 200))
    return response.text, auxiliary(request, response)


@pytest.mark.parametrize("route", ["chat_completions", "responses", "messages"])
@pytest.mark.parametrize("name", ["final_result", "final_answer", "final_result_Card"])
def test_an_output_tool_hands_over_the_answer(route, name):
    assert read(route, name, {"answer": PROSE, "sources": [1]}) == (PROSE, None)


FORCED = [
    {"tool_choice": {"type": "function", "function": {"name": "Cited"}}},
    {"tool_choice": {"type": "tool", "name": "Cited"}},
    {"tool_choice": "required", "tools": [{}]},
    {"tool_choice": {"type": "any"}, "tools": [{}]},
]


@pytest.mark.parametrize("body", FORCED)
def test_a_forced_tool_with_an_answer_hands_it_over(body):
    assert read("chat_completions", "Cited", {"quote": "q", "answer": PROSE}, **body) == (PROSE, None)


@pytest.mark.parametrize("body", FORCED)
def test_a_forced_tool_with_other_fields_is_a_call(body):
    assert read("chat_completions", "Cited", {"queries": ["a"], "reason": PROSE}, **body) == ("", "tool_call")


def test_any_other_call_is_no_answer():
    call = ("", "tool_call")
    assert read("chat_completions", "send_mail", {"text": PROSE}) == call
    assert read("chat_completions", "send_mail", {"text": PROSE}, tool_choice="auto", tools=[{}]) == call
    assert read("chat_completions", "send_mail", {"text": PROSE}, tool_choice="required", tools=[{}, {}]) == call
    assert read("chat_completions", "final_answer", {"answer": ""}) == call
    assert read("chat_completions", "final_answer", ["answer"]) == call
    assert read("chat_completions", "final_answer", {"answer": PROSE}, more=[("search", {"q": "a"})]) == call
    assert read("chat_completions", "final_result", {"relevance": "yes", "explanation": PROSE}) == call


def test_an_output_tool_may_give_other_prose():
    assert read("chat_completions", "final_result", {"summary": PROSE, "pages": [1]}) == (PROSE, None)


LONG = "The glaze melts below 90 degrees. It has to cool for a day."
FIND = {"name": "find", "description": "Search the catalogue.", "parameters": {"properties": {"text": {}}}}


def offered(name, description, *others, **body):
    about = {"name": name, "description": description, "parameters": {"properties": {"said": {"type": "string"}}}}
    return {"tools": [{"type": "function", "function": tool} for tool in (about, *others)], **body}


def turn(name, *after):
    call = {"id": "c", "type": "function", "function": {"name": name, "arguments": "{}"}}
    return [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "ok"}, *after]


USER, MODEL = {"role": "user", "content": "And then?"}, {"role": "assistant", "content": "Later."}


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("respond", {}),
        ("say", offered("say", "Gives the finished answer to the user.", FIND)),
        ("say", offered("say", "Speaks.", FIND, tool_choice="required")),
        ("say", offered("say", "Speaks.", tool_choice={"type": "function", "function": {"name": "say"}})),
        ("say", {"messages": [USER, *turn("say"), USER]}),
    ],
)
def test_prose_for_the_user_in_a_call_that_ends_the_turn_is_the_answer(name, body):
    assert read("chat_completions", name, {"said": LONG, "sure": True}, **body) == (LONG, None)


@pytest.mark.parametrize(
    ("name", "arguments", "body"),
    [
        ("respond", {"question": LONG}, {}),
        ("respond", {"said": LONG}, {"messages": [USER, *turn("respond", MODEL), USER]}),
        ("say", {"said": LONG}, offered("say", "Searches for what answers the user.", FIND, tool_choice="auto")),
        ("find", {"text": LONG}, offered("say", "Speaks.", FIND, tool_choice="required")),
        ("note", {"said": LONG}, offered("note", "Keeps a fact about the user.", FIND)),
        ("mail", {"to": "a@b.example", "said": LONG}, offered("mail", "Sends the answer to a user.", FIND)),
    ],
)
def test_prose_in_any_other_call_is_none(name, arguments, body):
    assert read("chat_completions", name, arguments, **body) == ("", "tool_call")
