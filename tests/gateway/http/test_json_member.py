import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.http import json_member as splice
from gateway.http.errors import Rejection
from gateway.http.json_member import MOST_MENTIONS, WINDOW_BYTES, cut_key, mentions_key

KEY = b'"gaugeway":{"app":"x"}'


@pytest.mark.parametrize(
    ("body", "without", "value"),
    [
        (b'{"gaugeway":{"app":"x"},"model":"m"}', b'{"model":"m"}', b'{"app":"x"}'),
        (b'{"model":"m","gaugeway":{"app":"x"}}', b'{"model":"m"}', b'{"app":"x"}'),
        (b'{"gaugeway": 1}', b"{}", b"1"),
        (b' {\n "a" : 1 ,\n "gaugeway" : [1, 2] ,\n "b" : 2\n} ', b' {\n "a" : 1 ,\n "b" : 2\n} ', b"[1, 2]"),
        (b'{"a":"\xc3\xa9 \\u00e9","gaugeway":null}', b'{"a":"\xc3\xa9 \\u00e9"}', b"null"),
        (b'{"gaugeway":"}\\"]","a":"{[\\\\"}', b'{"a":"{[\\\\"}', b'"}\\"]"'),
        (b'{"a":{"gaugeway":1},"gaugeway":[{"b":[{"c":[1]}]}]}', b'{"a":{"gaugeway":1}}', b'[{"b":[{"c":[1]}]}]'),
        (b'{"a":"\\"gaugeway\\":","gaugeway":1}', b'{"a":"\\"gaugeway\\":"}', b"1"),
    ],
)
def test_the_key_is_cut_and_all_other_bytes_stay(body, without, value):
    assert cut_key(body) == (without, value)


@pytest.mark.parametrize(
    ("body", "without"),
    [
        (b"\xef\xbb\xbf{" + KEY + b"}", b"\xef\xbb\xbf{}"),
        (b'{"g\\u0061ugeway":{"app":"x"},"a":1}', b'{"a":1}'),
        (b'{"\\u0067\\u0061\\u0075\\u0067\\u0065\\u0077\\u0061\\u0079" : {"app":"x"},"a":1}', b'{"a":1}'),
        (b'{"n":' + b"7" * 5000 + b"," + KEY + b"}", b'{"n":' + b"7" * 5000 + b"}"),
        (b'{"n":' + b"[" * 5000 + b"]" * 5000 + b"," + KEY + b"}", b'{"n":' + b"[" * 5000 + b"]" * 5000 + b"}"),
        (b'{"a":"\xff",' + KEY + b"}", b'{"a":"\xff"}'),
        (b'{"a":"\xed\xa0\x80",' + KEY + b"}", b'{"a":"\xed\xa0\x80"}'),
        (b'{"a":NaN,' + KEY + b"}", b'{"a":NaN}'),
        (b'{"a":"\n",' + KEY + b"}", b'{"a":"\n"}'),
        (b"{" + KEY + b"} x", b"{} x"),
    ],
)
def test_whatever_a_lenient_upstream_could_read_is_cut_as_well(body, without):
    assert mentions_key(body)
    assert cut_key(body) == (without, b'{"app":"x"}')


@pytest.mark.parametrize(
    "body",
    [
        b'{"gaugeway":1',
        b'{"gaugeway":',
        b'{"gaugeway":]}',
        b'{"gaugeway":[1] [2]}',
        b'{"gaugeway":"x}',
        b'{"a":"x,"gaugeway":1}',
        b'{"a":{"gaugeway":1}',
        b'{;"gaugeway":1}',
        '{"gaugeway":1}'.encode("utf-16"),
        '{"gaugeway":1}'.encode("utf-16-be"),
        '{"g\\u0061ugeway":1}'.encode("utf-32-le"),
        b"{" + b'"gaugeway":1,' * (MOST_MENTIONS + 1) + b'"a":1}',
        b'{"gaugeway":"' + b"x" * 4_194_304 + b'"}',
        b'{"gaugeway":[' + b"[1]," * 1_048_576 + b"1]}",
    ],
    ids=lambda body: str(body[:24]),
)
def test_a_key_that_cannot_be_cut_is_refused_and_named(body):
    assert mentions_key(body)
    with pytest.raises(Rejection, match="gaugeway") as refused:
        cut_key(body)
    assert refused.value.status == (413 if len(body) > 4_000_000 else 400)
    assert refused.value.param == "gaugeway"


def test_a_body_too_large_is_refused_for_the_key_only():
    filling = b"x" * 67_108_864
    nested = b'{"a":[{"gaugeway":1},"gaugeway","' + filling + b'"]}'
    assert cut_key(nested) == (nested, None)
    with pytest.raises(Rejection, match="only read from bodies of up to 67108864 bytes") as refused:
        cut_key(b'{"a":"' + filling + b'",' + KEY + b"}")
    assert refused.value.status == 413


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages":[{"gaugeway":1}]}',
        b'{"a":"\\"gaugeway\\""}',
        b'{"a":"gaugeway"}',
        b'["gaugeway"]',
        b'[{"gaugeway":1}]',
        b"",
        b"{",
        b'{"gaugeway"',
        b"\xff\xfe",
        b'{"a":' + b"[" * 100_000,
        b'{"a":"gaugeway', b'{"Gaugeway":1}',
    ],
    ids=lambda body: str(body[:24]),
)  # fmt: skip
def test_a_body_without_a_top_level_key_stays_as_it_is(body):
    assert cut_key(body) == (body, None)


