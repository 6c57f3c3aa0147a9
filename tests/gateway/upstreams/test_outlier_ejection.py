"""Ejection as rules: who is left out, for how long, and who comes back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.upstreams.outlier_ejection import EJECTED, HALF_OPEN, HEALTHY, MAX_EJECT_S, Ejection

NAMES = ("a", "b", "c")


def ejection(told=None, names=NAMES, after=3, for_s=30.0):
    return Ejection(names, after=after, for_s=for_s, changed=lambda *change: (told or []).append(change))


def report(health, upstream, success, now=0.0, peers=NAMES):
    health.end(health.begin(upstream, now), success=success, peers=peers, now=now)


def ejected(now=0.0, **options):
    health = ejection(**options)
    for _ in range(3):
        report(health, "a", success=False, now=now)
    assert health.state("a", now) == EJECTED
    return health


def test_failures_in_a_row_eject_and_a_success_between_them_does_not():
    told = []
    health = Ejection(NAMES, after=3, for_s=30.0, changed=lambda *change: told.append(change))
    for outcome in (False, False, True, False, False):
        report(health, "a", outcome)
    assert health.takes("a", 0.0)
    report(health, "a", success=False)
    assert not health.takes("a", 29.9)
    assert told == [("a", EJECTED)]


def test_what_was_given_up_counts_neither_way():
    health = ejection()
    for outcome in (False, False, None, None, None):
        report(health, "a", outcome)
    assert health.state("a", 0.0) == HEALTHY
    report(health, "a", success=False)
    assert health.state("a", 0.0) == EJECTED


@pytest.mark.parametrize("peers", [(), ("a",), ("a", "b")])
def test_the_last_healthy_one_for_a_model_is_never_ejected(peers):
    health = ejection()
    for _ in range(3):
        report(health, "b", success=False)
    for _ in range(50):
        report(health, "a", success=False, peers=peers)
    assert health.state("a", 0.0) == HEALTHY


def test_one_probe_at_a_time_and_its_success_closes():
    told = []
    health = Ejection(NAMES, after=1, for_s=30.0, changed=lambda *change: told.append(change))
    report(health, "a", success=False)
    assert health.state("a", 30.0) == HALF_OPEN
    probe = health.begin("a", 30.0)
    assert probe.probe
    assert not health.takes("a", 31.0)
    health.end(probe, success=True, peers=NAMES, now=32.0)
    assert health.takes("a", 32.0)
    assert told == [("a", EJECTED), ("a", HALF_OPEN), ("a", HEALTHY)]


def test_a_probe_that_was_given_up_leaves_room_for_the_next():
    health = ejected()
    health.end(health.begin("a", 30.0), success=None, peers=NAMES, now=30.0)
    assert health.takes("a", 30.0)


def test_each_failed_probe_doubles_the_time_up_to_five_minutes_and_a_success_forgets_it():
    health = ejected()
    now = 0.0
    for length in (30.0, 60.0, 120.0, 240.0, MAX_EJECT_S, MAX_EJECT_S):
        assert not health.takes("a", now + length - 0.1)
        assert health.takes("a", now + length)
        now += length
        report(health, "a", success=False, now=now)
    now += MAX_EJECT_S
    report(health, "a", success=True, now=now)
    for _ in range(3):
        report(health, "a", success=False, now=now)
    assert health.takes("a", now + 30.0)


def test_what_started_before_the_ejection_changes_nothing_after_it():
    health = ejection()
    early = [health.begin("a", 0.0) for _ in range(20)]
    for attempt in early[:3]:
        health.end(attempt, success=False, peers=NAMES, now=1.0)
    for attempt in early[3:]:
        health.end(attempt, success=attempt is early[-1], peers=NAMES, now=2.0)
    assert health.state("a", 30.9) == EJECTED
    assert health.state("a", 31.0) == HALF_OPEN


def test_one_that_had_to_be_used_while_ejected_comes_back_by_a_success():
    health = ejected()
    report(health, "a", success=False, now=1.0)
    assert health.state("a", 29.0) == EJECTED
    report(health, "a", success=True, now=2.0)
    assert health.state("a", 2.0) == HEALTHY


@given(st.integers(1, 5), st.floats(0.1, 1000))
def test_the_time_is_at_least_what_was_asked_for(after, for_s):
    health = ejection(after=after, for_s=for_s)
    for _ in range(after):
        report(health, "a", success=False)
    assert not health.takes("a", for_s * 0.999)
    assert health.takes("a", for_s)


class Requests(RuleBasedStateMachine):
    """Requests that overlap in any order, over time."""

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.open = []
        self.health = Ejection(NAMES, after=2, for_s=10.0, changed=lambda *_: None)

    @rule(name=st.sampled_from(NAMES))
    def begin(self, name):
        took = self.health.takes(name, self.now)
        attempt = self.health.begin(name, self.now)
        assert attempt.probe <= took
        self.open.append(attempt)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), success=st.sampled_from([True, False, None]))
    def end(self, data, success):
        attempt = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        self.health.end(attempt, success=success, peers=NAMES, now=self.now)

    @rule(seconds=st.floats(0, 400))
    def wait(self, seconds):
        self.now += seconds

    @invariant()
    def one_is_always_healthy(self):
        assert any(self.health.state(name, self.now) == HEALTHY for name in NAMES)

    @invariant()
    def at_most_one_probe_each(self):
        for name in NAMES:
            current = self.health._health[name].era
            assert sum(one.probe and one.era == current for one in self.open if one.upstream == name) <= 1


TestRequests = Requests.TestCase
