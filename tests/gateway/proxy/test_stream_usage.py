import asyncio
import json
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import Capture, Config, Upstream
from gateway.proxy import stream_usage as usage
from gateway.proxy.stream_usage import HideUsage, ask_for_usage
from tests.gateway.proxy.test_passthrough import post, request
from tests.support.running import read_request, running_gateway, tcp_server

CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"a\\n\\nb"}}],"usage":null}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n'
COMMENT = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"
END = re.compile(rb"\r\n\r\n|\n\n|\r\r")


def test_the_option_becomes_the_first_member_and_all_else_stays():
    body = b' { "stream" : true, "x": [1.50] }'
    asked = ask_for_usage(body)
    assert asked == b' {"stream_options":{"include_usage":true}, "stream" : true, "x": [1.50] }'
    assert json.loads(asked) == {"stream_options": {"include_usage": True}, "stream": True, "x": [1.5]}


@pytest.mark.parametrize(
    "body",
    [
        *(b"{}", b'{"stream": false}', b"[]", b"", b"{", b'{"stream": "x"}'),
        b'{"stream": true, "stream_options": {"include_usage": true}}',
        b'{"stream": true, "stream_options": {"include_usage": 1}}',
        b'{"stream": true, "stream_options": []}',
        b'{"stream": false, "stream_options": null}',
        b'{"stream_options": null, "stream": true, "stream_options": {}}',
        b'{"stream": true, "stream_options": {"include_usage": true, "include_usage": false}}',
        b'{"stream": true, "stream_options": null, "messages": [' + b'"stream_options" ,' * 1000 + b"1]}",
    ],
)
def test_without_a_stream_or_where_usage_is_requested_or_it_is_unclear_nothing_is_changed(body):
    assert ask_for_usage(body) is None


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        (b"null", b'{"include_usage":true}'),
        (b"{}", b'{"include_usage":true}'),
        (b"{ }", b'{"include_usage":true }'),
        (b'{ "x": [1.50]}', b'{"include_usage":true, "x": [1.50]}'),
        (b'{"x": {"include_usage": 1}}', b'{"include_usage":true,"x": {"include_usage": 1}}'),
        (b'{"a": 1, "include_usage" : false }', b'{"a": 1, "include_usage" : true }'),
        (b'{"include_us\\u0061ge":null}', b'{"include_us\\u0061ge":true}'),
    ],
)
@pytest.mark.parametrize("name", [b"stream_options", b"stream\\u005Foptions"])
def test_options_of_the_clients_own_get_the_option_and_all_else_stays(name, options, asked):
    said = b' {"stream" : true, "m": ["\\"stream_options\\":", {"stream_options": null}], "%b" : %b\n, "n": 1.50} '
    assert ask_for_usage(said % (name, options)) == said % (name, asked)


def objects(values):
    names = st.sampled_from(["stream_options", "include_usage", "stream", "a"]) | st.text(max_size=4)
    return st.dictionaries(names, values, max_size=4)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just("stream_options"),
    lambda inner: st.lists(inner, max_size=3) | objects(inner),
    max_leaves=8,
)


@given(
    objects(JSON),
    st.just({})
    | st.just({"stream_options": None})
    | st.fixed_dictionaries(
        {"stream_options": st.fixed_dictionaries({}, optional={"include_usage": st.none() | st.booleans(), "x": JSON})}
    ),
    st.sampled_from([None, 1]),
    st.booleans(),
)
def test_every_stream_asks_for_usage_once_and_says_the_same_otherwise(members, options, indent, ascii_):
    members.pop("stream_options", None)
    members |= {"stream": True, **options}
    own = members.get("stream_options") or {}
    body = json.dumps(members, indent=indent, ensure_ascii=ascii_).encode()
    asked = ask_for_usage(body)
    assert (asked is None) == bool(own.get("include_usage"))
    objects_found = []
    found = json.loads(asked or body, object_pairs_hook=lambda some: objects_found.append(some) or dict(some))
    assert [name for name, _ in objects_found[-1]].count("stream_options") == 1
    assert found == {**members, "stream_options": {**own, "include_usage": True}}


