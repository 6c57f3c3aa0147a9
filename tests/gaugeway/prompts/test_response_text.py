"""What a response says is read alike for every API, and never raises on odd content."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaugeway.prompts.response_text import read
from gaugeway.records import Usage

ROUTES = ("chat_completions", "completions", "responses", "messages", "decisions", "unheard_of")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
KEYS = ("choices", "message", "content", "text", "refusal", "tool_calls", "usage", "output", "type", "stop_reason")
BODIES = st.recursive(JSON, lambda inner: st.dictionaries(st.sampled_from(KEYS), inner, max_size=5), max_leaves=20)


@pytest.mark.parametrize(
    ("route", "body", "text", "reason"),
    [
        ("chat_completions", {"choices": [{"message": {"content": "So."}, "finish_reason": "stop"}]}, "So.", "stop"),
        ("chat_completions", {"choices": [{"message": {"content": [{"type": "text", "text": "So."}]}}]}, "So.", None),
        ("completions", {"choices": [{"text": "So.", "finish_reason": "length"}]}, "So.", "length"),
        ("messages", {"content": [{"type": "text", "text": "So."}], "stop_reason": "end_turn"}, "So.", "stop"),
        ("messages", {"content": [], "stop_reason": "max_tokens"}, "", "length"),
        (
            "responses",
            {"output": [{"type": "reasoning"}, {"type": "message", "content": [{"text": "So."}]}]},
            "So.",
            None,
        ),
        ("responses", {"output": [], "incomplete_details": {"reason": "max_output_tokens"}}, "", "length"),
    ],
)
def test_the_answer_and_why_it_ended_are_read(route, body, text, reason):
    made = read(route, body, 200)
    assert (made.text, made.finish_reason, made.status) == (text, reason, 200)


@pytest.mark.parametrize(
    ("route", "body", "refusal", "calls"),
    [
        ("chat_completions", {"choices": [{"message": {"refusal": "No."}}]}, True, 0),
        ("chat_completions", {"choices": [{"message": {"tool_calls": [{}, {}]}}]}, False, 2),
        ("chat_completions", {"choices": [{"message": {"function_call": {"name": "f"}}}]}, False, 1),
        ("responses", {"output": [{"type": "message", "content": [{"type": "refusal"}]}]}, True, 0),
        ("responses", {"output": [{"type": "function_call"}, {"type": "custom_tool_call"}]}, False, 2),
        ("messages", {"content": [{"type": "tool_use"}], "stop_reason": "tool_use"}, False, 1),
        ("messages", {"content": [], "stop_reason": "refusal"}, True, 0),
    ],
)
def test_refusals_and_tool_calls_are_seen(route, body, refusal, calls):
    made = read(route, body, 200)
    assert (made.refusal, made.tool_calls) == (refusal, calls)


@pytest.mark.parametrize(
    ("route", "usage", "wanted"),
    [
        (
            "chat_completions",
            {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}},
            Usage(input_tokens=9, output_tokens=2, cached_tokens=4),
        ),
        (
            "responses",
            {"input_tokens": 9, "output_tokens": 2, "output_tokens_details": {"reasoning_tokens": 1}},
            Usage(input_tokens=9, output_tokens=2, reasoning_tokens=1),
        ),
        (
            "messages",
            {"input_tokens": 9, "output_tokens": 2, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 3},
            Usage(input_tokens=9, output_tokens=2, cached_tokens=4, cache_write_tokens=3),
        ),
        ("chat_completions", None, None),
        ("messages", {}, None),
        ("chat_completions", {"prompt_tokens": -1, "completion_tokens": "2"}, Usage()),
    ],
)
def test_tokens_are_counted_where_they_are_numbers(route, usage, wanted):
    assert read(route, {"usage": usage}, 200).usage == wanted


@given(route=st.sampled_from(ROUTES), body=st.dictionaries(st.sampled_from(KEYS), BODIES, max_size=6))
def test_odd_content_is_ignored_and_never_raises(route, body):
    made = read(route, body, 200)
    assert isinstance(made.text, str)
    assert made.tool_calls >= 0
