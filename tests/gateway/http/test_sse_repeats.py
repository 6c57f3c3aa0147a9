"""Events that repeat an earlier one but for a text: the same result as decoding every event, in less time."""

import json
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.http import sse
from gateway.http.sse_events import Objects
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


def chunk(text, **more):
    return {"id": "c", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}], **more}


def by_decoding_all(route, stream):
    with (
        mock.patch.object(RepeatedEvents, "piece", return_value=None),
        mock.patch.object(RepeatedEvents, "run", return_value=""),
        mock.patch("gateway.http.sse.DECIDING", (b"",)),
    ):
        return sse.fold(route, stream)


@settings(max_examples=4 * settings.default.max_examples)
@given(repeated(CHUNK), st.sampled_from([(", ", ": "), (",", ":")]))
@example([{"id": "a", "choices": [{"index": 0, "delta": {"content": one}}]} for one in 'a"\\é'], (",", ":"))
def test_chat_chunks(events, separators):
    stream = stream_of(events, separators)
    assert sse.fold("chat", stream) == by_decoding_all("chat", stream)


def as_events(stream):
    *whole, rest = stream.split(b"\n\n")
    return [one + b"\n\n" for one in whole] + [rest] * bool(rest)


@settings(max_examples=3 * settings.default.max_examples)
@given(repeated(CHUNK), st.sampled_from([(", ", ": "), (",", ":")]), st.integers(0, 3), st.integers(0, 40))
def test_chunks_that_are_events_or_not(events, separators, joined, cut):
    stream = stream_of(events, separators) + b"data: [DONE]\n\n"
    stream = stream[: len(stream) - cut]
    chunks = as_events(stream)
    chunks[joined : joined + 2] = [b"".join(chunks[joined : joined + 2])]
    expected = by_decoding_all("chat", stream)
    assert sse.fold("chat", stream, chunks) == expected
    assert sse.fold("chat", stream, [stream[at : at + 7] for at in range(0, len(stream), 7)]) == expected


WORDS = ["The", " pump", " runs", " for", " 12", " minutes", "."]
LAST = b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def plain_stream(words=WORDS):
    return stream_of([chunk(word) for word in words], (",", ":")) + LAST


def inside(text):
    """The stream with these bytes in place of the text of two events in a row."""
    events = as_events(plain_stream())
    events[2:2] = [events[1].replace(b" pump", one) for one in text]
    return b"".join(events)


ODD_STREAMS = {
    "comments": plain_stream().replace(b"\n\ndata: ", b"\n\n: keep-alive\n\ndata: ", 4),
    "a comment in an event": plain_stream().replace(b"data: ", b": ping\ndata: "),
    "CRLF": plain_stream().replace(b"\n", b"\r\n"),
    "CR": plain_stream().replace(b"\n", b"\r"),
    "event lines": plain_stream().replace(b"data: ", b"event: message\nid: 7\ndata: "),
    "data in several lines": plain_stream().replace(b',"choices"', b'\ndata: ,"choices"'),
    "no blank after the colon": plain_stream().replace(b"data: ", b"data:"),
    "blank lines": plain_stream().replace(b"\n\n", b"\n\n\n"),
    "no [DONE]": plain_stream().removesuffix(b"data: [DONE]\n\n"),
    "more after [DONE]": plain_stream() + stream_of([chunk(" And on.")]),
    "cut in an event": plain_stream()[:-150],
    "no UTF-8": inside([b"\xff\xfe"]),
    "a character in two events": inside([b"\xc3", b"\xbc"]),
    "a surrogate pair in two events": inside([b"\\ud83d", b"\\ude00"]),
    "control characters": inside([b"a\tb", b"\x00"]),
    "an escape without an end": inside([b"a\\", b"b"]),
    "a quote that ends the text": inside([b'a","refusal":"b', b'c"}}]}', b'"']),
    "braces": plain_stream(['{"a": [', "1]", "}}]}", ' data: {"x":1}', "\n\n", "data: [DONE]\n\n"]),
    "a chunk within the text": inside([as_events(plain_stream())[2].strip(), b"b"]),
    "empty texts": plain_stream(["", "", "", ""]),
    "empty choices": plain_stream().replace(b"\n\n", b'\n\ndata: {"id":"c","choices":[]}\n\n', 5),
    "several choices": stream_of(
        [{"id": "c", "choices": [{"index": at, "delta": {"content": one}} for at in (0, 1)]} for one in WORDS]
    ),
    "choices in turn": stream_of(
        [{"id": "c", "choices": [{"index": at % 2, "delta": {"content": one}}]} for at, one in enumerate(WORDS)]
    ),
    "a tool call": plain_stream()
    + stream_of(
        [
            {"id": "c", "choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": function}]}}]}
            for function in ({"name": "search", "arguments": ""}, {"arguments": '{"q":'}, {"arguments": "1}"})
        ]
    ),
    "a usage chunk": plain_stream().replace(LAST, b'data: {"choices":[],"usage":{"total_tokens":9}}\n\n' + LAST),
    "usage in each": stream_of([chunk(word, usage={"total_tokens": at}) for at, word in enumerate(WORDS)]),
    "an error": plain_stream().replace(LAST, b'data: {"error":{"message":"overloaded"}}\n\n'),
    "an error in between": b"".join(
        [*as_events(plain_stream())[:3], b'data: {"error":{}}\n\n', *as_events(plain_stream())[3:]]
    ),
    "no JSON": plain_stream().replace(LAST, b"data: <html>\n\n" + LAST),
    "padding": stream_of([chunk(one, obfuscation="aB3" * at) for at, one in enumerate(WORDS)], (",", ":")),
    "nothing": b"",
}


