"""What is added up beforehand: every whole hour that is over, in parts of a day at most."""

from hypothesis import given
from hypothesis import strategies as st

from monitors.stores.spans import DAY_S, HOUR_S, cut
from monitors.stores.sums import MOST_SPANS, SETTLED_S, _beforehand

T0 = 1_700_000_000.0


@given(st.floats(0.0, 60.0 * DAY_S), st.floats(0.0, 2.0 * DAY_S))
def test_every_whole_hour_that_is_over_is_there_and_nothing_else(back, ahead):
    since, now = T0 - back, T0 + ahead
    parts = list(_beforehand(since, now))
    spans, _ = cut(since, now, now - SETTLED_S)
    hours = {since for span in spans for since, _ in span.hours}
    found = [range(int(one.since), int(one.until), HOUR_S) for one in parts]
    assert {float(hour) for part in found for hour in part} == hours
    assert all(one.since // DAY_S == (one.until - 1.0) // DAY_S for one in parts)


@given(st.floats(40.0 * DAY_S, 400.0 * DAY_S), st.floats(0.0, DAY_S))
def test_the_hours_after_the_beginning_of_each_window_are_asked_for_without_their_day(back, ahead):
    now = T0 + ahead
    parts = list(_beforehand(now - back, now))
    for days in (1, 7, 30):
        spans, _ = cut(now - days * DAY_S, now, now - SETTLED_S)
        hours = [span for span in spans if span.seconds == HOUR_S and span.start < now - (days - 1) * DAY_S]
        made = {span for one in parts for span in cut(one.since, one.until, now - SETTLED_S)[0]}
        assert set(hours) <= made


def test_a_clock_that_was_wrong_once_does_not_ask_for_fifty_years():
    assert len(list(_beforehand(0.0, T0))) <= MOST_SPANS + 10
