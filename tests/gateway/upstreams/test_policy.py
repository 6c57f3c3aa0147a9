"""The rules of routing: choice, waiting, and the model put in place by bytes."""

import json
import random
import string
import sys
from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.upstreams.policy import (
    MOST_MENTIONS,
    RetryPolicy,
    Route,
    choose,
    first,
    model_of,
    replace_model,
    serving,
)

ROUTES = st.lists(
    st.builds(
        Route,
        name=st.text(string.ascii_lowercase, min_size=1, max_size=6),
        weight=st.floats(0.01, 100),
        priority=st.integers(0, 2),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda route: route.name,
)
POLICY = RetryPolicy(statuses=frozenset({429, 503}), backoff_base_s=0.25, backoff_max_s=8.0, max_retry_after_s=30.0)


def never():
    raise AssertionError("chance was asked")


# choice


def test_patterns_and_the_keys_of_aliases_say_which_models_a_route_serves():
    route = Route(name="a", models=("gpt-*", "o[13]"), aliases={"best": "gpt-4o"})
    assert [route.serves(model) for model in ("gpt-4o", "o1", "o2", "GPT-4o", "best", None)] == [
        True,
        True,
        False,
        False,
        True,
        True,
    ]


def test_a_route_without_weight_serves_only_who_names_it():
    named = Route(name="canary", weight=0.0)
    other = Route(name="main")
    assert serving([named, other], "m") == [other]


@given(ROUTES, st.text(), st.floats(0, 1, exclude_max=True))
def test_only_the_best_priority_is_chosen_from(routes, session, point):
    best = min(route.priority for route in routes)
    assert choose(routes, session=None, chance=lambda: point).priority == best
    assert choose(routes, session=session, chance=never).priority == best
    assert first(routes).priority == best


@given(ROUTES, st.text(), st.randoms())
def test_a_session_stays_where_it_is_whatever_the_order_and_whoever_else_leaves(routes, session, order):
    chosen = choose(routes, session=session, chance=never)
    order.shuffle(routes)
    assert choose(routes, session=session, chance=never) == chosen
    left = [route for route in routes if route == chosen or order.random() < 0.5]
    assert choose(left, session=session, chance=never) == chosen


@pytest.mark.parametrize("sticky", [True, False])
def test_the_shares_are_the_weights(sticky):
    routes = [Route(name="main", weight=90), Route(name="canary", weight=9), Route(name="other", weight=1)]
    chance, count = random.Random(7).random, 20_000
    found = Counter(
        choose(routes, session=f"session {number}" if sticky else None, chance=chance).name for number in range(count)
    )
    for route in routes:
        share = route.weight / 100
        assert abs(found[route.name] / count - share) < 4 * (share * (1 - share) / count) ** 0.5


def test_more_weight_only_moves_sessions_towards_it():
    main = Route(name="main", weight=9)
    for number in range(2000):
        before = choose([main, Route(name="canary", weight=1)], session=str(number), chance=never)
        after = choose([main, Route(name="canary", weight=3)], session=str(number), chance=never)
        assert after.name in (before.name, "canary")


def test_a_session_of_half_a_character_is_a_session():
    routes = [Route(name="a"), Route(name="b")]
    assert choose(routes, session="\ud800", chance=never) in routes


# waiting


@given(st.integers(0, 10_000), st.floats(0, 1, exclude_max=True))
def test_the_back_off_is_jittered_over_its_whole_range_and_bounded(retry, point):
    wait = POLICY.wait_s(retry, [], now=0.0, chance=lambda: point)
    assert wait == pytest.approx(point * min(8.0, 0.25 * 2.0 ** min(retry, 30)))


def test_an_upstream_that_names_a_time_gets_at_least_that():
    def wait(seconds, point=0.0):
        return POLICY.wait_s(3, [(b"retry-after", seconds)], now=0.0, chance=lambda: point)

    assert wait(b"1") == 1.0
    assert wait(b"0", point=0.5) == 1.0  # the back-off still spreads those who were told to come at once
    assert wait(b"30") == 30.0
    assert wait(b"30.1") is None


def test_an_upstream_that_says_it_is_of_no_use_is_not_asked_again():
    assert POLICY.wait_s(0, [(b"X-Should-Retry", b"False")], now=0.0, chance=lambda: 0.0) is None
    assert POLICY.wait_s(0, [(b"X-Should-Retry", b"true")], now=0.0, chance=lambda: 0.0) == 0.0


# the model


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.just("model") | st.text(max_size=4), inner),
    max_leaves=6,
)
MEMBERS = st.lists(
    st.builds(
        lambda key, value, ascii_only: f"{json.dumps(key)} : {json.dumps(value, ensure_ascii=ascii_only)}",
        st.text(max_size=8).filter(lambda key: key != "model"),
        VALUES,
        st.booleans(),
    ),
    max_size=3,
)
SPACE = st.text(" \t\r\n", max_size=3)


