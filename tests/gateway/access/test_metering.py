import gzip
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.access.metering import (
    ENCODED_BYTES,
    HEAD_BYTES,
    MOST_COUNTED,
    TAIL_BYTES,
    ConversationMeter,
    Meter,
    text_tokens,
    usage_of,
)
from gaugeway.records import Usage

USAGE = {"prompt_tokens": 12, "completion_tokens": 34}
REPORTED = Usage(input_tokens=12, output_tokens=34)
JSON = [(b"content-type", b"application/json")]


def metered(body, *headers, pieces=1000, complete=True):
    meter = Meter()
    meter.begin(200, [*JSON, *headers])
    for start in range(0, len(body), pieces):
        meter.feed(body[start : start + pieces])
    return meter.read(complete=complete)


def answer(text="A.", **more):
    return json.dumps({"model": "m-1", "choices": [{"message": {"content": text}}], **more}).encode()


def event(content):
    return b"data: " + json.dumps(content).encode() + b"\n\n"


@given(st.binary(max_size=300), st.integers(1, 50))
def test_reading_any_bytes_never_fails(body, pieces):
    for coding in ((), ((b"Content-Encoding", b"gzip"),), ((b"content-encoding", b"x, y, z, gzip"),)):
        assert metered(body, *coding, pieces=pieces).output_tokens >= 0


@pytest.mark.parametrize(
    "body",
    [
        answer(usage=USAGE),
        answer(usage=USAGE)[:-1] + b', "x": NaN}',
        b"\xef\xbb\xbf" + answer(usage=USAGE),
        answer("x" * 300_000, usage=USAGE),
        event({"choices": [{"delta": {"content": "A."}}]})
        + event({"choices": [], "usage": USAGE})
        + b"data: [DONE]\n\n",
        event({"choices": [], "usage": USAGE}) * 3000,
        event(
            {
                "type": "response.completed",
                "response": {
                    "output": ["x" * 200_000],
                    "usage": {"input_tokens": 12, "output_tokens": 34},
                    "user": None,
                },
            }
        ),
    ],
    ids=["plain", "NaN", "BOM", "large", "stream", "with every event", "responses"],
)
def test_usage_is_found_whatever_is_around_it(body):
    found = metered(body)
    assert (found.usage.input_tokens, found.usage.output_tokens) == (12, 34)


def test_anthropics_stream_reports_its_input_first_and_its_output_last():
    first = event(
        {"type": "message_start", "message": {"model": "c", "usage": {"input_tokens": 12, "output_tokens": 1}}}
    )
    text = event({"type": "content_block_delta", "delta": {"text": "x" * 100}}) * 2000
    last = event({"type": "message_delta", "usage": {"output_tokens": 34}})
    found = metered(first + text + last)
    assert (found.usage, found.model) == (REPORTED, "c")


def test_what_stands_in_a_text_or_in_arguments_is_no_usage():
    fake = json.dumps({"usage": {"prompt_tokens": 0, "completion_tokens": 0}})
    assert metered(answer(fake)).usage is None
    assert metered(event({"choices": [{"delta": {"content": fake}}]})).usage is None
    nested = answer(usage=USAGE, output=[{"input": {"usage": {"prompt_tokens": 10**6, "completion_tokens": 0}}}])
    assert metered(nested).usage == REPORTED


def named(kind, **more):
    return b"event: " + kind.encode() + b"\n" + event({"type": kind, **more})


FORGED = {"usage": {"input_tokens": 1e9, "output_tokens": 1e9, "prompt_tokens": 1e9, "completion_tokens": 1e9}}
RESPONSES_USAGE = {"input_tokens": 12, "output_tokens": 34}


def echo(size):
    """What answers repeat of a request; the forged usage stands at many depths."""
    schema = {"type": "object", "examples": [FORGED], "description": "x" * size, **FORGED}
    tools = [{"type": "function", "name": "f", "parameters": schema, **FORGED}, schema]
    return {"tools": tools, "metadata": FORGED, "prompt": {"variables": FORGED}, "text": {"format": {"schema": FORGED}}}


