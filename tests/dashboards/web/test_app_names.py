"""Every app has an address that works, whatever its name."""

from __future__ import annotations

import asyncio

import pytest

from dashboards.web.addresses import app_page
from tests.support.browsing import browse, until
from tests.support.pages import EVIL, world

NAMES = (
    *("../../etc/passwd", "..", ".", "a/./b", "a//b", "/a", "a/", "team/shop", "%2e%2e/x", "..\\x", "a b?c#d&e=f;g"),
    *(EVIL, "Größe/日本", "x" * 200),
)


def test_the_overview_and_the_app_picker_lead_to_every_app_in_a_browser(tmp_path):
    async def prepare(w):
        for name in NAMES:
            for _ in range(12):
                await w.add(0.9, app=name)
        await w.look()

    def visit(tab, base, _, soon, w):
        for view in ("/", "/apps/team%2Fshop", "/apps?app=.."):
            selector = "#rows tbody th a" if view == "/" else "#apps-listed [data-app] a"
            tab.open(f"{base}{view}")
            links = tab.run(f"[...document.querySelectorAll({selector!r})].map(one => [one.textContent, one.href])")
            assert {name for name, _ in links} == set(NAMES)
            for name, url in links:
                tab.open(url, settle_s=0.0)
                assert tab.run("document.querySelector('h1').firstChild.textContent.trim()") == name, (view, url)
                assert not tab.complaints, (view, url)

    browse(tmp_path, prepare, visit)


def test_the_view_of_such_an_app_keeps_it_in_every_link_and_form(tmp_path):
    async def prepare(w):
        for _ in range(12):
            await w.add(0.9, app="../x")
            await w.add(0.9, app="shop")
        await w.look()

    def visit(tab, base, _, soon, w):
        tab.open(f"{base}/apps?app=..%2Fx&since=6h")
        tab.run("document.querySelector('nav[aria-label=\"Time range\"] a').click()")
        until(tab, "new URLSearchParams(location.search).get('since') === '15m'")
        assert tab.run("document.querySelector('h1').firstChild.textContent.trim()") == "../x"
        tab.run("document.querySelector('form[aria-label=Breakdown] button').click()")
        until(tab, "location.hash === '#slices'")
        assert tab.run("document.querySelector('h1').firstChild.textContent.trim()") == "../x"
        tab.run("document.getElementById('picked-app').value = 'shop'")
        tab.run("document.querySelector('#app-picker form button').click()")
        until(tab, "location.pathname === '/apps/shop'")
        assert tab.run("new URLSearchParams(location.search).get('since')") == "15m"
        assert not tab.complaints

    browse(tmp_path, prepare, visit)


@pytest.mark.parametrize("name", ["shop", "../x"])
async def test_an_unknown_app_is_not_found_and_a_typed_one_is_sought(tmp_path, name):
    async with world(tmp_path) as w, asyncio.timeout(30):
        await w.drop(app="known")
        for address, fields in ((app_page(name), None), ("/apps", {"app": name})):
            while True:  # an app is unknown once the store was read
                answer = await w.client.get(address, params=fields, follow_redirects=True)
                if answer.status_code == 404:
                    break
                assert answer.status_code == 200
