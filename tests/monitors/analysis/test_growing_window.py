"""A stream with few scores gets the estimate of the shortest window that has enough; longer ones are read rarely."""

import asyncio
import math

from gaugeway.storage.stores import Summary
from monitors.analysis.quality import estimate
from monitors.analysis.recent_sums import SETTLED_S, GrowingWindow, RecentSums

HOUR, DAY = 3600.0, 86_400.0
NOW = 500 * HOUR + 1500.0


def summary(app, n, mean=0.8):
    return Summary(app=app, metric="m", n=n, failed=0, w=n, wx=n * mean, w2=n, w2x=n * mean, w2x2=n * mean)


class Traffic:
    """Apps with so many scores an hour, for ever; `windows` are the whole hours back to which was read, and `rows` the
    hours that were read without a sum the store keeps.
    """

    def __init__(self, **per_hour):
        self.per_hour, self.now, self.rows, self.windows = per_hour, NOW, 0.0, []

    async def summary(self, query, by=""):
        until = min(query.until, self.now)
        whole = max(0, math.floor(until / HOUR) - math.ceil(query.since / HOUR))
        self.rows += (until - query.since) / HOUR - whole
        if query.until - query.since > 2 * HOUR and query.until < self.now:
            self.windows.append(math.floor((self.now - query.since) / HOUR))
        counts = {
            app: math.floor(n * until / HOUR) - math.floor(n * query.since / HOUR) for app, n in self.per_hour.items()
        }
        return [summary(app, n) for app, n in counts.items() if n]


class Growing:
    """A growing window over such traffic."""

    def __init__(self, window_s=HOUR, **per_hour):
        self.traffic, self.window_s = Traffic(**per_hour), window_s
        self.recent = RecentSums(self.traffic, window_s)
        self.growing = GrowingWindow(self.traffic, self.recent, window_s)

    def grown(self, now=NOW):
        """Apps whose estimate has a mean or not, with its number of scores and the hours of its window."""
        self.traffic.now = now

        async def main():
            known = len(self.traffic.windows)
            found = estimate(await self.recent.summary(now), window_s=self.window_s)
            self.traffic.rows = 0.0
            del self.traffic.windows[known:]
            return await self.growing.grown(found, now, {})

        return {one.app: (one.mean is not None, one.n, one.window_s / HOUR) for one in asyncio.run(main())}


def test_every_stream_gets_the_shortest_window_with_a_basis():
    found = Growing(busy=50, quiet=3, slow=1, rare=0.2, never=0.01).grown()
    assert found["busy"] == (True, 50, 1)
    assert found["quiet"] == (True, 18, 6)
    assert found["slow"] == (True, 24, 24)
    assert found["rare"] == (True, 34, 168)
    assert "never" not in found or not found["never"][0]


def test_longer_windows_are_read_rarely_and_sooner_where_a_stream_is_missing():
    one = Growing(quiet=3)
    for second in range(0, 300, 2):
        one.grown(NOW + second)
    assert one.traffic.windows == [6, 24, 168]
    one.traffic.per_hour["new"] = 4
    one.grown(NOW + 300)
    one.grown(NOW + 302)
    assert one.traffic.windows == [6, 24, 168, 6], "that window has a basis for it"
    one.grown(NOW + 300 + 361)
    assert one.traffic.windows[4:] == [6]


def test_a_configured_window_of_a_week_is_not_exceeded():
    one = Growing(8 * DAY, slow=0.01)
    assert one.grown()["slow"] == (False, 2, 192)
    assert one.traffic.windows == []


def test_longer_windows_read_few_rows_of_a_busy_app():
    one = Growing(busy=100_000)
    one.grown()
    read = []
    for minute in range(1, 200):
        one.traffic.windows.clear()
        one.grown(NOW + 60.0 * minute)
        if one.traffic.windows:
            read.append(one.traffic.rows * HOUR / len(one.traffic.windows))
    assert len(read) > 30
    assert max(read) <= HOUR + SETTLED_S + 2 * 60.0, "the first hour's part and what may still change"
    assert min(read) <= SETTLED_S + 7 * 60.0


def test_the_interval_for_one_look_is_narrower_and_both_hold_the_mean():
    (one,) = estimate([summary("a", 60)], window_s=HOUR)
    assert one.ci_low < one.fixed_low < one.mean < one.fixed_high < one.ci_high
    (few,) = estimate([summary("a", 9)], window_s=HOUR)
    assert (few.mean, few.ci_low, few.fixed_low) == (None, None, None)
