"""What an exchange's scores may be alike with: names that equal exchanges share, and that reveal nobody."""

import json

import pytest

from gateway.capture.exchange_reader import read
from gateway.capture.fingerprints import cluster_of
from gaugeway.exchange import Explicit, Recording


def cluster(question="How long is the warranty?", *, session=None, key=None, app=None, salt="s", **body):
    request = {"model": "m", "messages": [{"role": "user", "content": question or "x"}], **body}
    recording = Recording(
        id="e1",
        method="POST",
        started_at=0.0,
        duration_s=1.0,
        ending="complete",
        route="chat_completions",
        path="/v1/chat/completions",
        status=200,
        request_headers=[(b"content-type", b"application/json")],
        request_body=json.dumps(request).encode(),
        response_headers=[(b"content-type", b"application/json")],
        chunks=[json.dumps({"choices": []}).encode()],
        explicit=Explicit(session=session, app=app),
        key_id=key,
    )
    return cluster_of(read(recording, 1_000_000), question, salt=salt)


def kinds(names):
    return [name.partition(":")[0] for name in names.split()]


def test_the_closest_name_comes_first():
    assert kinds(cluster(session="c1", key="k1", user="anna")) == ["s", "u", "k", "q"]
    assert kinds(cluster(safety_identifier="anna")) == ["u", "q"]
    assert cluster(None) is None


def test_equal_sessions_share_a_name_and_others_do_not():
    one, other = cluster("a", session="c1").split()[0], cluster("b", session="c1").split()[0]
    assert one == other
    assert cluster("a", session="c2").split()[0] != one
    assert cluster("a", session="c1", app="other").split()[0] != one
    assert cluster("a", session="c1", salt="t").split()[0] != one


@pytest.mark.parametrize("other", [{"key": "k2", "user": "anna"}, {"key": "k1", "user": "ben"}, {"key": "k1"}, {}])
def test_a_session_that_two_keys_or_users_name_is_two(other):
    one = cluster("a", session="c1", key="k1", user="anna").split()[0]
    assert cluster("b", session="c1", key="k1", user="anna").split()[0] == one
    assert cluster("b", session="c1", **other).split()[0] != one


@pytest.mark.parametrize(
    ("question", "alike"),
    [
        ("how long  is the WARRANTY", True),
        ("How long is the warranty?!", True),
        ("How long is the \uff57\uff41\uff52\uff52\uff41\uff4e\uff54\uff59?", True),
        ("How long was the warranty?", False),
    ],
)
def test_questions_are_alike_whatever_their_case_and_punctuation(question, alike):
    assert (cluster(question) == cluster()) is alike


def test_numbers_do_not_tell_questions_apart():
    assert cluster("Where is order 4711?") == cluster("Where is order 12?")


@pytest.mark.parametrize("user", [7, None, "", ["anna"], {"id": 1}])
def test_an_end_user_that_is_no_text_is_none(user):
    assert kinds(cluster(user=user)) == ["q"]


def test_names_are_short_and_show_nothing_of_what_they_stand_for():
    names = cluster("secret " * 10_000, session="anna@example.com" * 100, user="ü", key="k")
    assert len(names) < 80
    assert "anna" not in names
