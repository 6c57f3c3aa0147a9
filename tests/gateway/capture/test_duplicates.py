import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.capture.fingerprints import Resubmissions, digest


def test_a_key_is_seen_again_within_the_window_and_not_after_it():
    resubmissions = Resubmissions(window_s=60, limit=10)
    assert not resubmissions.seen(b"a", 0.0)
    assert resubmissions.seen(b"a", 59.9)
    assert not resubmissions.seen(b"a", 120.0)
    assert not resubmissions.seen(b"b", 120.2)


def test_every_retry_restarts_the_window():
    resubmissions = Resubmissions(window_s=60, limit=10)
    assert [resubmissions.seen(b"a", now) for now in (0.0, 50.0, 100.0, 150.0)] == [False, True, True, True]


def test_what_was_seen_longest_ago_makes_room():
    resubmissions = Resubmissions(window_s=60, limit=2)
    for now, key in enumerate([b"a", b"b", b"a", b"c"]):  # a was used again: b goes
        resubmissions.seen(key, float(now))
    assert len(resubmissions) == 2
    assert resubmissions.seen(b"a", 5.0)
    assert not resubmissions.seen(b"b", 6.0)


def test_what_is_over_takes_no_room():
    resubmissions = Resubmissions(window_s=1, limit=1000)
    for now in range(500):
        resubmissions.seen(b"%d" % now, float(now * 10))
    assert len(resubmissions) == 1


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c", b"d"]), st.floats(0, 30)), max_size=60))
def test_with_room_enough_it_answers_as_a_list_of_all_requests_would(steps):
    resubmissions = Resubmissions(window_s=20, limit=100)
    now, history = 0.0, []
    for key, pause in steps:
        now += pause
        last = max((at for other, at in history if other == key), default=None)
        assert resubmissions.seen(key, now) == (last is not None and now < last + 20)
        history.append((key, now))


@pytest.mark.parametrize(("window_s", "limit"), [(0, 1), (-1.0, 1), (float("nan"), 1), (1.0, 0)])
def test_a_window_or_limit_that_holds_nothing_is_refused(window_s, limit):
    with pytest.raises(ValueError, match="positive"):
        Resubmissions(window_s, limit)


def test_any_other_app_credential_path_or_body_is_another_request():
    key = digest("shop", b"Bearer x", "/v1/chat/completions", b"{}")
    assert key == digest("shop", b"Bearer x", "/v1/chat/completions", b"{}")
    others = {
        digest("desk", b"Bearer x", "/v1/chat/completions", b"{}"),
        digest("shop", b"Bearer y", "/v1/chat/completions", b"{}"),
        digest("shop", b"Bearer x", "/v1/responses", b"{}"),
        digest("shop", b"Bearer x", "/v1/chat/completions", b"{ }"),
        digest("shopB", b"earer x", "/v1/chat/completions", b"{}"),
    }
    assert len(others | {key}) == 6
    assert len(key) == 16
