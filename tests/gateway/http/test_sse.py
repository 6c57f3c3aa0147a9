import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.sse import fold
from gateway.http.sse_events import Events


def stream(*events, end=b"data: [DONE]\n\n"):
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + end


def chunk(index=0, finish=None, **delta):
    return {
        "id": "c1",
        "model": "m",
        "usage": None,
        "choices": [{"index": index, "delta": delta, "finish_reason": finish}],
    }


def test_comments_other_fields_and_line_endings_are_read_as_the_specification_says():
    raw = b": ping\r\n\r\nevent: x\r\nid: 7\r\ndata: one\r\n\r\ndata:two\r\rdata: three\ndata: four\n\ndata: cut off"
    assert list(Events(raw)) == [b"one", b"two", b"three\nfour"]


@given(st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=("Cs",)), min_size=1)))
def test_every_event_comes_back(texts):
    raw = b"".join(b"data: " + text.encode() + b"\n\n" for text in texts)
    assert [data.decode() for data in Events(raw)] == texts


def test_chat_chunks_fold_into_the_completion():
    folded = fold(
        "chat_completions",
        stream(
            chunk(role="assistant", content=""),
            chunk(content="Hel"),
            chunk(content="lo"),
            chunk(finish="stop"),
            {"id": "c1", "model": "m", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
        ),
    )
    assert folded["id"] == "c1"
    assert folded["usage"] == {"prompt_tokens": 3, "completion_tokens": 2}
    assert folded["choices"] == [
        {"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}
    ]


def test_content_in_parts_is_the_text_of_its_text_parts():
    def parts(*some):
        return chunk(content=list(some))

    folded = fold(
        "chat_completions",
        stream(
            parts({"type": "thinking", "thinking": [{"type": "text", "text": "Which moons?"}]}),
            parts({"type": "text", "text": "Phobos"}, None, 7, {"type": "text", "text": None}),
            chunk(content=" and"),
            chunk(content=" and"),
            parts({"type": "text", "text": " Deimos"}),
            chunk(finish="stop"),
        ),
    )
    assert folded["choices"][0]["message"]["content"] == "Phobos and and Deimos"


def test_several_choices_are_kept_apart():
    folded = fold("chat_completions", stream(chunk(1, content="b"), chunk(0, content="a"), chunk(1, content="B")))
    assert [choice["message"]["content"] for choice in folded["choices"]] == ["a", "bB"]


def test_tool_calls_are_put_together_by_index():
    def call(index, **fields):
        return chunk(tool_calls=[{"index": index, **fields}])

    folded = fold(
        "chat_completions",
        stream(
            call(0, id="a", type="function", function={"name": "search", "arguments": ""}),
            call(0, function={"arguments": '{"q":'}),
            call(1, id="b", type="function", function={"name": "other", "arguments": "{}"}),
            call(0, function={"arguments": '"x"}'}),
            chunk(finish="tool_calls"),
        ),
    )
    calls = folded["choices"][0]["message"]["tool_calls"]
    assert [(one["id"], one["function"]["name"], one["function"]["arguments"]) for one in calls] == [
        ("a", "search", '{"q":"x"}'),
        ("b", "other", "{}"),
    ]


def test_completion_chunks_fold_into_text():
    pieces = [{"choices": [{"index": 0, "text": text, "finish_reason": None}]} for text in ("a", "b")]
    assert fold("completions", stream(*pieces))["choices"][0]["text"] == "ab"


def test_the_terminal_event_of_the_responses_api_is_the_response():
    whole = {"id": "r", "output": [{"type": "message", "content": [{"type": "output_text", "text": "done"}]}]}
    events = [
        {"type": "response.created", "response": {"id": "r", "output": []}},
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "do"},
        {"type": "response.completed", "response": whole},
    ]
    assert fold("responses", stream(*events, end=b"")) == whole


def test_a_cut_stream_of_the_responses_api_gives_what_the_deltas_brought():
    events = [
        {"type": "response.created", "response": {"id": "r", "output": []}},
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "half an "},
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "answer"},
    ]
    assert fold("responses", stream(*events, end=b""))["output"] == [
        {"type": "message", "content": [{"type": "output_text", "text": "half an answer"}]}
    ]


LONG_S = 10.0
"""Processor time: several times what is needed on a slow machine, a fraction of what copying at each event takes."""


MANY_KEYS = {str(number): 1 for number in range(150_000)}


