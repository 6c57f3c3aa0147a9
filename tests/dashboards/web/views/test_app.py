"""The view of one app: its metrics over time, scores, traffic and slices, and what is said of what is missing."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from itertools import pairwise

import numpy as np
import pytest

from dashboards.web.app_readings import HeatMap, HeatMapReader, drawn, mean, percentile, traffic_of
from dashboards.web.format import iso
from gaugeway.records import Evaluation, Sample, Score, Usage
from gaugeway.settings.shared import Alerts, Config, Endpoint, Judge, Rule
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from tests.support.pages import EVIL, world

TIERS = Judge(
    kind="decisions",
    base_url="http://127.0.0.1:1/v1",
    model="luna",
    anchor=Endpoint(base_url="http://127.0.0.1:1/v1", model="gpt-5"),
)
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
    assert page.all("h1")
    assert "shop ■ firing" in page.words
    assert charts[0]["data-series"] == "/api/series?app=shop&metric=faithfulness&since=6h"
    assert "until=" in charts[0]["data-previous"]
    assert any(
        re.fullmatch(r"95 % interval 0\.\d\d to 0\.\d\d, \d+ scores of the last \S+ \S+", one.get("title", ""))
        for one in page.all("span")
    )
    assert "Input tokens of an answer 900" in page.words
    assert any(one.get("title") == "900 to 900, 320 answers" for one in page.all("div"))
    assert "Latency, median 1.5 s" in page.words or "Latency, median 1.4 s" in page.words
    assert "Cost of an answer 0.0020 USD" in page.words
    assert re.search(
        r"Scores Since [A-Z][a-z]{2} \d\d:\d\d m-1 0\.7\d 0\.\d\d to 0\.\d\d 320 (n \d+ )?0\.3\d", page.words
    )
    assert "faithfulness fell from 0." in page.words


async def test_an_app_says_what_changed_today_and_how_each_metric_moved(tmp_path):
    async with world(tmp_path) as w:
        now = time.time()
        for n in range(200):
            old = n < 100
            at = now - (8.0 if old else 1.5) * HOUR + 20.0 * n
            await w.add(
                0.95 if old else 0.3,
                at=at,
                id=f"c{n}",
                model="m-1" if old else "m-2",
                tags={"release": "41" if old else "42"},
            )
            await w.add(0.5, at=at, metric="abstained", id=f"s{n}", model="m-1" if old else "m-2")
            await w.add(0.5, at=at, metric="slow", id=f"t{n}", model="m-1" if old else "m-2")
        await w.look()
        page = await complete(w, "/apps/shop?since=24h&metric=faithfulness")
        (quiet,) = [await complete(w, "/apps/shop?since=15m")]
    changed = r"Changed in the last 24 hours: (model m-2 · release 42|release 42 · model m-2) [A-Z][a-z]{2} \d\d:"
    assert re.search(changed, page.words)
    links = [one["href"] for one in page.all("a") if one.get("href", "").startswith("/compare?")]
    assert "/compare?app=shop&by=model&a=m-1&b=m-2" in links
    assert re.search(r"faithfulness Worst answers 0\.30 ↓ 0\.65 since", page.words)
    assert any(one.get("class") == "change bad" for one in page.all("span"))
    assert re.search(r"Other metrics and signals slow ↓0\.50", page.words)
    assert "No scores in this range." in quiet.words


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
        store, running = SQLiteStore(tmp_path / "store.db"), set()
        for index, (at, value, rate) in enumerate(scores):
            sample = Sample(id=f"x{index}", started_at=at, app="shop")
            one = Evaluation(sample_id=sample.id, metric="m", version="1", outcome=Score(value), rate=rate)
            await store.add(sample, [one])
        try:
            return await HeatMapReader(store, lambda: NOW, running).read("shop", "m", since, until, within_s)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
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
    assert "Latency, p95 9 s" in day.words
    assert "Latency, median 1 s" in day.words
    found = re.search(r"From (\d+) of (?:about )?(\d,\d+) answers scored for faithfulness", day.words)
    assert int(found[1]) == pytest.approx(600, rel=0.15)
    assert int(found[2].replace(",", "")) == pytest.approx(1500, rel=0.15)
    assert re.search(r"From all 3\d\d answers", recent.words)


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


async def two_tiers(w, count, *, every=4, usd=(0.0003, 0.006), seed=5):
    """Answers of the last 50 minutes, judged by decisions, and a share by the LLM; one metric pays for the calls."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        sample = Sample(id=f"t{number}", started_at=time.time() - 3000.0 * (number + 0.5) / count, app="shop")
        scores = []
        for place, (name, share) in enumerate((("faithfulness", 0.8), ("answer_relevancy", 0.6))):
            llm = float(rng.random() < share)
            cheap = 0.6 * llm + 0.3 * rng.random()
            scores.append((name, cheap, 1.0, "luna", usd[0] if place == 0 else 0.0))
            if number % every == 0:
                scores.append((f"{name}~anchor", llm, 1.0 / every, "gpt-5", usd[1] if place == 0 else 0.0))
                scores.append((f"{name}~disagreement", (cheap - llm + 1.0) / 2.0, 1.0 / every, None, 0.0))
        rows = [
            Evaluation(
                sample_id=sample.id,
                metric=name,
                version="1",
                outcome=Score(value),
                rate=rate,
                judge=judge,
                cost_usd=cost,
            )
            for name, value, rate, judge, cost in scores
        ]
        await w.store.add(sample, rows)
    await w.look()


