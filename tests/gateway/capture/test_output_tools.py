"""An answer that is handed over as the argument of a tool call is an answer, and its text is judged."""

from __future__ import annotations

import json

import pytest

from gateway.capture import response_text
from gateway.capture.auxiliary_calls import auxiliary
from gateway.capture.output_tools import with_answer_by_tool
from gaugeway.exchange import Request

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
