"""The view of one app: its metrics over time, scores, traffic and slices, and what is said of what is missing."""

from __future__ import annotations

import asyncio
import re
import time
from itertools import pairwise

import pytest

from dashboards.web.app_readings import HeatMap, HeatMapReader, drawn, mean, percentile, traffic_of
from dashboards.web.format import iso
from gaugeway.records import Evaluation, Sample, Score, Usage
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from tests.support.pages import EVIL, world

NOW = 1_790_000_000.0
HOUR = 3600.0


async def complete(w, path):
    """The page once everything is read."""
    for _ in range(100):
        page = await w.page(path)
        if not any("data-incomplete" in attributes for _, attributes in page.elements):
            return page
        await asyncio.sleep(0.05)
    raise AssertionError(page.words)


async def test_an_app_has_a_chart_for_each_metric_and_tables_behind_them(tmp_path):
    async with world(tmp_path) as w:
        await w.drop(usage=Usage(input_tokens=900, output_tokens=120), duration_s=1.5, cost_usd=0.002)
        await w.drop(app="other", good=30, bad=0)
        await w.look()
        page = await complete(w, "/apps/shop?since=6h&metric=faithfulness")
    charts = [one for one in page.all("div") if one.get("class") == "chart-live"]
    assert charts[0]["data-series"] == "/api/series?app=shop&metric=faithfulness&since=6h"
    assert "until=" in charts[0]["data-previous"]
    assert "Mean 0." in page.words
    assert "320 scores" in page.words
    assert "Input tokens, mean 900 900 to 900" in page.words
    assert "Latency, median 1.5 s" in page.words or "Latency, median 1.4 s" in page.words
    assert "Cost of an exchange, mean 0.0020 USD" in page.words
    assert "alert firing" in page.words or "alerts firing" in page.words


async def test_the_slices_lead_to_their_exchanges(tmp_path):
    async with world(tmp_path) as w:
        await w.drop(good=40, bad=0, model="m-1", tags={"tenant": "north"})
        await w.drop(good=0, bad=40, model="m-2")
        models, tags, unknown = [
            await complete(w, f"/apps/shop?since=6h&metric=faithfulness&by={by}") for by in ("model", "tag:tenant", "x")
        ]
    links = [one["href"] for one in models.all("a") if "model=m-" in one["href"]]
    assert sorted(links) == [f"/explore?app=shop&since=6h&metric=faithfulness&model=m-{number}" for number in (1, 2)]
    assert any("tag=tenant%3Dnorth" in one["href"] for one in tags.all("a"))
    assert "by tag tenant" in tags.words
    assert "by model" in unknown.words


async def test_an_app_that_nobody_knows_is_not_found(tmp_path):
    async with world(tmp_path) as w:
        await w.add(0.9, app="older", at=NOW - 40 * 24 * HOUR)
        await w.look()
        for _ in range(100):
            answer = await w.client.get("/apps/nobody", headers={"accept": "text/html"})
            if answer.status_code == 404:
                break
            await asyncio.sleep(0.05)
        older = await complete(w, "/apps/older?since=1h&metric=faithfulness")
    assert answer.status_code == 404
    assert "no app of this name has scores" in answer.text
    assert "No scores in this range." in older.words
    assert "0.000" not in older.words


async def test_the_scores_of_the_firing_metric_are_shown_first(tmp_path):
    async with world(tmp_path) as w:
        await w.add(0.9, metric="answer_relevancy")
        await w.drop()
        usual, chosen = (
            await complete(w, "/apps/shop?since=6h"),
            await complete(w, "/apps/shop?since=6h&metric=answer_relevancy"),
        )
    assert "Scores of faithfulness" in usual.words
    assert "faithfulness by model" in usual.words
    assert "Scores of answer_relevancy" in chosen.words
    times = [
        one["data-at"]
        for one in usual.all("text")
        if one.get("class") in ("start", "mid", "end")
        if one.get("y") == "111"
    ]
    assert len(times) >= 4


async def test_names_from_clients_are_text(tmp_path):
    async with world(tmp_path) as w:
        await w.drop(app=EVIL, good=30, bad=0, model=EVIL)
        overview = await w.page("/")
        link = next(one["href"] for one in overview.all("a") if one["href"].startswith("/apps/"))
        page = await complete(w, link)
    assert page.all("img") == []
    assert all("onerror" not in attributes for _, attributes in page.elements)
    assert EVIL in page.text


async def test_a_form_leads_to_the_app_and_an_invalid_range_is_refused(tmp_path):
    async with world(tmp_path) as w:
        chosen = await w.client.get("/apps", params={"app": "a b/c", "since": "7d"}, follow_redirects=False)
        nothing = await w.client.get("/apps", follow_redirects=False)
        chosen, nothing, page = (
            chosen.headers["location"],
            nothing.headers["location"],
            await w.page("/apps/shop?since=x", 400),
        )
    assert (chosen, nothing) == ("/apps/a%20b%2Fc?since=7d", "/")
    assert "since:" in page.words


def heat(tmp_path, scores, since, until, within_s=60.0):
    """The heat map of (at, value, rate)."""

    async def main():
        store = SQLiteStore(tmp_path / "store.db")
        for index, (at, value, rate) in enumerate(scores):
            sample = Sample(id=f"x{index}", started_at=at, app="shop")
            one = Evaluation(sample_id=sample.id, metric="m", version="1", outcome=Score(value), rate=rate)
            await store.add(sample, [one])
        try:
            return await HeatMapReader(store, lambda: NOW).read("shop", "m", since, until, within_s)
        finally:
            await store.aclose()

    return asyncio.run(main())


