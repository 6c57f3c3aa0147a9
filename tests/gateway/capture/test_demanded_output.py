"""The kind of a call by the output that its request demands, in whatever words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.capture.auxiliary_calls import auxiliary
from gateway.exchange import Request, Response

CORPUS = Path(__file__).parents[1] / "corpora" / "demanded_output.jsonl"
CALLS = [json.loads(line) for line in CORPUS.read_text("utf-8").splitlines()]


def kind_of(call):
    said = [("system", call["system"]), ("user", call["user"])]
    messages = [{"role": role, "content": text} for role, text in said if text]
    body = {"messages": messages, "response_format": call.get("response_format")}
    if call.get("route") == "responses":
        body = {"input": messages, "text": {"format": call["text_format"]}}
    request = Request(route=call.get("route", "chat_completions"), headers={}, body=body)
    return auxiliary(request, Response(status=200, body={}, text=call["response"], finish_reason="stop"))


@pytest.mark.parametrize("call", CALLS, ids=[f"{call['kind']} {call['response'][:50]}" for call in CALLS])
def test_a_call_is_told_by_its_output(call):
    assert kind_of(call) == call["kind"]
