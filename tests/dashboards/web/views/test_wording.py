"""What the views say of their bounds, periods, missing values and times."""

from __future__ import annotations

import asyncio
import time

from dashboards.web.charts import bars
from dashboards.web.gateways import TrafficReader
from dashboards.web.views.settings import receivers_of
from gaugeway.records import CaptureInfo, Context, Evaluation, Sample, Score
from gaugeway.settings.shared import Config, Notifier
from monitors.alerting.notifiers import Route
from tests.support.pages import world


async def test_explore_refuses_a_period_that_ends_before_it_begins_and_says_how_many_it_shows(tmp_path):
    async with world(tmp_path) as w:
        for _ in range(60):
            await w.add(0.9)
        await w.look()
        day = time.strftime("%Y-%m-%d", time.gmtime())
        refused, newest, lowest, none = (
            await w.page(f"/explore?since={day}T17:00:00Z&until={day}T16:00:00Z", 400),
            await w.page("/explore?metric=faithfulness"),
            await w.page("/explore?metric=faithfulness&order=lowest"),
            await w.page("/explore?metric=faithfulness&least=0.95"),
        )
    assert "The start of the time range must be before its end." in refused.words
    assert "The newest 50 exchanges" in newest.words
    assert "The first 50 exchanges, lowest score first" in lowest.words
    assert "No exchange matches." in none.words
    assert [one for one in newest.all("text") if "data-at" in one]


async def test_head_of_a_view_is_answered_like_get_without_a_body(tmp_path):
    async with world(tmp_path) as w:
        await w.add(0.9)
        await w.look()
        paths = ("/", "/alerts", "/explore", "/pipeline", "/welcome", "/exchanges/x1", "/apps/shop")
        answers = {path: await w.client.head(path, headers={"accept": "text/html"}) for path in paths}
        away = await w.client.head("/exchanges/none", headers={"accept": "text/html"})
        stream = await w.client.head("/events")
        away, stream = away.status_code, stream.status_code
    assert {path: one.status_code for path, one in answers.items()} == dict.fromkeys(answers, 200)
    assert all(not one.content and one.headers["content-type"].startswith("text/html") for one in answers.values())
    assert away == 404
    assert stream in (404, 405)


async def test_a_period_that_ends_later_ends_now_and_long_lists_say_so(tmp_path):
    async with world(tmp_path) as w:
        for index in range(205):
            await w.add(0.9, app=f"app-{index}", at=time.time() - 1200.0)
        await w.drop(good=60, bad=0)
        pipeline, explore, review, overview = (
            await w.page("/pipeline"),
            await w.page("/explore"),
            await w.page("/review"),
            await w.page("/"),
        )
    times = [one["datetime"] for tag, one in pipeline.elements if tag == "time"][:2]
    assert f"{times[0][:10]} {times[0][11:19]} UTC to" in pipeline.words
    assert times[1] <= time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    assert "Interval shown from 10 labels" in review.words
    assert "no gateway answered" in overview.words
    assert any(one.get("title") == "app-1" for one in overview.all("a"))
    assert len(explore.all("datalist")) == 6
    assert sum(one["value"].startswith("app-") for one in explore.all("option")) == 200


async def test_before_the_first_reading_no_gateway_is_blamed():
    reader = TrafficReader(["http://127.0.0.1:1"], None, stopping=asyncio.Event())
    first = await reader.latest(timeout_s=0.0)
    await reader.read()
    assert (first.read, (await reader.latest(timeout_s=0.0)).gateways) == (False, 0)


async def test_an_exchange_with_sent_passages_says_so_and_long_texts_scroll_in_their_box(tmp_path):
    async with world(tmp_path) as w:
        sample = Sample(
            id="long",
            started_at=time.time() - 60.0,
            app="shop",
            question="x" * 30_000,
            contexts=(Context(text="word " * 2_000), Context(text="short")),
            context_source="explicit",
            response="Two years.",
            capture=CaptureInfo(source="explicit", marker="explicit", confidence=1.0),
        )
        await w.store.add(
            sample, [Evaluation(sample_id="long", metric="faithfulness", version="1", outcome=Score(0.1))]
        )
        page = await w.page("/exchanges/long")
    assert "The app sent question and passages beside the prompt." in page.words
    assert "found by explicit (" not in page.words
    folded = {one["aria-label"]: one for one in page.all("div") if "folded" in one.get("class", "")}
    assert {"Text of the question", "Text of passage 1"} <= folded.keys()
    assert "Text of passage 2" not in folded
    assert all(one["tabindex"] == "0" and one["role"] == "region" for one in folded.values())


def test_patterns_for_everything_are_words():
    config = Config(notifiers=(Notifier(kind="log", name="all"), Notifier(kind="log", name="some")))
    routes = {"all": Route(severities=("*",), apps=("*",)), "some": Route(severities=("page",), apps=("a", "b"))}
    found = receivers_of(config, routes, {})
    assert [one.takes for one in found] == ["all severities, all apps", "severities page, apps a, b"]


def test_edges_that_are_times_can_be_shown_in_local_time():
    drawn = bars([1, 2], title="t", edges=("16:00", "17:00", "18:00"), times=("a", "b", "c"))
    assert 'data-at="a">16:00' in drawn
    assert "data-at" not in bars([1, 2], title="t", edges=("0", "1", "2"))