@pytest.mark.parametrize("stream", ODD_STREAMS.values(), ids=ODD_STREAMS)
@pytest.mark.parametrize("cut", [as_events, lambda stream: [stream], lambda stream: [stream[:90], stream[90:]]])
def test_odd_streams_are_read_as_if_each_event_were_decoded(stream, cut):
    assert sse.fold("chat", stream, cut(stream)) == by_decoding_all("chat", stream)


def test_events_that_came_as_chunks_are_read_without_splitting_the_stream():
    words = [*WORDS, ' "quoted" \\ \n', " ü", " 🙂"] * 9
    stream = plain_stream(words)
    with (
        mock.patch.object(RepeatedEvents, "_split", side_effect=AssertionError),
        mock.patch.object(Objects, "read", autospec=True, side_effect=Objects.read) as decoded,
    ):
        body = sse.fold("chat", stream, as_events(stream))
    assert body["choices"][0]["message"]["content"] == "".join(words)
    assert body["choices"][0]["finish_reason"] == "stop"
    assert decoded.call_count == 2  # the first, and the one with the finish reason


@settings(max_examples=4 * settings.default.max_examples)
@given(repeated(ANTHROPIC), st.sampled_from([(", ", ": "), (",", ":")]))
def test_anthropic_events(events, separators):
    stream = stream_of(events, separators)
    assert sse.fold("messages", stream) == by_decoding_all("messages", stream)
    assert sse.fold("messages", stream, as_events(stream)) == by_decoding_all("messages", stream)


@settings(max_examples=3 * settings.default.max_examples)
@given(repeated(RESPONSES), st.sampled_from([(", ", ": "), (",", ":")]))
def test_events_of_the_responses_api(events, separators):
    stream = stream_of(events, separators)
    assert sse.fold("responses", stream) == by_decoding_all("responses", stream)


@settings(max_examples=4 * settings.default.max_examples)
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
    assert sse.fold("chat", stream, as_events(stream)) == by_decoding_all("chat", stream)


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


@pytest.mark.parametrize("padding", [None, "x"])
def test_only_the_first_of_like_events_is_decoded(padding):
    texts = [f'word{n} "quoted" \\ ü ' for n in range(50)]
    events = [chunk(text, **({"obfuscation": padding * (n % 9)} if padding else {})) for n, text in enumerate(texts)]
    stream = stream_of(events, (",", ":"))
    with mock.patch.object(Objects, "read", autospec=True, side_effect=Objects.read) as decoded:
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


INSIDES = st.sampled_from(
    ["a", " the", "\\n", '\\"', "\\\\", "\\", '"', "\n", "\t", "é", "\\u00e9", "\\ud83d", "\\ude00", ""]
)


@settings(max_examples=3 * settings.default.max_examples)
@given(st.lists(INSIDES, min_size=1, max_size=8))
@example(["a", "b\\", "n"])
@example(["a", "\\ud83d", "\\ude00"])
def test_chunks_whose_texts_are_written_in_any_way(insides):
    """Also as no serialiser writes them: a raw newline, a quote that ends the text, half of an escape."""
    begin, end = b'data: {"choices": [{"index": 0, "delta": {"content": "', b'"}}]}\n\n'
    chunks = [begin + one.encode() + end for one in ["so", *insides, "it is"]]
    stream = b"".join(chunks)
    assert sse.fold("chat", stream, chunks) == by_decoding_all("chat", stream)
