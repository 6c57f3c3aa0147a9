"""How a session is named, in which order, and what of it is bounded."""

import pytest

from gateway.http.sessions import SESSION_HEADERS, session_of
from gaugeway.exchange import Explicit


def session(headers=None, body=None, explicit=None, names=SESSION_HEADERS):
    return session_of(headers or {}, body or {}, explicit, names)


@pytest.mark.parametrize("name", SESSION_HEADERS)
def test_a_header_of_another_gateway_names_the_session(name):
    assert session({name: " s1 "}) == "s1"
    assert session({name: "s1"}, names=("x-chat",)) is None
    assert session({name: " "}) is None


def test_a_header_of_the_configuration_names_the_session():
    assert session({"x-chat": "caf\u00c3\u00a9"}, names=("x-chat",)) == "caf\u00e9"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("session.id=s1", "s1"),
        ("user.id=7,session.id=a%20b;ttl=30 , x=1", "a b"),
        ("session.id=", None),
        ("session.id", None),
        ("x-session.id=s1", None),
        (",,=;", None),
    ],
)
def test_baggage_names_the_session(header, expected):
    assert session({"baggage": header}) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"metadata": {"session_id": "s", "thread_id": "t"}}, "t"),
        ({"metadata": {"conversationId": "c"}}, "c"),
        ({"metadata": {"chat_id": 42}}, "42"),
        ({"metadata": {"session_id": 0}}, "0"),
        ({"metadata": {"thread_id": -7, "session_id": "s"}}, "-7"),
        ({"metadata": {"chat_id": True, "session_id": "s"}}, "s"),
        ({"metadata": {"chat_id": 4.5}}, None),
        ({"metadata": {"chat_id": 10**400}}, None),
        ({"metadata": {"chat_id": ""}}, None),
        ({"metadata": {"topic": "x"}}, None),
        ({"metadata": ["session_id"]}, None),
        ({"conversation": "conv_1"}, "conv_1"),
        ({"conversation": {"id": "conv_1"}}, "conv_1"),
        ({"conversation": {"id": 1}}, None),
        ({"conversation": 1}, None),
    ],
)
def test_the_body_names_the_session(body, expected):
    assert session(body=body) == expected


def test_what_is_said_to_gaugeway_comes_first_and_headers_before_the_body():
    headers, body = {"x-session-id": "h", "baggage": "session.id=b"}, {"metadata": {"session_id": "m"}}
    assert session(headers, body, Explicit(session="e")) == "e"
    assert session(headers, body, Explicit()) == "h"
    assert session({"baggage": "session.id=b"}, body) == "b"


def test_a_long_name_is_cut():
    assert len(session(body={"metadata": {"session_id": "x" * 10_000}})) == 200