@given(st.lists(st.integers(0, 300), max_size=12), st.sampled_from([b"\n", b"\r\n"]))
def test_wherever_the_stream_is_cut_into_pieces_only_the_usage_chunk_is_taken_out(cuts, line_end):
    stream = (CHUNK + COMMENT + CHUNK + USAGE + DONE).replace(b"\n", line_end)
    hide = HideUsage()
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    passed = b"".join(hide.feed(stream[a:b]) for a, b in pairwise(places)) + hide.flush()
    assert passed == (CHUNK + COMMENT + CHUNK + DONE).replace(b"\n", line_end)


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 7, 1000, 10**9])
def test_an_event_too_large_to_be_held_passes_and_the_next_usage_is_hidden(monkeypatch, line_end, size):
    monkeypatch.setattr(usage, "MAX_EVENT_BYTES", 300)
    large = b'data: {"choices":[],"usage":{"x":"' + b"y" * 2000 + b'"}}\n\n'
    stream = (CHUNK + large + USAGE + large + USAGE + CHUNK).replace(b"\n", line_end)
    hide = HideUsage()
    passed = bytearray()
    for start in range(0, len(stream), size):
        passed += hide.feed(stream[start : start + size])
        hidden = stream[: start + size].count(USAGE.replace(b"\n", line_end)) * len(USAGE.replace(b"\n", line_end))
        assert min(start + size, len(stream)) - len(passed) - hidden <= 300 + min(size, len(stream))
    assert passed + hide.flush() == (CHUNK + large + large + CHUNK).replace(b"\n", line_end)


def test_a_line_without_end_is_searched_once_and_not_held(monkeypatch):
    """Counted, not timed: how many bytes the search for an event's end goes over."""
    searched = []

    class Counting:
        def finditer(self, held, start):
            searched.append(len(held) - start)
            return END.finditer(held, start)

    monkeypatch.setattr(usage, "_END_OF_EVENT", Counting())
    hide = HideUsage()
    line = b"data: " + b"x" * 1018
    passed = 0
    for number in range(1, 501):
        passed += len(hide.feed(line))
        assert number * 1024 - passed <= 65_536, number
    assert passed + len(hide.flush()) == 500 * 1024
    assert sum(searched) < 500 * (1024 + 3)


@pytest.mark.parametrize("fast_path", [False, True])
def test_the_beginning_of_an_event_without_end_reaches_the_client_before_more_is_sent(fast_path):
    arrived = asyncio.Event()

    async def upstream(reader, writer):
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        writer.write(b"data: " + b"x" * 200_000)
        await arrived.wait()
        writer.write(b"\n\n" + USAGE + DONE)
        writer.close()

    async def main():
        async with tcp_server(upstream) as port:
            config = Config(
                upstreams=(Upstream(base_url=f"http://127.0.0.1:{port}/v1"),),
                capture=Capture(include_usage=True),
            )
            async with running_gateway("", config=config, fast_path=fast_path) as gateway, asyncio.timeout(60):
                reader, writer = await request(gateway.port, post(b'{"model": "m", "stream": true}'))
                received = b""
                while received.count(b"x") < 150_000:
                    received += await reader.readexactly(1000)
                arrived.set()
                received += await reader.readuntil(b"\r\n0\r\n\r\n")
                writer.close()
        assert received.count(b"x") >= 200_000
        assert DONE in received
        assert b'"usage"' not in received

    asyncio.run(main())


@given(
    st.lists(st.binary() | st.sampled_from([b"\n", b"\r", b"\r\n", b'data: {"choices":[],"usage":{}}'])),
    st.integers(1, 9),
)
def test_wherever_it_is_cut_and_whatever_is_too_large_the_same_bytes_pass(pieces, size):
    stream = b"".join(pieces)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(usage, "MAX_EVENT_BYTES", 40)
        whole, cut = HideUsage(), HideUsage()
        at_once = whole.feed(stream) + whole.flush()
        assert b"".join(cut.feed(stream[at : at + size]) for at in range(0, len(stream), size)) + cut.flush() == at_once


@given(st.binary())
def test_what_is_no_usage_passes_whatever_it_is(raw):
    hide = HideUsage()
    assert hide.feed(raw) + hide.flush() == raw