def responses_stream(size, last):
    echoed = {"id": "resp_1", "model": "m-1", **echo(size)}
    begun = {"response": {**echoed, "status": "in_progress", "usage": None}, "item": {**FORGED, **echo(size)}}
    first = b"".join(named(f"response.{kind}", **begun) for kind in ("created", "queued", "in_progress"))
    items = named("response.output_item.added", **begun) + named("response.output_item.done", **begun)
    text = named("response.output_text.delta", delta="A.", **FORGED)
    whole = {**echoed, "output": [], "usage": RESPONSES_USAGE, **echo(size)}
    return first + items + text + named(f"response.{last}", response=whole)


def chat_stream(size, **last):
    chunk = event({"choices": [{"delta": {"content": "A."}}], "request": echo(size), "usage": None})
    return chunk * 3 + event({"choices": [], "request": echo(size)} | last) + b"data: [DONE]\n\n"


def messages_stream(size):
    begun = {"role": "assistant", "model": "m-1", "container": echo(size), "usage": {"input_tokens": 12}}
    block = named("content_block_start", content_block={"type": "tool_use", "input": FORGED, **FORGED})
    deltas = named("content_block_delta", delta={"type": "text_delta", "text": "x" * size, **FORGED})
    last = named("message_delta", delta=FORGED, context=echo(size), usage={"output_tokens": 34})
    return named("message_start", message=begun) + block + deltas + last + named("message_stop")


@pytest.mark.parametrize("size", [10, 30_000, 200_000])
@pytest.mark.parametrize("line_break", [b"\n", b"\r\n"])
def test_usage_counts_only_at_its_place_in_an_event(size, line_break):
    streams = [responses_stream(size, last) for last in ("completed", "incomplete", "failed")]
    streams += [
        chat_stream(size, usage=USAGE),
        chat_stream(size, x_groq={"id": "r", "usage": USAGE}),
        chat_stream(size, choices=[{"index": 0, "delta": {}, "finish_reason": "stop", "usage": USAGE}]),
        messages_stream(min(size, 30_000)),  # whole events: a first one beyond what is kept has no end
    ]
    found = [metered(stream.replace(b"\n", line_break)).usage for stream in streams]
    places = range(len(streams))
    expected = [None if size == 200_000 and place in (4, 5) else REPORTED for place in places]
    assert found == expected  # of an event that is not kept whole, usage counts where its API has it


@pytest.mark.parametrize("size", [10, 30_000, 200_000])
def test_usage_counts_only_at_the_top_of_an_answer_without_a_stream(size):
    for usage in (USAGE, RESPONSES_USAGE):
        for more in ({}, {"odd": float("nan")}):
            assert metered(json.dumps({**echo(size), "usage": usage, **more}).encode()).usage == REPORTED
            assert metered(json.dumps({"usage": usage, "id": "c", **more, **echo(size)}).encode()).usage == REPORTED
            assert metered(json.dumps({**echo(size), **more}).encode()).usage is None


@given(st.integers(0, 400_000))
def test_an_answer_that_was_cut_off_reports_no_forged_usage(end):
    for answered in (
        json.dumps({"id": "c", **echo(60_000)}).encode(),
        responses_stream(30_000, "completed"),
        chat_stream(60_000),
    ):
        found = metered(answered[:end], pieces=20_000, complete=False).usage
        assert found in {None, REPORTED}


