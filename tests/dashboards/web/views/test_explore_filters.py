"""Explore narrows: by source, session and topic, by a click on a bar or a group, and every filter can be removed."""

from __future__ import annotations

import json
import re
import time
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from dashboards.web.addresses import bad_fields, chips_of
from dashboards.web.incident.groups import distributions, over_time
from dashboards.web.views import explore as explore_view
from gaugeway.records import Context, Score
from gaugeway.storage.stores import Point
from monitors.analysis.human_labels import default_passing
from monitors.analysis.incident.differences import cutoff_of
from tests.support.pages import EVIL, world

NOW = 1_760_000_000.0


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Topics may take longer than a page waits for them: these tests wait."""
    monkeypatch.setattr(explore_view, "TOPICS_S", 60.0)


def shown(page):
    return [
        urlsplit(one["href"]).path.removeprefix("/exchanges/")
        for one in page.all("a")
        if one.get("href", "").startswith("/exchanges/")
    ]


def fields_of(address):
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}


def point(value, at=NOW, metric="faithfulness"):
    about = {"app": "shop", "model": "m", "reason": "", "rate": 1.0, "outcome": "score"}
    return Point(sample_id=f"{value}-{at}", started_at=at, metric=metric, value=value, **about)


async def traffic(w):
    """60 exchanges: three sources, two subjects, sessions of three."""
    now = time.time()
    for n in range(60):
        subject = "refund of a returned order" if n % 2 else "charger for the laptop"
        await w.add(
            (n % 10) / 10,
            at=now - 60.0 - n,
            id=f"e{n}",
            question=f"What about the {subject} {n}?",
            contexts=(Context(text="t", id=f"doc-{n % 3}.md"),),
            context_source="explicit",
            session=f"s-{n // 3}",
            prompt="p-a" if n < 40 else "p-b",
        )


async def test_a_source_and_a_session_select_their_exchanges(tmp_path):
    async with world(tmp_path) as w:
        await traffic(w)
        by_source = await w.page("/explore?metric=faithfulness&source=doc-1.md&most=0.45")
        by_session = await w.page("/explore?session=s-4")
        export = await w.client.get("/explore/export?source=doc-2.md&metric=faithfulness")
        by_source, by_session, exported = shown(by_source), shown(by_session), export.text
    assert set(by_source) == {f"e{n}" for n in range(60) if n % 3 == 1 and n % 10 <= 4}
    assert set(by_session) == {"e12", "e13", "e14"}
    assert {json.loads(one)["id"] for one in exported.splitlines()} == {f"e{n}" for n in range(60) if n % 3 == 2}


async def test_a_passage_without_id_and_source_is_found_by_its_hash(tmp_path):
    async with world(tmp_path) as w:
        for n in range(6):
            text = "Returns within 30 days." if n % 2 else "Chargers have 65 W."
            await w.add(n / 10, id=f"e{n}", contexts=(Context(text=text),), context_source="prompt")
        groups = await w.page("/explore?metric=faithfulness&group=source")
        links = [one["href"] for one in groups.all("a") if "source=text" in one.get("href", "")]
        pages = [await w.page(one) for one in links]
        export = await w.client.get(links[0].replace("/explore?", "/explore/export?"))
        lists, exported = [sorted(shown(one)) for one in pages], export.text
    assert sorted(lists) == [["e0", "e2", "e4"], ["e1", "e3", "e5"]]
    assert sorted(json.loads(one)["id"] for one in exported.splitlines()) in lists


async def test_topics_are_grouped_and_each_leads_to_its_exchanges(tmp_path):
    async with world(tmp_path) as w:
        await traffic(w)
        groups = await w.page("/explore?metric=faithfulness&group=topic")
        links = [one["href"] for one in groups.all("a") if fields_of(one.get("href", "")).get("topic")]
        lists = {fields_of(one)["topic"]: sorted(shown(await w.page(one))) for one in links}
    assert "By topic" in groups.words
    refunds = next(some for topic, some in lists.items() if "refund" in topic or "order" in topic)
    assert refunds
    assert all(int(one[1:]) % 2 for one in refunds)
    assert sum(map(len, lists.values())) == 60


async def test_a_topic_that_is_none_is_said(tmp_path):
    async with world(tmp_path) as w:
        await traffic(w)
        page = await w.page("/explore?metric=faithfulness&topic=topic%3Aweather")
    assert "This time range has no such topic" in page.words
    assert not shown(page)


@pytest.mark.parametrize(("field", "groups"), [("source", 3), ("session", 20), ("prompt", 2), ("model", 1)])
async def test_groups_have_number_mean_and_interval(tmp_path, field, groups):
    async with world(tmp_path) as w:
        await traffic(w)
        page = await w.page(f"/explore?metric=faithfulness&group={field}")
        links = [
            one["href"]
            for one in page.all("a")
            if fields_of(one.get("href", "")).get(field) and one["href"].startswith("/explore?")
        ]
        first = shown(await w.page(links[0]))
    assert f"By {field}" in page.words
    assert len(set(links)) == groups
    assert first
    assert "group" not in fields_of(links[0])
    if field == "source":
        assert re.search(r"doc-0\.md 20 0\.\d\d ?0\.\d\d to 0\.\d\d", page.words)


def test_every_active_filter_can_be_removed():
    given = {"app": "shop", "metric": "m", "least": "0.5", "most": "0.749999999", "since": "1h", "topic": "topic:a, b"}
    chips = {one.name: one for one in chips_of(given)}
    assert set(chips) == {"app", "metric", "topic", "score from", "score up to"}
    assert chips["topic"].value == "a, b"
    assert chips["score up to"].value == "just below 0.75"
    for one in chips.values():
        kept = fields_of(one.url)
        assert len(kept) == len(given) - 1
        assert kept["since"] == "1h"


async def test_a_click_on_a_bar_selects_just_its_scores(tmp_path):
    async with world(tmp_path) as w:
        for n in range(40):
            await w.add([0.7, 0.72, 0.75, 1.0][n % 4], id=f"e{n}")
        page = await w.page("/explore?metric=faithfulness")
        bars = [one for one in page.all("a") if re.match(r"0\.\d\d to 1?0?\.\d\d: ", one.get("aria-label", ""))]
        assert {one["aria-label"]: len(shown(await w.page(one["href"]))) for one in bars} == {
            "0.70 to 0.75: 20 scores": 20,
            "0.75 to 0.80: 10 scores": 10,
            "0.95 to 1.00: 10 scores": 10,
        }


async def test_a_click_on_a_time_selects_its_exchanges(tmp_path):
    async with world(tmp_path) as w:
        now = time.time()
        for n in range(30):
            await w.add(0.5, at=now - 100 * n - 10, id=f"e{n}")
        page = await w.page("/explore?metric=faithfulness&since=1h")
        bars = [one["href"] for one in page.all("a") if "Z to 2" in one.get("aria-label", "")]
        found = [one for bar in bars for one in shown(await w.page(bar))]
    assert sorted(found) == sorted(f"e{n}" for n in range(30))


def test_bars_count_every_score_once():
    points = [point(n / 100, at=NOW + 37 * n) for n in range(101)]
    (chart,) = distributions(points, {}, default_passing, 6)
    assert sum(one.n for one in chart.bars) == 101
    assert [one.n for one in chart.bars][-1] == 6  # 0.95 to 1.00, both included
    assert sum(one.low for one in chart.bars) == sum(
        not default_passing("faithfulness").passes(n / 100) for n in range(101)
    )
    timed = over_time(points, NOW, NOW + 3800, {}, default_passing)
    assert sum(one.n for one in timed.bars) == 101
    assert len(timed.bars) <= 42
    assert over_time([], NOW, NOW + 1, {}, default_passing) is None


async def test_filters_do_not_become_markup(tmp_path):
    async with world(tmp_path) as w:
        for n in range(30):
            await w.add(
                0.1 * (n % 10),
                question=f"{EVIL} refund {n}",
                app=EVIL,
                contexts=(Context(text=EVIL, id=EVIL),),
                context_source="explicit",
                session=EVIL,
                prompt=EVIL,
            )
        base = {"app": EVIL, "metric": "faithfulness", "source": EVIL, "session": EVIL, "text": EVIL}
        pages = [await w.page(f"/explore?{urlencode(base)}")]
        groups = [{"metric": "faithfulness", "group": field} for field in explore_view.GROUPED_BY]
        pages += [await w.page(f"/explore?{urlencode(one)}") for one in groups]
        pages.append(await w.page(f"/explore?{urlencode({'topic': EVIL, 'group': EVIL})}"))
        pages.append(await w.page(f"/explore?{urlencode({'least': EVIL, 'order': EVIL, 'tag': EVIL})}", 400))
    for page in pages:
        assert all("src" in one for one in page.all("script"))
        assert not page.all("img")
        assert not [one for _, one in page.elements if "onerror" in one]
        assert not [one for one in page.all("a") if one["href"].startswith("javascript")]


async def test_a_preview_sums_an_exchange_up(tmp_path):
    async with world(tmp_path) as w:
        evidence = ({"claim": "Two years.", "verdict": "contradicted"},)
        await w.add(
            Score(0.1, "", evidence),
            id="x",
            question=f"How long? {EVIL}",
            response=f"{EVIL} {'word ' * 1000}",
            contexts=(Context(text=EVIL, id=EVIL),),
        )
        missing = await w.client.get("/exchanges/nothing/preview", headers={"accept": "text/html"})
        page, missing = await w.page("/exchanges/x/preview"), missing.status_code
    assert missing == 404
    assert "✗ faithfulness 0.10 fail" in page.words
    assert "Two years." in page.words
    assert "more characters" in page.words
    assert not page.all("img")
    assert not page.all("script")
    assert not page.all("html")


async def test_the_preview_asks_for_the_login(tmp_path):
    async with world(tmp_path, token="secret-token") as w:
        await w.add(0.5, id="x")
        assert (await w.client.get("/exchanges/x/preview")).status_code == 401


@pytest.mark.parametrize("threshold", [0.7, 0.5, 0.85, 0.1])
@pytest.mark.parametrize("flipped", [False, True])
def test_a_link_to_what_fails_a_threshold_names_the_threshold(threshold, flipped):
    cutoff = cutoff_of([], threshold=threshold, flipped=flipped, before=None, since=None)
    name = "above" if flipped else "below"
    assert bad_fields(cutoff) == {name: f"{threshold:g}"}
    query = explore_view.selection(bad_fields(cutoff) | {"metric": "m"}, NOW).query
    assert (query.least if flipped else query.most) == cutoff.value
    (chip,) = chips_of(bad_fields(cutoff))
    assert (chip.name, chip.value, chip.url) == (f"score {name}", f"{threshold:g}", "/explore")


async def test_strict_and_closed_bounds_hold_together(tmp_path):
    async with world(tmp_path) as w:
        for n in range(10):
            await w.add(n / 10, id=f"e{n}")
        below = await w.page("/explore?metric=faithfulness&below=0.7&least=0.3")
        form = below.form("/explore")
        below, above = shown(below), shown(await w.page("/explore?metric=faithfulness&above=0.7&most=0.8"))
    assert sorted(below) == ["e3", "e4", "e5", "e6"]
    assert form["below"] == "0.7"
    assert above == ["e8"]


async def test_a_filter_that_the_menu_adds_becomes_part_of_the_address(tmp_path):
    async with world(tmp_path) as w:
        await traffic(w)
        page = await w.page("/explore?app=shop&columns=model&since=1h")
        kept = {"app": "shop", "since": "1h", "columns": "model"}
        answer = await w.client.get("/explore", params=kept | {"field": "source", "value": " doc-1.md "})
        odd = await w.client.get("/explore", params={"field": "//evil.example", "value": "x"})
    hidden = {(one["name"], one["value"]) for one in page.all("input") if one.get("type") == "hidden"}
    assert hidden >= set(kept.items())
    assert fields_of(answer.headers["location"]) == kept | {"source": "doc-1.md"}
    assert odd.status_code == 200


@pytest.mark.parametrize(("metric", "below"), [("faithfulness", "0.7"), ("", None), ("contexts_per_answer", None)])
async def test_one_click_leaves_the_failing_scores_of_a_metric(tmp_path, metric, below):
    async with world(tmp_path) as w:
        await traffic(w)
        page = await w.page(f"/explore?metric={metric}&since=1h")
        links = {one["href"] for one in page.all("a") if one.get("class") == "chip add"}
        assert {fields_of(one).get("below") for one in links} == ({below} if below else set())
        for one in links:
            assert set(shown(await w.page(one))) == {f"e{n}" for n in range(60) if n % 10 < 7}


@pytest.mark.parametrize(
    ("given", "headings"),
    [
        ("", ["Question", "Scores", "App", "Model", "Started"]),
        ("app=shop", ["Question", "Scores", "Model", "Started"]),
        ("metric=faithfulness&columns=started,session,scores", ["Question", "faithfulness", "Session", "Started"]),
        ("columns=passages&columns=nothing&columns=tokens", ["Question", "Passages", "Tokens"]),
        ("columns=nothing", ["Question", "Scores", "App", "Model", "Started"]),
    ],
)
async def test_the_columns_are_those_of_the_address_that_are_known(tmp_path, given, headings):
    async with world(tmp_path) as w:
        await traffic(w)
        page = await w.page(f"/explore?{given}")
    heading, first, *_ = next(table for table in page.tables if table[0][0][-1] == "Question")
    assert [words.strip() for *_, words in heading] == headings
    if "session" in given:
        assert first[2][-1].strip() == "s-0"
    if "passages" in given:
        assert [words.strip() for *_, words in first[1:]] == ["1", "\N{EN DASH}"]


async def test_failures_of_the_same_question_are_one_row_and_each_is_in_it(tmp_path):
    async with world(tmp_path) as w:
        for n in range(9):
            about = {"question": ("How large is it?", "how large  IS it")[n % 2], "app": "bank" if n == 8 else "shop"}
            await w.add(0.9 if n == 7 else 0.1, id=f"e{n}", at=time.time() - 60 - n, **about)
        page = await w.page("/explore?metric=faithfulness")
    assert "7 like this" in page.words
    assert page.words.count("like this") == 1
    rows = next(table for table in page.tables if table[0][0][-1] == "Question")
    assert len(rows) == 1 + 3
    assert shown(page) == ["e0", "e1", "e2", "e3", "e4", "e5", "e6", "e7", "e8"]
    assert "9 exchanges" in page.words
