"""Explore: every exchange once, page after page, whatever the order; bounded in time; and all of it as a data set."""

from __future__ import annotations

import json
import re
import time

import pytest

from dashboards.web.format import shortened
from dashboards.web.incident.explore_search import Cursor, Walk, cut, everything, search
from dashboards.web.views.explore import selection
from gaugeway.records import Evaluation, Failed, Sample, Score, Skipped
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from gaugeway.storage.stores import Point, Query
from monitors.offline.dataset import read
from tests.support.pages import EVIL, SCRIPTS, world

NOW = 1_760_000_000.0


def point(name, at=NOW, value=0.5, metric="faithfulness"):
    about = {"app": "shop", "model": "m", "reason": "", "rate": 1.0, "outcome": "score"}
    return Point(sample_id=name, started_at=at, metric=metric, value=value, **about)


async def stored(path, count, *, at=lambda n: NOW - n, value=lambda n: (n % 7) / 7, metrics=("faithfulness",)):
    """A store with `count` exchanges of each metric."""
    store = SQLiteStore(path / "some.db")
    for n in range(count):
        sample = Sample(id=f"x{n}", started_at=at(n), app="shop", model="m", question=f"Question {n}?", response="Yes.")
        some = [Evaluation(sample_id=sample.id, metric=one, version="1", outcome=Score(value(n))) for one in metrics]
        await store.add(sample, some)
    return store


async def pages(store, query, wanted=10, budget_s=100.0):
    """The ids of every page, one after the other."""
    after, found = None, []
    for _ in range(100):
        page = await search(store, query, after=after, wanted=wanted, budget_s=budget_s, clock=time.monotonic)
        found.append([one.sample_id for one in page.points])
        after = page.after
        if after is None:
            return found
    raise AssertionError("there is no end")