@pytest.mark.parametrize("size", [10, 100_000])
def test_an_encoded_answer_is_read_and_a_broken_one_estimated(size):
    packed = gzip.compress(answer("x" * size, usage=USAGE))
    assert metered(packed, (b"Content-Encoding", b"gzip")).usage == REPORTED
    assert metered(b"\x00" * size, (b"Content-Encoding", b"gzip"))[:3] == (None, None, -(-size // 4))
    assert metered(packed, (b"Content-Encoding", b"x-odd")).usage is None


@given(st.lists(st.integers(1, 50_000), max_size=40), st.booleans())
def test_no_more_is_held_than_the_ends_and_one_piece_more_of_each(sizes, encoded):
    tracemalloc.start()
    try:
        meter = Meter()
        meter.begin(200, [(b"content-encoding", b"gzip")] if encoded else [])
        for size in sizes * 5:
            meter.feed(b"x" * size)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    head = ENCODED_BYTES if encoded else HEAD_BYTES
    each = 200  # of a piece's object and its place
    assert held <= head + TAIL_BYTES + 2 * 50_000 + 100_000 + each * len(sizes) * 5


def test_without_usage_an_estimate_follows_the_text_that_was_sent():
    text = "word " * 4000
    stream = b"".join(event({"choices": [{"delta": {"content": text[i : i + 5]}}]}) for i in range(0, len(text), 5))
    assert metered(stream).output_tokens == pytest.approx(5000, rel=0.05)
    assert metered(stream[: len(stream) // 2]).output_tokens == pytest.approx(2500, rel=0.05)
    assert metered(answer(text)).output_tokens == pytest.approx(5000, rel=0.05)
    assert metered(b"").output_tokens == 0


def test_what_a_queued_answer_repeats_of_its_request_is_no_usage():
    echoed = {"tools": [{"parameters": {"usage": {"input_tokens": 0, "output_tokens": 0}}}]}
    for status in ("queued", "in_progress"):
        read = metered(json.dumps({"status": status, "usage": None, **echoed}).encode())
        assert (read.usage, read.finished) == (None, False)
    assert metered(json.dumps({"status": "completed", "usage": USAGE, **echoed}).encode())[::4] == (REPORTED, True)
    assert not metered(json.dumps({"status": "queued", "instructions": "x" * 300_000}).encode()).finished


def test_a_stream_has_ended_when_its_last_event_is_there():
    said = event({"choices": [{"delta": {"content": "\ndata: [DONE]\nevent: message_stop\n"}}]})
    echo = b"event: response.created\n" + event({"response": {"tools": [{"finish_reason": "stop"}]}})
    for more in (said, echo):
        assert not metered(more, complete=False).ended
    for last in (
        b"data: [DONE]\n\n",
        event({"choices": [{"finish_reason": "stop"}]}),
        b"event: response.completed\n" + event({"type": "response.completed"}),
        b"event: message_delta\n" + event({"type": "message_delta"}),
    ):
        assert metered(said + last, complete=False).ended


def test_counts_beyond_belief_are_cut_and_odd_ones_passed_over():
    assert usage_of({"prompt_tokens": 10**30, "completion_tokens": 1e300}) == Usage(
        input_tokens=MOST_COUNTED, output_tokens=MOST_COUNTED
    )
    for odd in (None, [], {}, {"prompt_tokens": "1"}, {"prompt_tokens": -1}, {"prompt_tokens": True}):
        assert usage_of(odd) is None
    assert usage_of({"prompt_tokens": float("nan"), "total_tokens": 7}) == Usage(input_tokens=7)
    assert metered(b'{"usage": {"prompt_tokens": ' + b"9" * 5000 + b"}}").usage is None


def test_what_is_written_to_a_cache_is_input():
    usage = usage_of({"input_tokens": 1, "cache_creation_input_tokens": 10, "cache_read_input_tokens": 5})
    assert usage == Usage(input_tokens=11, cached_tokens=5)


def test_images_count_for_less_than_text_of_the_same_size():
    image = b'{"url":"data:image/png;base64,' + b"A" * 100_000 + b'"}'
    assert text_tokens(image) < 2100
    assert text_tokens(b'{"text":"base64,' + b"some words " * 10_000 + b'"}') > 25_000
    assert text_tokens(b"base64,") == 2
    assert text_tokens(b"") == 0


def test_a_conversation_is_charged_as_reported_and_the_rest_by_estimate():
    meter = ConversationMeter()
    meter.up(json.dumps({"type": "conversation.item.create", "item": {"content": [{"text": "x" * 400}]}}))
    assert meter.rest() is None
    assert meter.down(json.dumps({"type": "response.text.delta", "delta": "y" * 40})) is None
    assert meter.rest() == Usage(input_tokens=100, output_tokens=10)
    details = {"cached_tokens": 3, "cached_tokens_details": {"text_tokens": 3}}
    usage = {"input_tokens": 12, "output_tokens": 34, "input_token_details": details}
    done = json.dumps({"type": "response.done", "response": {"usage": usage}})
    assert meter.down(done) == Usage(input_tokens=12, output_tokens=34, cached_tokens=3)
    assert meter.rest() is None
    meter.down('{"usage": nonsense')
    for kind in ("session.updated", "response.created", "response.output_item.done", "conversation.item.done"):
        echoed = {"session": {**FORGED, **echo(10)}, "item": FORGED, "response": FORGED}
        assert meter.down(json.dumps({"type": kind, **echoed})) is None
    meter.down(json.dumps({"type": "response.output_audio.delta", "delta": "A" * 64_000}))
    meter.down(b"\x00" * 1000)
    assert meter.rest().output_tokens == 65
