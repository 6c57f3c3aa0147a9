"""Events that repeat an earlier one but for a text: the same result as decoding every event, in less time."""

import json
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.http import sse
from gateway.http.sse_repeats import RepeatedEvents

TEXT = st.text(max_size=6) | st.sampled_from(['"', "\\", '\\"', '"}', ',"obfuscation":"a"', "é", "\u2028", ""])
DELTA = st.fixed_dictionaries(
    {},
    optional={
        "content": TEXT | st.none(),
        "role": st.sampled_from(["assistant", "tool"]),
        "refusal": TEXT | st.none(),
        "reasoning_content": TEXT,
        "tool_calls": st.just([{"index": 0, "function": {"name": "f", "arguments": "{"}}]) | st.just([]),
        "function_call": st.just({"name": "g", "arguments": "x"}) | st.none(),
    },
)
CHOICE = st.fixed_dictionaries(
    {"index": st.sampled_from([0, 0, 0, 1]), "delta": DELTA},
    optional={"finish_reason": st.sampled_from([None, "stop"]), "text": TEXT, "logprobs": st.none()},
)
CHUNK = st.fixed_dictionaries(
    {"id": st.sampled_from(["a", "a", "b"]), "choices": st.lists(CHOICE, max_size=2)},
    optional={
        "usage": st.sampled_from([None, {"total_tokens": 3}]),
        "content": TEXT,
        "obfuscation": st.sampled_from(["", "aB3", "not alnum!"]),
    },
)
BLOCK_DELTA = st.fixed_dictionaries(
    {"type": st.just("text_delta")}, optional={"text": TEXT, "thinking": TEXT, "partial_json": TEXT}
)
ANTHROPIC = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            ["content_block_delta"] * 4 + ["content_block_start", "message_start", "message_delta", "error"]
        ),
        "index": st.sampled_from([0, 0, 1]),
        "delta": BLOCK_DELTA,
    },
    optional={
        "content_block": st.just({"type": "text", "text": "so "}),
        "message": st.just({"id": "m", "usage": {"input_tokens": 1}}),
        "usage": st.just({"output_tokens": 2}),
    },
)
RESPONSES = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            ["response.output_text.delta"] * 3 + ["response.created", "response.completed", "error", "response.failed"]
        ),
        "delta": TEXT,
    },
    optional={"response": st.sampled_from([{"id": "r", "output": []}, {"id": "s"}, None]), "error": st.just("e")},
)


def repeated(events):
    """Every event several times in a row, as streams have them, with other texts."""
    return st.lists(st.tuples(events, st.integers(1, 4)), max_size=8).map(
        lambda some: [event for event, times in some for _ in range(times)]
    )


def stream_of(events, separators=(", ", ": ")):
    return b"".join(b"data: " + json.dumps(one, separators=separators).encode() + b"\n\n" for one in events)


def by_decoding_all(route, stream):
    with (
        mock.patch.object(RepeatedEvents, "piece", return_value=None),
        mock.patch.object(RepeatedEvents, "run", return_value=""),
        mock.patch("gateway.http.sse.DECIDING", (b"",)),
    ):
        return sse.fold(route, stream)


@settings(max_examples=400)
@given(repeated(CHUNK), st.sampled_from([(", ", ": "), (",", ":")]))
@example([{"id": "a", "choices": [{"index": 0, "delta": {"content": one}}]} for one in 'a"\\é'], (",", ":"))
def test_chat_chunks(events, separators):
    stream = stream_of(events, separators)
    assert sse.fold("chat", stream) == by_decoding_all("chat", stream)


@settings(max_examples=400)
@given(repeated(ANTHROPIC), st.sampled_from([(", ", ": "), (",", ":")]))
def test_anthropic_events(events, separators):
    stream = stream_of(events, separators)
    assert sse.fold("messages", stream) == by_decoding_all("messages", stream)


@settings(max_examples=300)
@given(repeated(RESPONSES), st.sampled_from([(", ", ": "), (",", ":")]))
def test_events_of_the_responses_api(events, separators):
    stream = stream_of(events, separators)
    assert sse.fold("responses", stream) == by_decoding_all("responses", stream)


@settings(max_examples=400)
@given(
    st.lists(
        TEXT | st.binary(max_size=4) | st.sampled_from([b"\\", b'a","b', b"\\ud83d", b"\\n", b"\xff"]), max_size=8
    ),
    st.booleans(),
)
def test_any_bytes_where_the_text_is(texts, padded):
    head, tail = b'{"choices":[{"index":0,"delta":{"content":"', b'"}}]'
    tail += b',"obfuscation":"aB"}' if padded else b"}"
    insides = [one if isinstance(one, bytes) else json.dumps(one).encode()[1:-1] for one in texts]
    stream = b"".join(b"data: " + head + one + tail + b"\n\n" for one in [b"first", *insides])
    assert sse.fold("chat", stream) == by_decoding_all("chat", stream)


def test_a_run_is_read_at_once():
    texts = [f'word{n} "quoted" \\ ü \n ' for n in range(50)]
    stream = stream_of([chunk(text) for text in texts] + [chunk("", usage={"total_tokens": 3})], (",", ":"))
    with mock.patch.object(RepeatedEvents, "piece", autospec=True, side_effect=RepeatedEvents.piece) as alone:
        body = sse.fold("chat", stream)
    assert body["choices"][0]["message"]["content"] == "".join(texts)
    assert body["usage"] == {"total_tokens": 3}
    assert alone.call_count <= 3


def test_many_short_runs_are_not_each_searched_to_the_end():
    events = [chunk(str(n), id=str(n // 3)) for n in range(3_000)]
    with mock.patch.object(sse.Events, "rest", new_callable=mock.PropertyMock, return_value=b"") as looked:
        sse.fold("chat", stream_of(events))
    assert looked.call_count <= 4


def chunk(text, **more):
    return {"id": "c", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}], **more}


@pytest.mark.parametrize("padding", [None, "x"])
def test_only_the_first_of_like_events_is_decoded(padding):
    texts = [f'word{n} "quoted" \\ ü ' for n in range(50)]
    events = [chunk(text, **({"obfuscation": padding * (n % 9)} if padding else {})) for n, text in enumerate(texts)]
    stream = stream_of(events, (",", ":"))
    with mock.patch("gateway.http.sse.object_of", wraps=sse.object_of) as decoded:
        body = sse.fold("chat", stream)
    assert body["choices"][0]["message"]["content"] == "".join(texts)
    assert decoded.call_count == 1


def test_a_stream_whose_events_all_differ_is_given_up():
    events = [chunk(str(n), logprobs=n) for n in range(50)]
    with mock.patch("gateway.http.sse_repeats._decode", wraps=json.loads) as proofs:
        body = sse.fold("chat", stream_of(events))
    assert body["choices"][0]["message"]["content"] == "".join(map(str, range(50)))
    assert proofs.call_count == 8


def test_the_same_text_elsewhere_in_an_event_is_not_taken_for_the_content():
    events = [{"note": {"content": str(n)}, **chunk("x")} for n in range(4)]
    body = sse.fold("chat", stream_of(events))
    assert body["choices"][0]["message"]["content"] == "xxxx"
