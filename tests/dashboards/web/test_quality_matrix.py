"""The overview's table: filtered, sorted, paged, and small with any number of apps."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import replace

from dashboards.web.gateways import AppTraffic
from dashboards.web.quality_matrix import Watches, filtered, metrics_of, ordered, rows_of
from dashboards.web.views.overview import MAX_APPS, headings, leading, parse, recently_resolved
from monitors.alerting.engine import StreamStatus
from monitors.analysis.quality import Quality
from tests.support.pages import EVIL, world

NONE = {"traffic": {}, "captured": {}, "lower_is_better": {"hallucination"}}


def quality(app, metric="m", mean=0.5, n=100):
    known = {} if mean is None else {"mean": mean, "ci_low": mean, "ci_high": mean}
    return Quality(app=app, metric=metric, n=n, n_eff=float(n), coverage_ratio=1.0, window_s=3600.0, **known)


def status(app, state="quiet", metric="m"):
    return StreamStatus(
        rule="r", metric=metric, app=app, m0=0.5, evidence_log10=0.0, state=state, closed_until=0.0, learned=0, needed=0
    )


def apps(rows):
    return [row.app for row in rows]


def test_firing_apps_come_first_then_those_with_most_scores():
    streams = [status("a"), status("b", "firing"), status("c")]
    rows = rows_of([quality("a", n=10), quality("b", n=1), quality("c", n=500)], Watches(streams))
    assert apps(ordered(rows, "", **NONE)) == ["b", "c", "a"]


def test_a_metric_is_sorted_with_the_worst_app_first_and_apps_without_it_last():
    some = [quality("a", mean=0.9), quality("b", mean=0.2), quality("c", mean=None, n=3), quality("d", "hallucination")]
    rows = rows_of([*some, quality("b", "hallucination", 0.1), quality("a", "hallucination", 0.7)], Watches([]))
    assert apps(ordered(rows, "m", **NONE))[:2] == ["b", "a"]
    assert apps(ordered(rows, "-m", **NONE))[:2] == ["a", "b"]
    assert set(apps(ordered(rows, "-m", **NONE))[2:]) == {"c", "d"}
    assert apps(ordered(rows, "hallucination", **NONE))[:3] == ["a", "d", "b"]


def test_traffic_is_sorted_with_the_most_first():
    rows = rows_of([quality(name) for name in "abc"], Watches([]))
    seen = {
        "a": AppTraffic(requests_per_min=1.0, error_ratio=0.5, p95_s=3.0, usd_per_answer=None),
        "b": AppTraffic(requests_per_min=9.0, error_ratio=0.1, p95_s=1.0, usd_per_answer=0.2),
    }
    given = {**NONE, "traffic": seen}
    assert apps(ordered(rows, "requests_per_min", **given)) == ["b", "a", "c"]
    assert apps(ordered(rows, "-requests_per_min", **given)) == ["a", "b", "c"]
    assert apps(ordered(rows, "error_share", **given)) == ["a", "b", "c"]
    assert apps(ordered(rows, "p95_latency", **given)) == ["a", "b", "c"]
    assert apps(ordered(rows, "cost_per_answer", **given))[0] == "b"
    assert apps(ordered(rows, "-app", **given)) == ["c", "b", "a"]


def test_a_filter_knows_no_case_and_a_metric_of_most_apps_comes_first():
    rows = rows_of([quality("Shop-EU", "z"), quality("bank", "z"), quality("bank", "a")], Watches([]))
    assert apps(filtered(rows, "shop")) == ["Shop-EU"]
    assert metrics_of(rows) == ["z", "a"]


def test_a_title_sorts_and_then_reverses():
    params = [("q", "x"), ("sort", "error_share"), ("after", "50")]
    found = {one.name: one for one in headings(["m"], parse(dict(params)), params, set())}
    assert found["error_share"].url == "/?q=x&sort=-error_share"
    assert found["error_share"].sorted == "descending"
    assert found["m"].url == "/?q=x&sort=m"
    assert found["m"].sorted == ""


async def test_with_two_thousand_apps_the_page_shows_fifty_and_finds_any(tmp_path):
    async with world(tmp_path) as w:
        many = [
            quality(f"app-{index:04}", metric, 0.5 + index / 5000, 2000 - index)
            for index in range(2000)
            for metric in ("faithfulness", "answer_relevancy")
        ]
        w.plane._quality = [*many, quality(EVIL, "faithfulness")]  # noqa: SLF001 - 2,000 apps take minutes to store
        begin = time.perf_counter()
        answer = await w.client.get("/", headers={"accept": "text/html"})
        took = time.perf_counter() - begin
        first, second = await w.page("/"), await w.page("/?after=50")
        found, none = await w.page("/?q=APP-1999"), await w.page("/?q=nowhere")
        beyond, worst = await w.page("/?after=999999"), await w.page("/?sort=-faithfulness")
        evil = await w.page(f"/?q={EVIL}")
        _ = took
    assert len(answer.content) < 150_000
    rows = [one for one in first.all("a") if one.get("href", "").startswith("/explore?app=")]
    assert len({one["href"].split("&")[0] for one in rows}) == MAX_APPS
    assert "Apps 1 to 50 of 2,001" in " ".join(first.text.split(" "))
    assert "app-0049" in first.words
    assert "app-0050" not in first.words
    assert "app-0050" in second.words
    assert "app-1999" in found.words
    assert "app-0001" not in found.words
    assert "1 app with “APP-1999”" in found.words
    assert "No app contains “nowhere”." in none.words
    assert "app-0000" in beyond.words
    assert worst.words.index("app-1999") < worst.words.index("app-1998")
    assert not evil.all("img")
    assert all("src" in one for one in evil.all("script"))


async def test_alerts_resolved_in_the_last_day_are_listed_latest_first(tmp_path):
    async with world(tmp_path) as w:
        await w.drop()
        alert = next(one for one in w.engine.alerts() if one.state == "firing" and not one.slice)
    now = time.time()
    ended = [replace(alert, state="resolved", ended_at=now - hours * 3600.0) for hours in (5, 1, 30)]
    assert [round((now - one.ended_at) / 3600) for one in recently_resolved([alert, *ended], now)] == [1, 5]
    part = replace(alert, slice="model=m-1")
    assert leading([part, alert]) == [alert]
    assert leading([part, replace(alert, metric="other")])[0] == part


async def test_with_three_scores_an_hour_there_is_a_mean_a_chart_and_the_window_is_named_and_exported(tmp_path):
    async with world(tmp_path) as w:
        now = time.time()
        for hour in range(24):
            for minute in (10, 20, 30):
                await w.add(0.9, at=now - 3600.0 * hour - 60.0 * minute, app="quiet")
                await w.add(1.0, at=now - 3600.0 * hour - 60.0 * minute, app="quiet", metric="abstained")
        await w.plane.estimate()
        for _ in range(50):
            page = await w.page("/")
            if "still loading" not in page.words:
                break
            await asyncio.sleep(0.1)
        metrics = (await w.client.get("/metrics")).text
        slices = await w.page("/?by=model")
    assert "n 18 in 6 h" in page.words
    assert "of 10 scores" not in page.words
    chart = next(one["aria-label"] for one in page.all("svg") if one.get("class") == "spark")
    assert chart == "faithfulness of quiet, last 24 h by 6 h: from 0.90 to 0.90"
    assert re.search(r'gaugeway_quality_mean{app="quiet",metric="faithfulness"} 0\.(?:9|8999)', metrics)
    assert 'gaugeway_quality_window_seconds{app="quiet",metric="faithfulness"} 21600.0' in metrics
    assert 'gaugeway_signal_window_seconds{app="quiet",signal="abstained"} 21600.0' in metrics
    assert "faithfulness quiet m-1 0.90" in slices.words
    marks = [one for one in page.all("a") if one.get("href") == "/explore?app=quiet&metric=abstained"]
    assert [one["class"] for one in marks] == ["pill", "mean"], "a mark, and the list of all signals"
    assert "abstained 1.00" in page.words
    assert "1 signal" in page.words
    assert "72 1 d" in slices.words
