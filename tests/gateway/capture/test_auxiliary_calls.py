import json
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.capture import auxiliary_calls
from gateway.capture.auxiliary_calls import DECISION, KINDS, auxiliary
from gaugeway.exchange import Explicit, Request, Response
from gaugeway.records import Context
from tests.support.work import calls

CORPUS = Path(__file__).parents[2] / "corpora" / "auxiliary.jsonl"
ENTRIES = [json.loads(line) for line in CORPUS.read_text("utf-8").splitlines()]
RECALL, PRECISION = 0.95, 0.97


def kind_of(body, answer="An answer.", *, route="chat_completions", finish="stop", tool_calls=0, explicit=None):
    request = Request(route=route, headers={}, body=body, explicit=explicit)
    response = Response(status=200, body={}, text=answer, finish_reason=finish, tool_calls=tool_calls)
    return auxiliary(request, response)


def found(entry):
    calls = int(entry["finish"] == "tool_calls")
    return kind_of(entry["body"], entry["answer"], route=entry["route"], finish=entry["finish"], tool_calls=calls)


def test_the_list_has_enough_of_both_sorts():
    auxiliaries = [entry for entry in ENTRIES if entry["kind"]]
    assert len(auxiliaries) >= 40
    assert len(ENTRIES) - len(auxiliaries) >= 40
    assert {entry["kind"] for entry in auxiliaries} == KINDS - {DECISION}


@pytest.mark.parametrize("route", ["decisions", "systemone"])
def test_a_decision_is_one_by_its_route_whatever_it_says(route):
    body = {"input": "Context:\nRefunds take five days.\n\nQuestion: When?", "questions": []}
    assert kind_of(body, '{"answer": "Five days."}', route=route) == DECISION
    assert kind_of({"tools": [{}]}, "", route=route, finish="tool_calls", tool_calls=1) == DECISION


def test_recall_and_precision_over_the_list():
    pairs = [(entry["kind"], found(entry), entry["style"]) for entry in ENTRIES]
    told = [pair for pair in pairs if pair[1]]
    wanted = [pair for pair in pairs if pair[0]]
    off = [pair for pair in pairs if pair[0] != pair[1]]
    assert sum(expected is not None for expected, _, _ in told) / len(told) >= PRECISION, off
    assert sum(got is not None for _, got, _ in wanted) / len(wanted) >= RECALL, off


@pytest.mark.parametrize("entry", [one for one in ENTRIES if not one["kind"]], ids=lambda one: one["style"])
def test_an_answer_is_never_taken_for_something_else(entry):
    assert found(entry) is None


@pytest.mark.parametrize(
    "entry",
    [one for one in ENTRIES if one["kind"] and one["style"] != "own words without any sign"],
    ids=lambda one: one["style"],
)
def test_a_known_call_is_called_by_its_name(entry):
    assert found(entry) == entry["kind"]


def chat(*texts):
    roles = ["user", "assistant"]
    return {"messages": [{"role": roles[index % 2], "content": text} for index, text in enumerate(texts)]}


def test_a_turn_that_only_asks_for_tools_is_no_answer_whatever_its_finish_reason():
    assert kind_of(chat("Q?"), "", finish="stop", tool_calls=1) == "tool_call"
    assert kind_of(chat("Q?"), "Words.", finish="stop", tool_calls=1) is None
    assert kind_of(chat("Q?"), "", finish="function_call") == "tool_call"


def test_contexts_said_out_of_band_make_it_an_answer():
    body = chat("Follow Up Input: And then?\nStandalone question:")
    assert kind_of(body) == "standalone_question"
    assert kind_of(body, explicit=Explicit(contexts=(Context(text="A passage."),))) is None
    assert kind_of(body, explicit=Explicit(app="shop")) == "standalone_question"


def test_markers_in_the_middle_of_a_long_message_are_passages_not_instructions():
    marker = "Your task is to choose and return the correct tool(s) from the list of available tools"
    assert kind_of(chat(marker)) == "tool_call"
    assert kind_of(chat("a " * 1000 + marker + " b" * 1000)) is None


def test_only_the_last_user_message_counts():
    assert kind_of(chat("Please write a passage to answer the question", "A passage.", "Thanks! Who are you?")) is None


def test_json_that_is_cut_or_deep_is_no_extraction():
    body = {**chat("Q?"), "response_format": {"type": "json_object"}}
    assert kind_of(body, '{"a": 1') is None
    assert kind_of(body, "[" * 100_000 + "]" * 100_000) is None
    assert kind_of(body, '{"a": 1}') == "extraction"


