"""A stream with few scores gets the estimate of the shortest window that has enough; longer ones are read rarely."""

import asyncio

from monitors.analysis.growing_window import GrowingWindow
from monitors.analysis.quality import estimate
from monitors.storage.stores import Summary

HOUR, DAY = 3600.0, 86_400.0
NOW = 1_000_000.0


def summary(app, n, mean=0.8):
    return Summary(app=app, metric="m", n=n, failed=0, w=n, wx=n * mean, w2=n, w2x=n * mean, w2x2=n * mean)


class Traffic:
    """Apps with so many scores an hour, for ever; which windows are read is counted."""

    def __init__(self, **per_hour):
        self.per_hour, self.read = per_hour, []

    async def summary(self, query, by=""):
        hours = round((query.until - query.since - DAY) / HOUR)
        self.read.append(hours)
        return [summary(app, int(n * hours)) for app, n in self.per_hour.items() if int(n * hours)]


def grown(growing, traffic, now=NOW, window_s=HOUR):
    own = [summary(app, int(n)) for app, n in traffic.per_hour.items() if int(n)]
    found = asyncio.run(growing.grown(estimate(own, window_s=window_s), now, {}))
    return {one.app: (one.mean is not None, one.n, one.window_s / HOUR) for one in found}


def test_every_stream_gets_the_shortest_window_with_a_basis():
    traffic = Traffic(busy=50, quiet=3, slow=1, rare=0.2, never=0.01)
    found = grown(GrowingWindow(traffic, HOUR), traffic)
    assert found["busy"] == (True, 50, 1)
    assert found["quiet"] == (True, 18, 6)
    assert found["slow"] == (True, 24, 24)
    assert found["rare"] == (True, 33, 168)
    assert "never" not in found


def test_longer_windows_are_read_rarely_and_sooner_where_a_stream_is_missing():
    traffic = Traffic(quiet=3)
    growing = GrowingWindow(traffic, HOUR)
    for second in range(0, 300, 2):
        grown(growing, traffic, NOW + second)
    assert traffic.read == [6, 24, 168]
    traffic.per_hour["new"] = 4
    grown(growing, traffic, NOW + 300)
    grown(growing, traffic, NOW + 302)
    assert traffic.read == [6, 24, 168, 6], "that window has a basis for it"
    grown(growing, traffic, NOW + 300 + 361)
    assert traffic.read[4:] == [6]


def test_a_configured_window_of_a_week_is_not_exceeded():
    traffic = Traffic(slow=1)
    assert grown(GrowingWindow(traffic, 8 * DAY), traffic, window_s=8 * DAY)["slow"] == (False, 1, 192)
    assert traffic.read == []


def test_the_interval_for_one_look_is_narrower_and_both_hold_the_mean():
    (one,) = estimate([summary("a", 60)], window_s=HOUR)
    assert one.ci_low < one.fixed_low < one.mean < one.fixed_high < one.ci_high
    (few,) = estimate([summary("a", 9)], window_s=HOUR)
    assert (few.mean, few.ci_low, few.fixed_low) == (None, None, None)