@given(MEMBERS, MEMBERS, SPACE, st.text(), st.text())
def test_only_the_bytes_of_the_model_change(left, right, space, model, alias):
    def body(written):
        member = f'"model"{space}:{space}{written}{space}'
        return f"{space}{{{','.join([*left, member, *right])}{space}}}{space}".encode()

    replaced = replace_model(body(json.dumps(model)), alias)
    assert replaced == body(msgspec.json.encode(alias).decode())
    assert json.loads(replaced)["model"] == alias


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":@}',
        b' \n{ "n": 1.50 , "model" :\t@ , "t": "\xc3\xa9\\u00e9" } ',
        b'{"model": @, "a": {"model": "m"}, "t": "\\"model\\": \\"m\\""}',
        b'{"model": @, "n": 1, "model": @}',
        b'{"mod\\u0065l": @}',
        b'{"big": 123456789012345678901234567890, "model": @}',
    ],
)
def test_the_model_is_replaced_in_place(body):
    assert replace_model(body.replace(b"@", b'"m"'), "x") == body.replace(b"@", b'"x"')


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'"model"',
        b'{"model": 1}',
        b'{"model": null}',
        b'{"a": {"model": "m"}}',
        b'{"model": "m"',
        b'{"model": "m"} x',
        b'{"model": "m", }',
        b'{"model": "m", "t": "\xff"}',
        b'\xef\xbb\xbf{"model": "m"}',
        b'{"model": "m", "deep": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_what_cannot_be_read_is_left_alone(body):
    assert replace_model(body, "x") is None


@given(st.binary(max_size=80) | st.text(alphabet='{}[]":,\\ model1e', max_size=60).map(str.encode))
def test_no_body_is_too_odd_to_be_looked_at(body):
    after = replace_model(body, "x")
    assert after is None or model_of(after) == "x"
    assert (after is None) == (model_of(body) is None) or after is None


def test_a_large_body_is_not_decoded_member_by_member():
    """Counted in calls, since time depends on the machine: one per window, not one per member."""
    body = b'{"model": "m"' + b"".join(b',"k%d":[]' % number for number in range(100_000)) + b"}"
    replace_model(body, "x")  # compiles what is compiled once
    calls = 0

    def count(_frame, event, _argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        replaced = replace_model(body, "x")
    finally:
        sys.setprofile(None)
    assert replaced == body.replace(b'"m"', b'"x"', 1)
    assert calls < 1000


def test_a_body_that_names_the_model_without_end_is_left_alone():
    many = b",".join([b'"model" '] * (MOST_MENTIONS + 1))
    assert replace_model(b'{"model": "m", "x": [' + many + b"]}", "x") is None


def test_an_alias_is_written_as_json():
    assert replace_model(b'{"model": "m"}', 'a"\\é') == '{"model": "a\\"\\\\é"}'.encode()