ODD = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=8), lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["role", "content", "text", "type", "messages", "input", "prompt", "system", "format"]), inner))  # fmt: skip  # noqa: E501


@given(st.dictionaries(st.sampled_from(["messages", "input", "text", "response_format", "system", "prompt"]), ODD), ODD)
def test_odd_bodies_are_never_an_error(body, text):
    for route in ("chat_completions", "responses", "messages", "completions"):
        assert kind_of(body, json.dumps(text), route=route) in KINDS | {None}


@pytest.mark.parametrize(
    "unit", ["user: ", "write a title ", "rephrase ", "[", '{"a":', "### task: <chat_history>", "\n"]
)
def test_the_work_grows_with_the_length_only(unit):
    def read(length):
        body = {**chat(unit * (length // len(unit))), "response_format": {"type": "json_object"}}
        kind_of(body, unit * (length // len(unit)))

    read(1_000)
    few, many = (calls(partial(read, length)) for length in (100_000, 400_000))
    assert many < 6 * few


def test_the_words_are_fit_for_a_label():
    assert all(word.replace("_", "").isalpha() and word.islower() for word in KINDS)
    assert Counter(entry["kind"] for entry in ENTRIES if entry["kind"]).keys() <= KINDS


INSTRUCTIONS = [json.loads(line) for line in (CORPUS.parent / "instructions.jsonl").read_text("utf-8").splitlines()]
"""Instructions in words of no product: what they ask for, or None where they want an answer."""


def told(instruction, **beside):
    user = {"role": "user", "content": "How long does it run?"}
    said = {"role": instruction["role"], "content": instruction["text"]}
    return kind_of({"messages": [said] if instruction["role"] == "user" else [said, user], **beside})


@pytest.mark.parametrize("instruction", INSTRUCTIONS, ids=[one["text"][:60] for one in INSTRUCTIONS])
def test_what_an_instruction_asks_for_is_told_in_anybodys_words(instruction):
    assert told(instruction) == instruction["kind"]


def test_the_instructions_are_of_many_kinds_and_languages():
    asked = [one for one in INSTRUCTIONS if one["kind"]]
    assert len({one["kind"] for one in asked}) >= 13
    assert {one["language"] for one in asked} >= {"en", "de", "fr", "es", "it", "pt", "zh", "ja", "ko"}
    assert sum(one["kind"] is None for one in INSTRUCTIONS) >= 50


def test_an_agent_with_tools_rewrites_questions_on_its_way_to_an_answer():
    instruction = next(one for one in INSTRUCTIONS if one["kind"] == "query_generation" and one["role"] == "system")
    tools = [{"type": "function", "function": {"name": "search"}}]
    assert told(instruction) == "query_generation"
    assert told(instruction, tools=tools) is None


def test_an_instruction_that_recurs_is_looked_up():
    instruction = INSTRUCTIONS[-1]
    cache = auxiliary_calls._remembered  # noqa: SLF001 - that it is looked up, and how many are, shows nowhere else
    cache.cache_clear()
    for _ in range(3):
        told(instruction)
    assert cache.cache_info().hits == 2
    for number in range(auxiliary_calls.MOST_REMEMBERED + 10):
        told({"role": "system", "text": f"Instruction {number}"})
    assert cache.cache_info().currsize == auxiliary_calls.MOST_REMEMBERED


def test_a_long_instruction_is_judged_alike_wherever_its_middle_was_left_out():
    ask = "Write a search query for the vector index. Only the query."
    assert told({"role": "system", "text": ask + " Be careful." * 2_000}) == "query_generation"
    assert told({"role": "user", "text": "It runs for twelve minutes. " * 2_000 + "\n" + ask}) == "query_generation"
    assert told({"role": "user", "text": "It runs. " * 1_000 + ask + " It runs." * 1_000}) is None


@pytest.mark.parametrize("roles", [("system", "user"), ("user", "system")])
def test_a_rule_for_system_messages_is_none_for_a_user_who_sends_the_same_long_text(roles):
    text = "You are a title generator. " + "Passages of many words follow here. " * 60 + "".join(roles)
    kinds = {
        role: kind_of(
            {
                "messages": [{"role": role, "content": text}, {"role": "user", "content": "Hi."}][
                    : 1 + (role == "system")
                ]
            }
        )
        for role in roles
    }
    assert kinds == {"system": "title", "user": None}