@pytest.mark.parametrize("length", [2 * HOUR, 24 * HOUR, 20 * 24 * HOUR])
def test_a_column_has_the_weighted_share_of_each_tenth(tmp_path, length):
    at = NOW - length / 2
    found = heat(tmp_path, [(at, 0.0, 1.0), (at, 0.95, 0.5), (at, 1.0, 1.0)], NOW - length, NOW)
    assert found.complete
    (column,) = [one for one in found.columns if one.n]
    assert column.at <= at < column.at + column.seconds
    assert column.n == 3
    assert column.shares == pytest.approx([0.25, 0, 0, 0, 0, 0, 0, 0, 0, 0.75])
    columns = found.columns
    assert all(one.at + one.seconds == two.at for one, two in pairwise(columns))
    assert columns[0].at <= NOW - length
    assert columns[-1].at + columns[-1].seconds >= NOW


def test_a_heat_map_that_ran_out_of_time_says_so(tmp_path):
    found = heat(tmp_path, [(NOW - HOUR, 0.5, 1.0)], NOW - 24 * HOUR, NOW, within_s=0.0)
    assert (found.columns, found.complete) == ([], False)


def test_without_scores_there_is_no_heat_map():
    assert drawn(HeatMap(columns=[], complete=True), title="t", since=0.0, until=1.0) == ""


def test_few_exchanges_are_no_estimate_and_unknown_fields_do_not_count():
    some = [Sample(id=str(index), started_at=NOW, duration_s=1.0 + index / 10) for index in range(30)]
    found = traffic_of([*some, Sample(id="x", started_at=NOW)], 31)
    assert (found.exchanges, found.median_s.n, found.median_s.value) == (31, 30, 2.5)
    assert (found.cost_usd.n, found.cost_usd.value) == (0, None)
    assert mean([1.0] * 19).value is None


def test_the_interval_of_a_percentile_covers_it_as_often_as_it_says():
    import random

    draw, hits = random.Random(4), 0
    for _ in range(400):
        found = percentile(sorted(draw.expovariate(1.0) for _ in range(200)), 0.5)
        hits += found.low <= 0.6931 <= found.high
    assert hits >= 0.92 * 400


async def test_the_page_answers_while_the_store_is_slow(tmp_path, monkeypatch):
    async with world(tmp_path) as w:
        await w.drop()
        real = w.store.summary

        async def slow(*args):
            await asyncio.sleep(0.2)
            return await real(*args)

        monkeypatch.setattr(w.store, "summary", slow)
        page = await w.page("/apps/shop?since=15m&metric=faithfulness")
        monkeypatch.setattr(w.store, "summary", real)
        first, then = page, await complete(w, "/apps/shop?since=15m&metric=faithfulness")
    assert "Not read yet" in first.words or "still being read" in first.words
    assert "Not read yet" not in then.words


async def test_latency_and_cost_are_of_the_whole_range(tmp_path):
    """Slow answers in the middle of an hour of traffic, fast ones since; the page says of how many it knows them."""

    async with world(tmp_path) as w:
        now = time.time()
        for n in range(1500):
            seconds = 9.0 if 500 <= n < 1000 else 1.0
            await w.add(0.9, at=now - 3600.0 * (1.0 - n / 1500) - 30.0, duration_s=seconds)
        await w.look()
        day, recent = (
            await complete(w, "/apps/shop?since=24h&metric=faithfulness"),
            await complete(w, "/apps/shop?since=15m&metric=faithfulness"),
        )
    assert "Latency, 95th percentile 9 s" in day.words
    assert "Latency, median 1 s" in day.words
    found = re.search(r"From (\d+) of (?:about )?(\d,\d+) exchanges that faithfulness was computed for", day.words)
    assert int(found[1]) == pytest.approx(600, rel=0.15)
    assert int(found[2].replace(",", "")) == pytest.approx(1500, rel=0.15)
    assert re.search(r"From all 3\d\d exchanges", recent.words)


def test_the_heat_map_shows_the_range_and_nothing_outside(tmp_path):
    since, until = NOW - 16 * 60.0, NOW
    found = heat(tmp_path, [(since + 1.0, 0.5, 1.0), (until - 1.0, 0.5, 1.0)], since, until)
    assert found.complete
    assert {one.seconds for one in found.columns} == {60.0}
    svg = str(drawn(found, title="t", since=since, until=until))
    cells = [
        (float(x), float(width)) for x, width in re.findall(r'heat-cell" x="([\d.]+)" y="\d+" width="([\d.]+)"', svg)
    ]
    assert len(cells) == 2
    assert all(x >= 44.0 and x + width <= 994.1 for x, width in cells)
    assert cells[1][0] > 900.0
    times = re.findall(r'data-at="([^"]+)"', svg)
    assert times
    assert all(iso(since) <= one <= iso(until) for one in times)


async def test_the_metric_that_is_shown_does_not_depend_on_the_range(tmp_path):
    async with world(tmp_path) as w:
        now = time.time()
        for n in range(40):
            await w.add(0.9, at=now - 60.0, metric="answer_relevancy", id=f"a{n}")
            await w.add(0.9, at=now - 20 * HOUR, metric="lexical_groundedness", id=f"g{n}")
        await w.look()
        unwatched = [await complete(w, f"/apps/shop?since={since}") for since in ("15m", "24h")]
        for n in range(40):
            await w.add(0.9, at=now - 30.0, id=f"f{n}")
        await w.look()
        watched = [await complete(w, f"/apps/shop?since={since}") for since in ("15m", "1h", "24h")]
    assert len({re.search(r"Scores of (\w+)", one.words)[1] for one in unwatched}) == 1
    for page in watched:
        assert "Scores of faithfulness" in page.words  # it has an objective
        assert "faithfulness by model" in page.words
        chosen = [attributes for tag, attributes in page.elements if tag == "option" and "selected" in attributes]
        assert chosen
