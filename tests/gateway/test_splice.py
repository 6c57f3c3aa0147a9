import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.splice import cut_key, mentions_key


@pytest.mark.parametrize(
    ("body", "without", "value"),
    [
        (b'{"gaugeway":{"app":"x"},"model":"m"}', b'{"model":"m"}', b'{"app":"x"}'),
        (b'{"model":"m","gaugeway":{"app":"x"}}', b'{"model":"m"}', b'{"app":"x"}'),
        (b'{"gaugeway": 1}', b"{}", b"1"),
        (b' {\n "a" : 1 ,\n "gaugeway" : [1, 2] ,\n "b" : 2\n} ', b' {\n "a" : 1 ,\n "b" : 2\n} ', b"[1, 2]"),
        (b'{"a":"\xc3\xa9 \\u00e9","gaugeway":null}', b'{"a":"\xc3\xa9 \\u00e9"}', b"null"),
    ],
)
def test_the_key_is_cut_and_all_other_bytes_stay(body, without, value):
    assert cut_key(body) == (without, value)


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages":[{"gaugeway":1}]}',
        b'{"a":"\\"gaugeway\\""}',
        b'["gaugeway"]',
        b'{"gaugeway":1',
        b'{"gaugeway":1} x',
        b"",
        b'{"gaugeway"',
        b"\xff\xfe",
        b'{"a":' + b"[" * 100_000,
    ],
)
def test_a_body_without_a_top_level_key_or_that_is_no_object_stays_as_it_is(body):
    assert cut_key(body) == (body, None)


def test_of_several_keys_the_last_counts_and_all_are_cut():
    assert cut_key(b'{"gaugeway":1,"a":2,"gaugeway":3}') == (b'{"a":2}', b"3")


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), _values, max_size=5), _values, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_whatever_the_object_what_remains_is_the_object_without_the_key(rest, value, escaped, indent):
    rest.pop("gaugeway", None)
    body = json.dumps({"gaugeway": value, **rest}, ensure_ascii=escaped, indent=indent).encode("utf-8", "surrogatepass")
    without, cut = cut_key(body)
    if cut is None:  # lone surrogates are no UTF-8: the body passes as it is
        assert without == body
    else:
        assert json.loads(without) == rest
        assert json.loads(cut) == value


def test_a_quick_look_finds_bodies_worth_cutting():
    assert mentions_key(b'{"gaugeway":1}')
    assert not mentions_key(b'{"model":"m"}')
