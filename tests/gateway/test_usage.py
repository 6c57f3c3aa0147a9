import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.usage import HideUsage, ask_for_usage

CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"a\\n\\nb"}}],"usage":null}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n'
COMMENT = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"


def test_the_option_becomes_the_first_member_and_all_else_stays():
    body = b' { "stream" : true, "x": [1.50] }'
    asked = ask_for_usage(body)
    assert asked == b' {"stream_options":{"include_usage":true}, "stream" : true, "x": [1.50] }'
    assert json.loads(asked) == {"stream_options": {"include_usage": True}, "stream": True, "x": [1.5]}


@pytest.mark.parametrize(
    "body",
    [b"{}", b'{"stream": false}', b'{"stream": true, "stream_options": {}}', b"[]", b"", b"{", b'{"stream": "x"}'],
)
def test_without_a_stream_or_with_options_of_the_clients_own_nothing_is_changed(body):
    assert ask_for_usage(body) is None


@given(st.lists(st.integers(0, 300), max_size=12), st.sampled_from([b"\n", b"\r\n"]))
def test_wherever_the_stream_is_cut_into_pieces_only_the_usage_chunk_is_taken_out(cuts, line_end):
    stream = (CHUNK + COMMENT + CHUNK + USAGE + DONE).replace(b"\n", line_end)
    hide = HideUsage()
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    passed = b"".join(hide.feed(stream[a:b]) for a, b in pairwise(places)) + hide.flush()
    assert passed == (CHUNK + COMMENT + CHUNK + DONE).replace(b"\n", line_end)


@given(st.binary())
def test_what_is_no_usage_passes_whatever_it_is(raw):
    hide = HideUsage()
    assert hide.feed(raw) + hide.flush() == raw