@pytest.mark.full
@pytest.mark.parametrize(
    ("route", "first", "event"),
    [
        ("completions", [], {"choices": [{"text": "a" * 35}]}),
        ("chat_completions", [], chunk(tool_calls=[{"index": 0, "function": {"arguments": "a" * 60}}])),
        ("messages", [], {"type": "content_block_delta", "delta": {"text": "a" * 60}}),
        ("responses", [], {"type": "response.output_text.delta", "delta": "a" * 60}),
        ("responses", [{"response": MANY_KEYS}], {"type": "error"}),
        ("messages", [{"type": "message_delta", "usage": MANY_KEYS}], {"type": "message_delta"}),
    ],
    ids=["text", "arguments", "block", "delta", "errors", "usage"],
)
def test_a_long_stream_costs_no_more_than_its_length(route, first, event):
    size = 12_000_000 if not first else 2_500_000
    one = stream(event, end=b"")
    raw = stream(*first, end=b"") + one * (size // len(one))
    began = time.process_time()
    folded = fold(route, raw)
    assert time.process_time() - began < LONG_S
    assert folded


def test_an_error_after_the_response_began_is_kept_with_it():
    events = [{"type": "response.created", "response": {"id": "r"}}, {"type": "error", "message": "m"}]
    folded = fold("responses", stream(*events, end=b""))
    assert folded == {"id": "r", "status": "failed", "error": events[1], "output": []}


@given(st.binary(), st.sampled_from(["chat_completions", "completions", "responses"]))
def test_no_bytes_make_folding_raise(raw, route):
    assert isinstance(fold(route, raw), dict)


@given(st.sampled_from(["chat_completions", "responses"]), st.data())
def test_no_json_makes_folding_raise(route, data):
    keys = st.sampled_from(["choices", "delta", "index", "tool_calls", "function", "type", "response", "item", "usage"])
    values = st.recursive(
        st.none() | st.integers() | st.text(max_size=3) | st.just("error"),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=12,
    )
    assert isinstance(fold(route, stream(*data.draw(st.lists(values, max_size=4)))), dict)


def test_calls_with_one_index_and_different_ids_are_different_calls():
    def call(identity, **function):
        return chunk(tool_calls=[{"index": 0, **({"id": identity} if identity else {}), "function": function}])

    folded = fold(
        "chat_completions",
        stream(
            call("a", name="find", arguments=""),
            call(None, arguments='{"city":'),
            call("a", arguments='"Oslo"}'),
            call("b", name="find", arguments='{"city":"Bergen"}'),
            call(None, arguments=" "),
        ),
    )
    calls = folded["choices"][0]["message"]["tool_calls"]
    assert [(one["id"], one["function"]["name"], one["function"]["arguments"]) for one in calls] == [
        ("a", "find", '{"city":"Oslo"}'),
        ("b", "find", '{"city":"Bergen"} '),
    ]


def test_nothing_after_the_end_of_a_chat_stream_belongs_to_the_answer():
    folded = fold("chat_completions", stream(chunk(content="Two.")) + stream(chunk(content=" More.")))
    assert folded["choices"][0]["message"]["content"] == "Two."


def test_a_byte_order_mark_is_passed_over():
    folded = fold("chat_completions", b"\xef\xbb\xbf" + stream(chunk(content="No. "), chunk(content="Two.")))
    assert folded["choices"][0]["message"]["content"] == "No. Two."


def block(index, *pieces, **start):
    begin = {"type": "content_block_start", "index": index, "content_block": start}
    deltas = [{"type": "content_block_delta", "index": index, "delta": piece} for piece in pieces]
    return [begin, *deltas, {"type": "content_block_stop", "index": index}]


def test_arguments_of_streamed_tool_use_are_where_a_message_has_them():
    def part(text):
        return {"type": "input_json_delta", "partial_json": text}

    folded = fold(
        "messages",
        stream(
            {"type": "message_start", "message": {"id": "m1", "content": []}},
            *block(0, {"type": "text_delta", "text": "I look."}, type="text", text=""),
            *block(1, part(""), part('{"city": "Os'), part('lo"}'), type="tool_use", id="t1", name="find", input={}),
            *block(2, part('{"city": "Ber'), type="tool_use", id="t2", name="find"),
            *block(3, part(""), type="tool_use", id="t3", name="now", input={}),
        ),
    )
    assert [one.get("input") for one in folded["content"]] == [None, {"city": "Oslo"}, '{"city": "Ber', {}]
    assert folded["content"][0]["text"] == "I look."
    assert not any("partial_json" in one for one in folded["content"])


def raw(*contents):
    """A chat stream; each content is the inside of a JSON string."""
    return b"".join(b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % one for one in contents)


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        ((b"It is NOT \xff safe, ", b"it boils."), "It is NOT \ufffd safe, it boils."),
        ((b"The caf\xe9 sells ", b"kettles."), "The caf\ufffd sells kettles."),
        ((b"Fox \\ud83e", b"\\udd8a runs."), "Fox \U0001f98a runs."),
        ((b"Half \\ud83e", b" alone."), "Half \ufffd alone."),
        ((b"A \x01 b", b" c"), "A \x01 b c"),
    ],
)
def test_an_event_with_an_odd_character_keeps_its_text(contents, said):
    folded = fold("chat_completions", raw(*contents))
    assert folded["choices"][0]["message"]["content"] == said
    assert json.dumps(folded, ensure_ascii=False).encode()


def test_a_number_that_is_none_costs_no_text():
    event = b'data: {"choices":[{"index":0,"delta":{"content":"Two."},"logprobs":NaN}],"usage":{"x":Infinity}}\n\n'
    assert fold("chat_completions", event * 3)["choices"][0]["message"]["content"] == "Two.Two.Two."


def test_names_and_keys_have_no_half_characters_either():
    event = b'data: {"model":"m\\ud83e","choices":[{"index":0,"delta":{"role":"r\\udd8a","content":"\\ud83e"}}]}\n\n'
    folded = fold("chat_completions", event)
    assert folded["model"] == "m\ufffd"
    assert json.dumps(folded, ensure_ascii=False).encode()