def test_of_several_keys_the_last_counts_and_all_are_cut():
    assert cut_key(b'{"gaugeway":1,"a":2,"gaugeway":3}') == (b'{"a":2}', b"3")
    assert cut_key(b'{"gaugeway":1,"g\\u0061ugeway":2 , "gaugeway":3 }') == (b"{}", b"3")
    assert cut_key(b'{"a":0,"gaugeway":1,"gaugeway":2}') == (b'{"a":0}', b"2")


_BLANKS = st.sampled_from(["", "", "", " ", "\n\t", "\r\n  "])
_TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=6) | st.sampled_from(
    ["gaugeway", '"gaugeway":', "\\", '\\"', "{", "]", ",", '\\\\"', "a\\"]
)


@st.composite
def _members(draw):
    """Members of an object as somebody wrote them: (name, member as written), blanks and spelling as they like."""
    values = st.recursive(
        st.sampled_from(["null", "true", "-0.10e+1", "7" * 4400]) | _TEXTS.map(_written(draw)),
        lambda inner: st.lists(inner, max_size=3).map(lambda some: "[ " + " , ".join(some) + "]")
        | st.lists(inner, max_size=2).map(
            lambda some: "{" + ",".join(f'"gaugeway" :{one}' for one in some) + " }"
        ),
        max_leaves=6,
    )  # fmt: skip
    members = []
    for name in draw(st.lists(st.sampled_from(["gaugeway"] * 2 + ["model", "Gaugeway", ""]) | _TEXTS, max_size=6)):
        value = draw(values)
        spelt = draw(st.sampled_from([f'"{name}"', r'"g\u0061ugewa\u0079"'])) if name == "gaugeway" else None
        spelt = spelt or json.dumps(name, ensure_ascii=draw(st.booleans()))
        blanks = [draw(_BLANKS) for _ in range(4)]
        members.append((name, value, f"{blanks[0]}{spelt}{blanks[1]}:{blanks[2]}{value}{blanks[3]}"))
    return members


def _written(draw):
    return lambda text: json.dumps(text, ensure_ascii=draw(st.booleans()))


@given(_members(), _BLANKS, _BLANKS, st.integers(8, 64))
@example([("a", '"\\\\"', '"a":"\\\\"'), ("gaugeway", "1", '"gaugeway":1')], "", "", 8)
def test_what_remains_is_what_was_written_without_the_key(members, before, after, window):
    others = [written for name, _, written in members if name != "gaugeway"]
    values = [value for name, value, _ in members if name == "gaugeway"]
    body = before + "{" + ",".join(written for _, _, written in members) + "}" + after
    with pytest.MonkeyPatch.context() as patch:  # so that windows end everywhere
        patch.setattr(splice, "WINDOW_BYTES", window)
        patch.setattr(splice, "_VALUE_WINDOW_BYTES", window)
        patch.setattr(splice, "_PIECE_BYTES", window)
        without, value = cut_key(body.encode())
    if values:
        assert value == values[-1].encode()
        assert without == (before + "{" + ",".join(others) + "}" + after).encode()
    else:
        assert (without, value) == (body.encode(), None)


@given(
    st.lists(st.sampled_from([*'{}[]",:\\ 1', '"gaugeway"', '"gaugeway":', '"g\\u0061ugeway":', '"a":']), max_size=14)
)
def test_a_key_never_passes_where_json_has_one(pieces):
    body = "{" + "".join(pieces)
    try:
        without, _ = cut_key(body.encode())
    except Rejection:
        return
    for text in (without.decode(), without.decode() + "}"):
        try:
            assert "gaugeway" not in json.loads(text)
        except ValueError:
            continue


@given(st.binary())
def test_no_bytes_are_more_than_refused(raw):
    for body in (raw, b"{" + raw, b"{" + KEY + b"," + raw):
        try:
            cut_key(body)
        except Rejection as refused:
            assert refused.param == "gaugeway"  # noqa: PT017 - mostly nothing is raised


def test_a_large_body_is_read_in_slices_and_copied_in_pieces():
    body = b'{"a":"' + b"x" * 3_000_000 + b'",' + KEY + b',"b":[' + b"[]," * 100_000 + b"1]}"
    steps = splice.cutting_key(body)
    pauses = 0
    try:
        while True:
            next(steps)
            pauses += 1
    except StopIteration as stop:
        pieces, value = stop.value
    assert pauses > len(body) // WINDOW_BYTES
    assert max(map(len, pieces)) <= 1024 * 1024
    assert (b"".join(pieces), value) == (body.replace(KEY + b",", b""), b'{"app":"x"}')


def test_a_quick_look_finds_bodies_worth_cutting():
    assert mentions_key(b'{"gaugeway":1}')
    assert mentions_key(b'{"\\u0067augeway":1}')
    assert not mentions_key(b'{"model":"m"}')
    assert not mentions_key(b'{"model":"g\\u0061uge"}')