@pytest.mark.parametrize("order", ["newest", "lowest", "highest"])
@pytest.mark.parametrize("alike", [1, 25])
async def test_pages_hold_every_exchange_once_in_the_order_that_was_asked_for(tmp_path, order, alike):
    """Also when many have the same time and the same score."""

    store = await stored(tmp_path, 95, at=lambda n: NOW - n // alike)
    try:
        query = Query(since=NOW - 1000, until=NOW + 1, metric="faithfulness", order=order)
        found = [one for page in (await pages(store, query)) for one in page]
    finally:
        await store.aclose()
    assert sorted(found) == sorted(f"x{n}" for n in range(95))
    values = [(int(one[1:]) % 7) / 7 for one in found]
    times = [-(int(one[1:]) // alike) for one in found]
    expected = {"newest": sorted(times, reverse=True), "lowest": sorted(values), "highest": sorted(values)[::-1]}
    assert (times if order == "newest" else values) == expected[order]


async def test_the_evaluations_of_an_exchange_stay_on_one_page(tmp_path):
    store = await stored(tmp_path, 30, metrics=("faithfulness", "answer_relevancy", "hallucination"))
    try:
        found = await pages(store, Query(since=NOW - 1000, until=NOW + 1, order="newest"), wanted=10)
    finally:
        await store.aclose()
    assert sorted(one for page in found for one in set(page)) == sorted(f"x{n}" for n in range(30))
    assert all(page.count(one) == 3 for page in found for one in page)


async def test_a_search_that_takes_too_long_says_how_far_it_looked_and_goes_on_from_there(tmp_path):
    store = await stored(tmp_path, 40)
    try:
        query = Query(since=NOW - 64_000, until=NOW + 1, order="newest", text="Question 39?")
        first = await search(store, query, after=None, wanted=10, budget_s=1e-9, clock=time.monotonic)
        rest = await search(store, query, after=first.after, wanted=10, budget_s=9.0, clock=time.monotonic)
    finally:
        await store.aclose()
    assert first.since == pytest.approx(NOW - 900, abs=2)  # the first bite is a quarter of an hour at most
    assert [one.sample_id for one in first.points] == ["x39"]
    assert first.after is not None
    assert (rest.points, rest.after, rest.since) == ([], None, None)


def test_bites_shrink_when_the_store_is_slow_and_grow_when_it_is_not():
    walk = Walk(0.0, 6400.0)
    walk.took(10.0)
    assert (walk.at, walk.next) == (6300.0, 6275.0)
    walk.took(1e-9)
    assert (walk.at, walk.next) == (6275.0, 6175.0)


def test_a_store_that_is_slow_whatever_it_is_asked_is_asked_less_often():
    """And however slow it is, the end comes."""
    walk, bites = Walk(0.0, 6400.0), 0
    while not walk.over:
        walk.took(0.1)
        bites += 1
    assert bites < 70
    walk, bites = Walk(0.0, 6400.0), 0
    while not walk.over:
        walk.took(walk.at - walk.next)
        bites += 1
    assert bites <= 512


def test_a_page_ends_before_an_exchange_that_goes_on():
    points = [point("a", 3.0), point("a", 3.0), point("b", 2.0), point("b", 2.0), point("c", 1.0)]
    page, after = cut(points, 3, "newest")
    assert [one.sample_id for one in page] == ["a", "a"]
    assert after == Cursor(at=3.0, skip=2)
    assert cut(points, 5, "newest") == (points, None)


@pytest.mark.parametrize("text", ["", "1", "1~2", "nan~1~", "1~-1~", "1~1~inf", "1~1e9~", "x~1~1", "1~2~3~4"])
def test_a_cursor_that_is_none_is_left_alone(text):
    assert Cursor.read(text) is None


async def test_what_cannot_be_searched_for_is_said(tmp_path):
    fields = {"least": "2", "tag": "nothing", "since": "yesterday", "order": "lowest"}
    found = selection(fields, NOW)
    assert len(found.problems) == 4
    assert found.query.order == "newest"

    async with world(tmp_path) as w:
        page = await w.page("/explore?least=2&tag=nothing&since=yesterday&order=lowest", 400)
    assert "This filter does not work." in page.words
    assert "choose a metric" in page.words


@pytest.mark.parametrize("since", ["99999999999999999d", "0001-01-01", "9999-12-31"])
async def test_times_beyond_all_calendars_are_refused(tmp_path, since):
    async with world(tmp_path) as w:
        await w.add(0.5)
        assert "This filter does not work." in (await w.page(f"/explore?since={since}", 400)).words


async def test_the_form_narrows_by_everything_at_once(tmp_path):
    async with world(tmp_path) as w:
        for n in range(10):
            about = {"model": f"m{n % 2}", "prompt": "p1" if n < 8 else "p2", "tags": {"tenant": f"t{n % 4}"}}
            await w.add(n / 10, question=f"Number {n}?", **about)
        await w.add(Skipped("no_contexts"), question="Skipped one?")
        await w.add(Failed("timeout"), question="Failed one?")
        fields = "metric=faithfulness&model=m0&prompt=p1&tag=tenant%3Dt2&least=0.1&most=0.9&text=number"
        narrow, skipped, all_of_them = (
            await w.page(f"/explore?{fields}"),
            await w.page("/explore?outcome=skipped"),
            await w.page("/explore"),
        )
    assert re.findall(r"Number \d", narrow.text) == ["Number 2", "Number 6"][::-1]
    assert "skipped: no contexts" in skipped.words
    assert "Number" not in skipped.text
    assert "12 exchanges" in all_of_them.words
    assert "failed: timeout" in all_of_them.words


async def test_lowest_first_needs_a_metric_and_then_is(tmp_path):
    async with world(tmp_path) as w:
        for n in range(60):
            await w.add((n * 7 % 60) / 60, question=f"Number {n * 7 % 60}.")
        first = await w.page("/explore?metric=faithfulness&order=lowest")
        onward = next(one["href"] for one in first.all("a") if one.get("rel") == "next")
        second = await w.page(onward)
    shown = [int(one) for page in (first, second) for one in re.findall(r"Number (\d+)\.", page.text)]
    assert shown == list(range(60))


async def test_scores_have_a_histogram_for_each_metric(tmp_path):
    async with world(tmp_path) as w:
        for n in range(40):
            await w.add(0.9 if n % 4 else 0.2)
            await w.add(0.5, metric="answer_relevancy")
        page = await w.page("/explore")
    said = [one["aria-label"] for one in page.all("svg") if one.get("class") == "filter"]
    assert any(
        one.startswith("Scores of faithfulness. 40 scores") and "the largest bin, 0.90 to 0.95, has 30" in one
        for one in said
    )
    assert len(said) == 3  # and over time
    assert "All 80 scores." in page.words


async def test_nothing_of_the_data_becomes_markup(tmp_path):
    async with world(tmp_path) as w:
        for _ in range(25):
            await w.add(0.5, question=EVIL, app=EVIL, model=EVIL, prompt=EVIL, tags={"release": EVIL})
        await w.look()
        await w.add(Failed(EVIL, EVIL), question=EVIL)
        pages = [await w.page("/explore"), await w.page(f"/explore?text={EVIL}&app={EVIL}", 200)]
    for page in pages:
        scripts = [one.get("src", "").split("?")[0] for one in page.all("script")]
        assert scripts == [*SCRIPTS, "/static/explore.js", "/static/pending.js"]
        assert not page.all("img")
        assert not [one for _, one in page.elements if "onerror" in one]


async def test_the_selection_is_downloaded_as_a_data_set_that_evaluate_reads(tmp_path):
    async with world(tmp_path) as w:
        for n in range(1200):
            await w.add(n % 10 / 10, at=time.time() - n, tags={"half": str(n % 2)}, question=f"Number {n}?")
        await w.add(0.1, skip_reason="error", tags={"half": "0"})
        answer = await w.client.get("/explore/export?tag=half%3D0&least=0.2&metric=faithfulness")
    assert answer.headers["content-disposition"] == 'attachment; filename="gaugeway-exchanges.jsonl"'
    records = [json.loads(line) for line in answer.text.splitlines()]
    assert len(records) == len({one["id"] for one in records}) == 480
    assert {one["tags"]["half"] for one in records} == {"0"}
    assert all(one["scores"]["faithfulness"]["value"] >= 0.2 for one in records)
    path = tmp_path / "set.jsonl"
    path.write_text(answer.text, "utf-8")
    samples, _ = read(path)
    assert len(samples) == 480


async def test_an_export_of_what_cannot_be_searched_for_is_refused(tmp_path):
    async with world(tmp_path) as w:
        assert (await w.client.get("/explore/export?least=7")).status_code == 400


async def test_everything_is_walked_through_once_although_all_began_at_the_same_time(tmp_path):
    store = await stored(tmp_path, 1300, at=lambda n: NOW)
    try:
        query = Query(since=NOW - 1000, until=NOW + 1)
        found = [one.sample_id async for page in everything(store, query, clock=time.monotonic) for one in page]
    finally:
        await store.aclose()
    assert len(found) == len(set(found)) == 1300


async def test_the_login_is_asked_for(tmp_path):
    async with world(tmp_path, token="secret-token") as w:
        assert [(await w.client.get(path)).status_code for path in ("/explore", "/explore/export", "/compare")] == [
            401,
            401,
            401,
        ]


def test_a_long_question_is_shortened():
    assert len(shortened("word " * 100_000)) == 160
    assert shortened(None) == ""


async def test_what_the_filter_shows_is_added_to_a_data_set(tmp_path):
    async with world(tmp_path) as w:
        for n, word in enumerate(("warranty", "museum", "laptop")):
            about = {"question": f"Where is the {word}?", "response": "Here.", "app": "shop" if n else "help"}
            sample = Sample(id=f"x{n}", started_at=time.time() - 60, **about)
            made = Evaluation(sample_id=sample.id, metric="faithfulness", version="1", outcome=Score(0.2))
            await w.store.add(sample, [made])
        page = "/explore?app=shop&metric=faithfulness&below=0.5"
        answer = await w.send(page, "/datasets", name="low")
        assert answer.headers["location"] == "/explore?app=shop&metric=faithfulness&below=0.5&done=kept"
        _, records = await w.datasets.read("low")
        assert sorted(record["id"] for record in records) == ["x1", "x2"]
        assert "/datasets" not in (await w.page("/explore?app=nobody")).text
