"""The charts and groups of Explore stand for the whole period, or say what part of it they cover."""

from __future__ import annotations

import asyncio
import re
import time
from urllib.parse import parse_qs, urlsplit

import pytest

from dashboards.web.spread_sample import sampled_exchanges, spread_sample
from dashboards.web.views import explore as explore_view
from gaugeway.records import Context, Evaluation, Sample, Score
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.stores import Query
from tests.support.pages import world

NOW = 1_760_000_000.0
DAY = 86_400.0


def sampled(path, times, value, *, wanted, metrics=("m",), budget_s=60.0):
    """A sample of the scores at these times over the day that ends now."""

    async def main():
        store = SQLiteStore(path / "store.db")
        try:
            for n, at in enumerate(times):
                sample = Sample(id=f"x{n}", started_at=at, app="shop")
                some = [
                    Evaluation(sample_id=sample.id, metric=m, version="1", outcome=Score(value(n))) for m in metrics
                ]
                await store.add(sample, some)
            query = Query(since=NOW - DAY, until=NOW, metric=metrics[0] if len(metrics) == 1 else None)
            return await spread_sample(store, query, wanted=wanted, budget_s=budget_s, clock=time.monotonic)
        finally:
            await store.aclose()

    return asyncio.run(main())


@pytest.mark.parametrize("hours", [1.0, 24.0])
def test_a_sample_has_the_same_share_of_each_part_of_the_period(tmp_path, hours):
    """Also when all traffic is in a twenty-fourth of it; the middle third is bad."""
    count = 2400
    times = [NOW - hours * 3600.0 * (1.0 - (n + 0.5) / count) for n in range(count)]
    found = sampled(tmp_path, times, lambda n: 0.2 if count // 3 <= n < 2 * count // 3 else 0.9, wanted=600)
    assert not found.complete
    assert found.total == pytest.approx(count, rel=0.1)
    assert len(found.points) == pytest.approx(600, rel=0.15)
    assert found.share == pytest.approx(0.25, rel=0.15)
    mean = sum(one.value for one in found.points) / len(found.points)
    assert mean == pytest.approx(2 / 3 * 0.9 + 1 / 3 * 0.2, abs=0.03)
    assert [one.started_at for one in found.points] == sorted((one.started_at for one in found.points), reverse=True)


def test_uneven_traffic_keeps_its_proportions(tmp_path):
    """A burst of ten minutes has three times the scores of all the rest of the day."""
    steady = [NOW - DAY * (n + 0.5) / 600 for n in range(600)]
    burst = [NOW - 40_000.0 - 600.0 * n / 1800 for n in range(1800)]
    found = sampled(tmp_path, [*steady, *burst], lambda n: 1.0 if n < 600 else 0.0, wanted=400)
    low = sum(one.value == 0.0 for one in found.points) / len(found.points)
    assert low == pytest.approx(0.75, abs=0.08)


def test_few_scores_are_all_read(tmp_path):
    times = [NOW - 300.0 * (n + 0.5) / 900 for n in range(900)]
    found = sampled(tmp_path, times, lambda n: 0.5, wanted=1000)
    assert found.complete
    assert (len(found.points), found.total, found.share) == (900, 900.0, 1.0)


def test_an_exchange_is_drawn_with_all_its_metrics(tmp_path):
    times = [NOW - DAY * (n + 0.5) / 500 for n in range(500)]
    found = sampled(tmp_path, times, lambda n: 0.5, wanted=300, metrics=("a", "b", "c"))
    by_id = {}
    for one in found.points:
        by_id.setdefault(one.sample_id, set()).add(one.metric)
    assert all(metrics == {"a", "b", "c"} for metrics in by_id.values())
    assert len(sampled_exchanges(found.points, 30)) == 30


def test_scores_of_one_moment_and_a_spent_budget(tmp_path):
    found = sampled(tmp_path, [NOW - 1000.0] * 400, lambda n: 0.5, wanted=100)
    assert found.points
    assert sampled(tmp_path, [], lambda n: 0.5, wanted=100, budget_s=-1.0) is None


async def recovered(w):
    """An hour of traffic: its second third is bad, and of another source; since then all is well."""
    now, count = time.time(), 900
    for n in range(count):
        bad = count // 3 <= n < 2 * count // 3
        await w.add(
            0.1 if bad else 0.95,
            at=now - 3600.0 * (1.0 - n / count) - 30.0,
            id=f"e{n}",
            contexts=(Context(text="t", id="stale.md" if bad else "good.md"),),
            context_source="explicit",
        )


async def test_charts_and_groups_show_an_incident_that_is_over(tmp_path, monkeypatch):
    monkeypatch.setattr(explore_view, "COUNTED", 200)
    monkeypatch.setattr(explore_view, "SPREAD_S", 60.0)

    async with world(tmp_path) as w:
        await recovered(w)
        chart = await w.page("/explore?app=shop&metric=faithfulness&since=24h")
        groups = await w.page("/explore?app=shop&metric=faithfulness&since=2h&group=source")
    mean = float(re.search(r"faithfulness mean (0\.\d+)", chart.words)[1])
    assert mean == pytest.approx(0.667, abs=0.07)
    assert re.search(r"\d+ scores, a sample of 2\d %, spread evenly over time", chart.words)
    assert "stale.md" in groups.words
    assert re.search(r"faithfulness of \d+ exchanges, sampled evenly over time", groups.words)


async def test_where_only_the_newest_can_be_read_the_chart_says_what_it_covers(tmp_path, monkeypatch):
    monkeypatch.setattr(explore_view, "COUNTED", 200)

    async with world(tmp_path) as w:
        await recovered(w)
        slow = await w.page("/explore?app=shop&metric=faithfulness&since=2h&text=how")
        monkeypatch.setattr(explore_view, "SPREAD_S", -1.0)
        monkeypatch.setattr(explore_view, "NEWEST_S", 60.0)
        late = await w.page("/explore?app=shop&metric=faithfulness&since=2h")
    for page in (slow, late):
        assert re.search(r"Charts cover .* UTC, \d+ % of the range: it has too many scores", page.words)
        assert "The newest 200 scores." in page.words
        link = next(one["href"] for one in page.all("a") if one["href"].endswith("Z") and "until=" in one["href"])
        fields = parse_qs(urlsplit(link).query)
        assert fields["since"] < fields["until"]


@pytest.mark.parametrize(("since", "shortened"), [("", True), ("&since=24h", False)])
async def test_it_opens_on_a_range_that_it_can_read_unless_one_is_chosen(tmp_path, monkeypatch, since, shortened):
    monkeypatch.setattr(explore_view, "COUNTED", 300)
    monkeypatch.setattr(explore_view, "SPREAD_S", -1.0)
    monkeypatch.setattr(explore_view, "NEWEST_S", 60.0)

    async with world(tmp_path) as w:
        now = time.time()
        for n in range(400):
            await w.add(0.5, at=now - 30.0 - (n if n < 100 else 60.0 * n))
        page = await w.page(f"/explore?metric=faithfulness{since}")
    assert ("Showing the last 1 h: 24h has too many scores to read at once. Show 24h" in page.words) == shortened
    assert ("Charts cover" in page.words) != shortened
    ranges = [one["href"] for one in page.all("a") if one.get("aria-current") and "since=" in one.get("href", "")]
    assert ranges[0] == f"/explore?metric=faithfulness&since={'1h' if shortened else '24h'}"
