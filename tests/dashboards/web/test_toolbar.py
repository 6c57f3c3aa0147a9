"""The bar under the navigation: where its links lead, and that it works without JavaScript."""

from __future__ import annotations

import hashlib
from importlib.resources import files

import pytest

from dashboards.web.templating import assets
from dashboards.web.toolbar import ALIASES, MAX_APPS, PLACES, VIEWS, app_address, between, time_range, toolbar
from tests.support.pages import world

NOW = 1_790_000_000.0
VENDORED = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "inter.woff2": "3100e775e8616cd2611beecfa23a4263d7037586789b43f035236a2e6fbd4c62",
    "inter.LICENSE.txt": "3b0a5fca3d17942cde889069889dedbbbd075e9b599968c82a95f4d944e9b345",
    "uPlot.LICENSE.txt": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}
"""Files of uPlot 1.6.32 and @fontsource-variable/inter 5.3.0 as npm has them."""


def bar(path="/explore", params=(), *, shown=None, apps=()):
    shown = time_range(dict(params), NOW) if shown is None else shown
    return toolbar(path, list(params), time_range=shown, apps=apps)


@pytest.mark.parametrize("name", VENDORED)
def test_files_of_others_are_the_released_ones(name):
    content = (files("dashboards.web") / "static" / name).read_bytes()
    assert hashlib.sha256(content).hexdigest() == VENDORED[name]


def test_the_style_sheet_names_the_font_as_browsers_may_keep_it():
    shown = assets()
    assert f"inter.woff2?v={shown['inter.woff2'].version}" in shown["page.css"].content.decode()


def test_every_link_keeps_the_other_parameters():
    params = [("app", "shop"), ("metric", "m"), ("since", "1h"), ("after", "9~1~")]
    made = bar(params=params, apps=[("shop", 5), ("other", 9)])
    assert made.presets[0][2] == "/explore?app=shop&metric=m&since=15m"
    assert made.previous_url.startswith("/explore?app=shop&metric=m&since=2026-")
    assert [(name, url) for name, url, _ in made.apps.choices] == [
        ("other", "/explore?metric=m&since=1h&app=other"),
        ("shop", "/explore?metric=m&since=1h&app=shop"),
    ]
    assert [name for name, _, here in made.apps.choices if here] == ["shop"]
    assert made.apps.every_url == "/explore?metric=m&since=1h"
    assert made.kept == [("app", "shop"), ("metric", "m")]


def test_the_link_to_copy_has_fixed_times():
    made = bar(params=[("app", "shop"), ("since", "1h")])
    found = between(NOW - 3600.0, NOW)
    times = {name: text.replace(":", "%3A") for name, text in found.params.items()}
    assert made.link == f"/explore?app=shop&since={times['since']}&until={times['until']}"


def test_the_picker_lists_the_apps_with_the_most_scores_and_counts_the_others():
    apps = [(f"app-{index:03}", index) for index in range(MAX_APPS + 7)]
    picker = bar(apps=[*apps, ("app-000", 10_000)]).apps
    names = [name for name, _, _ in picker.choices]
    assert len(names) == MAX_APPS
    assert picker.more == 7
    assert "app-000" in names
    assert "app-001" not in names


def test_on_the_view_of_an_app_the_picker_leads_to_that_of_another():
    made = bar("/apps/a%20b", [("since", "7d")], apps=[("a b", 1), ("c/d", 1)])
    assert [(url, here) for _, url, here in made.apps.choices] == [
        ("/apps/a%20b?since=7d", True),
        ("/apps/c%2Fd?since=7d", False),
    ]
    assert app_address("/apps/x", [], "") == "/"


def test_every_view_has_a_key_of_its_own():
    assert len({view.key for view in VIEWS}) == len(VIEWS)
    assert {place.key for place in PLACES} <= {view.key for view in VIEWS}


async def test_every_view_is_in_one_place_and_says_where_it_is(tmp_path):
    async with world(tmp_path) as w:
        await w.drop()
        for view in VIEWS:
            links = (await w.page(view.to)).all("a")
            here = [one["href"] for one in links if one.get("aria-current") == "page"]
            place = next(place for place in PLACES if view in (place, *place.views))
            assert set(here) == {view.to} | ({place.to} if view.to == place.to else set()), view.to
            assert {"href": place.to, "aria-current": "page" if view.to == place.to else "true"} in links
            assert all(
                {"href": other.to} | ({} if other is not view else {"aria-current": "page"}) in links
                for other in place.views
            )


async def test_the_address_of_a_place_leads_to_its_first_view_with_the_query(tmp_path):
    async with world(tmp_path) as w:
        await w.drop()
        for path, to in ALIASES.items():
            answer = await w.client.get(path, params={"app": "a b"})
            assert (answer.status_code, answer.headers["location"]) == (302, f"{to}?app=a+b"), path


def test_views_below_a_view_belong_to_its_place():
    held = {
        path: [place.name for place in PLACES if place.has(path)]
        for path in ("/apps/x", "/exchanges/1", "/trials/new", "/")
    }
    assert held == {
        "/apps/x": ["Overview"],
        "/exchanges/1": ["Explore"],
        "/trials/new": ["Versions"],
        "/": ["Overview"],
    }


async def test_the_bar_is_on_every_page_and_the_range_where_there_is_one(tmp_path):
    async with world(tmp_path) as w:
        await w.drop()
        without, with_range = await w.page("/settings"), await w.page("/apps/shop?since=6h")
    assert any(one.get("action") == "/find" for one in without.all("form"))
    assert "Previous period" not in without.words
    assert "Previous period" in with_range.words
    chosen = [one["href"] for one in with_range.all("a") if one.get("aria-current") == "true"]
    assert "/apps/shop?since=6h" in chosen


async def test_nobody_who_is_not_logged_in_sees_the_bar(tmp_path):
    async with world(tmp_path, token="correct horse battery staple") as w:
        await w.drop(app="secret-app")
        answer = await w.client.get("/login", headers={"accept": "text/html"})
    assert "secret-app" not in answer.text
    assert "toolbar" not in answer.text.replace("toolbar.css", "").replace("toolbar.js", "")


async def test_no_element_has_a_style_of_its_own(tmp_path):
    async with world(tmp_path) as w:
        await w.drop()
        pages = [await w.page(path) for path in ("/", "/apps/shop", "/apps/shop?by=model&metric=faithfulness")]
    for page in pages:
        assert all("style" not in attributes for _, attributes in page.elements)
