"""The kind of a call by the output that its request demands, in whatever words."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.capture.auxiliary_calls import KINDS, auxiliary
from gateway.capture.demanded_output import by_demand
from gateway.capture.output_fields import by_schema, normal, table
from gaugeway.exchange import Explicit, Request, Response
from gaugeway.records import Context
from tests.support.work import calls

CORPUS = Path(__file__).parents[2] / "corpora" / "demanded_output.jsonl"
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


def test_the_list_has_enough_of_both_sorts_and_many_languages():
    auxiliaries = [call for call in CALLS if call["kind"]]
    assert len(auxiliaries) >= 40
    assert len(CALLS) - len(auxiliaries) >= 40
    assert len({call["language"] for call in auxiliaries}) >= 10
    assert len({call["language"] for call in CALLS if not call["kind"]}) >= 10


def test_prose_meets_no_demand_for_fields():
    """Whoever asks for fields and gets prose has got an answer, or a passage said so."""
    demanding = [call for call in CALLS if call["kind"] == "query_generation" and call["system"]]
    assert demanding
    for call in demanding:
        assert kind_of({**call, "system": "Notes: " + call["system"], "response": "It is as it says."}) is None


def test_what_the_client_retrieved_itself_is_answered():
    body = {"messages": [{"role": "user", "content": 'Output: {"queries": ["..."]}'}]}
    response = Response(status=200, body={}, text='{"queries": ["a"]}')
    ask = Request(route="chat_completions", headers={}, body=body)
    told = Request(
        route="chat_completions", headers={}, body=body, explicit=Explicit(contexts=(Context(text="A passage."),))
    )
    assert (auxiliary(ask, response), auxiliary(told, response)) == ("query_generation", None)


def test_the_rows_fit_together():
    """No name is in two rows, all are in the form that they are compared in, and each kind is one of those known."""
    names = [name for row in table().rows for name in row.names]
    assert len(names) == len(set(names))
    assert [name for name in names if normal(name) != name] == []
    assert {row.kind for row in table().rows} <= KINDS | {"answer"}


SCHEMAS = [
    ({"properties": {"a": {"$ref": "#/$defs/P"}}, "$defs": {"P": {"properties": {"title": {}}}}}, "title"),
    ({"properties": {"items": {"type": "array", "items": {"properties": {"relevance": {}}}}}}, "grading"),
    ({"properties": {"answer": {"enum": ["yes", "no"]}, "relevance": {"type": "number"}}}, "grading"),
    ({"properties": {"colour": {"type": "string"}, "title": {"type": "string"}}}, None),
    ({"properties": {"response": {"$ref": "#/$defs/lost"}}}, "answer"),
    ({"properties": []}, None),
    ({}, None),
]


@pytest.mark.parametrize(("schema", "kind"), SCHEMAS)
def test_a_schema_says_what_kind_of_call_it_is(schema, kind):
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    assert by_schema({"response_format": wanted}, "chat_completions") == kind
    assert by_schema({"text": {"format": {"type": "json_schema", "schema": schema}}}, "responses") == kind
    assert by_schema({"guided_json": schema}, "chat_completions") == kind


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["properties", "items", "$ref", "$defs", "schema", "json_schema", "format", "enum", "type", "title"]), inner),  # noqa: E501 - one line reads best
)  # fmt: skip


@given(ODD, st.sampled_from(["chat_completions", "responses"]))
def test_odd_schemas_are_never_an_error(odd, route):
    by_schema({"response_format": odd, "text": odd, "guided_json": odd, "format": odd}, route)


@pytest.mark.parametrize("unit", ['{"a":', 'json "a" ', "<a></a>", '"A", ', "AB or ", "{", "`[[ ## a ## ]]`", "A B_c "])
@pytest.mark.parametrize("said", ['{"a": 1}', "[1]", "<a>", "ab"])
def test_the_work_grows_with_the_length_only(unit, said):
    def read(length):
        by_demand([unit * (length // len(unit))], [unit * (length // len(unit)) + "\nCategory:"], said)

    read(1_000)
    few, many = (calls(partial(read, length)) for length in (100_000, 400_000))
    assert many < 6 * few