async def tier_rows(w):
    """The cells of the table of tiers, by metric and row; and the estimates that the API gives."""
    page = await w.page("/apps/shop?since=6h")
    rows, name = {}, ""
    for row in next(table for table in page.tables if table and table[0][0][-1] == "Judged by")[1:]:
        first, *texts = [" ".join(cell[-1].split()) for cell in row]
        if not texts:
            name = first.removesuffix(" 0 is best")
            continue
        by, judge = (first, None) if first.endswith("LLM") else first.rsplit(maxsplit=1)
        rows[name, by] = [judge, *texts]
    return rows, {row["metric"]: row for row in (await w.client.get("/api/metrics")).json() if not row["slice"]}


async def test_decisions_the_llm_and_both_together_stand_side_by_side(tmp_path):
    async with world(tmp_path, config=Config(judge=TIERS)) as w:
        await two_tiers(w, 800)
        rows, api = await tier_rows(w)
    assert {name for name, _ in rows} == {"faithfulness", "answer_relevancy"}, "the app has no scores of others"
    for name, passing in (("faithfulness", 0.8), ("answer_relevancy", 0.6)):
        decided, alone, both = (rows[name, by] for by in ("decisions", "LLM alone", "LLM with decisions"))
        assert (decided[0], alone[0], both[0]) == ("luna", "gpt-5", "gpt-5")
        assert (decided[1], alone[1], both[1]) == ("800", "200", "200")
        assert float(alone[4]) > 1.3 * float(both[4]) > 0.0, "the covariate narrows the interval"
        low, high = map(float, both[3].split(" to "))
        assert low < passing < high
        anchor = api[f"{name}~anchor"]
        assert anchor["covariate"] == name
        assert f"{anchor['alone_low']:.2f} to {anchor['alone_high']:.2f}" == alone[3]
        assert f"{anchor['ci_low']:.2f} to {anchor['ci_high']:.2f}" == both[3]
        assert decided[5:] == ["0.12 USD", "0.15 USD"], "a call is for both metrics, whichever paid"
        assert alone[5:] == ["0.60 USD", "3.00 USD"]
        assert both[5:] == ["0.72 USD", "0.90 USD"]
        assert (api[name]["usd_window"], api[name]["usd_per_1000"]) == pytest.approx((0.12, 0.15))
        apart = rows[name, "decisions \u2212 LLM"]
        assert apart[1] == "200"
        assert float(apart[2]) == pytest.approx(0.15 - 0.4 * passing, abs=0.05)
        assert apart[-1].startswith("Drift:")


async def test_the_rule_on_the_disagreement_says_whether_it_drifts(tmp_path):
    rules = (Rule(metric="faithfulness~disagreement", slo=0.7),)
    alerts = Alerts(bucket_s=60.0, watermark_s=0.0, rules=rules)
    async with world(tmp_path, config=Config(judge=TIERS, alerts=alerts)) as w:
        await two_tiers(w, 800)
        rows, _ = await tier_rows(w)
    assert rows["faithfulness", "decisions \u2212 LLM"][-1].startswith("Drift: \u25a0 firing")
    assert rows["answer_relevancy", "decisions \u2212 LLM"][-1].startswith("Drift: \u25cb no rule")


async def test_few_answers_and_unknown_prices_are_a_dash_and_their_number_never_0(tmp_path):
    async with world(tmp_path, config=Config(judge=TIERS)) as w:
        await two_tiers(w, 24, usd=(0.0, 0.0))
        rows, _ = await tier_rows(w)
    assert rows["faithfulness", "decisions"][1] == "24"
    assert rows["faithfulness", "LLM alone"] == ["gpt-5", "6", "-", "-", "-", "-", "-"]
    assert rows["faithfulness", "LLM with decisions"] == ["gpt-5", "6", "-", "-", "-", "-", "-"]
    assert rows["faithfulness", "decisions \u2212 LLM"][1:5] == ["6", "-", "-", "-"]


async def test_a_judge_without_any_score_has_a_dash_and_0_answers(tmp_path):
    async with world(tmp_path, config=Config(judge=TIERS)) as w:
        for number in range(30):
            await w.add(0.5 + number / 100)
        await w.look()
        rows, _ = await tier_rows(w)
    assert rows["faithfulness", "decisions"][1:3] == ["30", "0.65"]
    for by in ("LLM alone", "LLM with decisions"):
        assert rows["faithfulness", by] == ["gpt-5", "0", "-", "-", "-", "-", "-"]


async def test_without_an_anchor_there_is_no_table_of_tiers(tmp_path):
    async with world(tmp_path) as w:
        await w.drop(good=30, bad=0)
        page = await w.page("/apps/shop")
    assert "Decisions and LLM judge" not in page.words


async def test_a_heat_map_that_takes_long_is_read_between_requests_and_stays(tmp_path):
    now, go, running = [NOW], asyncio.Event(), set()
    async with contextlib.aclosing(SQLiteStore(tmp_path / "store.db")) as store:
        sample = Sample(id="x", started_at=NOW - HOUR, app="shop")
        score = Evaluation(sample_id=sample.id, metric="m", version="1", outcome=Score(0.5), rate=1.0)
        await store.add(sample, [score])
        real = store.spread

        async def slow(*args):
            await go.wait()
            return await real(*args)

        store.spread = slow
        reader = HeatMapReader(store, lambda: now[0], running)
        asked = ("shop", "m", NOW - 24 * HOUR, NOW)
        first = await reader.read(*asked, 0.01)
        go.set()
        await asyncio.gather(*running)
        second = await reader.read(*asked, 0.0)
        go.clear()
        now[0] += 20.0
        held = await reader.read(*asked, 0.01)
        go.set()
        await asyncio.gather(*running)
    assert (first.complete, second.complete, held.complete) == (False, True, True)
    assert [one.n for one in second.columns if one.n] == [1]
