"""A view whose queries hang answers with its frame, and with its content once they are done."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time

from dashboards.web.app import VIEWS
from dashboards.web.frame_first import MAX_READING, renders
from gaugeway.runtime.tasks import spawn
from tests.support.browsing import browse
from tests.support.pages import Parsed, world

UNREAD = "nothing of it has been read yet"
ADDRESSES = {
    "/": "/?sort=app",
    "/apps": "/apps?app=..",
    "/apps/{app:path}": "/apps/shop?metric=faithfulness",
    "/alerts/{fingerprint:str}": "/alerts/none",
    "/alerts/{fingerprint:str}/rebaseline": "/alerts/none/rebaseline",
    "/exchanges/{exchange_id:str}": "/exchanges/x1",
    "/exchanges/{exchange_id:str}/preview": "/exchanges/x1/preview",
    "/conversations/{conversation_id:str}": "/conversations/none",
    "/find": "/find?q=two+years",
    "/sources": "/sources?app=shop",
    "/topics": "/topics?app=shop",
    "/compare": "/compare?by=model&a=m-1&b=m-2",
}
"""Addresses of views by their route, where they differ."""

QUERIED = {"/exchanges/{exchange_id:str}", "/exchanges/{exchange_id:str}/preview", "/explore", "/sources", "/topics"}
"""Views that cannot be read before a query has ended; others may have all they show in memory, or wait for a time."""


@contextlib.asynccontextmanager
async def first_world(path, **options):
    async with world(path, **options) as made:
        await made.add(0.9, id="x1")
        yield made


@contextlib.asynccontextmanager
async def hanging(store):
    """Every connection of a store is busy with a query that ends when the block does; yields these queries."""
    ends = threading.Event()
    databases = (store._reader, store._counter, store._writer)  # noqa: SLF001 - all connections a view may use
    queries = [spawn(one.read(lambda _: ends.wait()), name="a query that hangs") for one in databases]
    try:
        yield queries
    finally:
        ends.set()
        await asyncio.gather(*queries)


async def asked(w, path, **headers):
    """The answer to a browser that opens a view."""
    return await w.client.get(path, headers={"accept": "text/html", "prefer": "", **headers})


async def test_every_view_has_a_frame_while_all_queries_hang_and_says_that_it_is_unread(tmp_path):
    async with first_world(tmp_path) as w:
        w.site.grace_s = 0.0
        framed = {}
        routes = {path for view in VIEWS for handler in view(w.site) if renders(handler) for path in handler.paths}
        async with hanging(w.store) as queries:
            for route in sorted(routes):
                answer = await asked(w, ADDRESSES.get(route, route))
                assert not any(query.done() for query in queries)
                page = Parsed(answer.text)
                assert "No scores" not in page.words, route
                framed[route] = UNREAD in page.words
                assert answer.status_code == 200 or not framed[route]
        for route in framed:
            assert UNREAD not in (await asked(w, ADDRESSES.get(route, route), prefer="wait")).text
    assert {route for route, is_framed in framed.items() if is_framed} >= QUERIED


async def test_a_script_waits_for_the_view_that_was_begun_and_the_reload_after_it_gets_the_same(tmp_path):
    async with first_world(tmp_path) as w:
        w.site.grace_s = 0.0
        async with hanging(w.store):
            await asked(w, "/exchanges/x1")
            waiting = spawn(asked(w, "/exchanges/x1", prefer="wait"), name="who waits")
            await asyncio.sleep(0.1)
            assert not waiting.done()
        waited, reloaded = (await waiting).text, (await asked(w, "/exchanges/x1")).text
    assert "Two years." in Parsed(waited).words
    assert waited == reloaded


async def test_a_browser_without_scripts_is_sent_to_the_whole_view(tmp_path):
    async with first_world(tmp_path) as w:
        w.site.grace_s = 0.0
        async with hanging(w.store):
            frame = Parsed((await asked(w, "/exchanges/x1?list=a%3Db")).text)
        (refresh,) = (one["content"] for one in frame.all("meta") if one.get("http-equiv") == "refresh")
        assert frame.elements[frame.elements.index(("meta", {"http-equiv": "refresh", "content": refresh})) - 1] == (
            "noscript",
            {},
        )
        page = await w.page(refresh.removeprefix("0; url="), prefer="")
    assert refresh == "0; url=/exchanges/x1?list=a%3Db&wait=1"
    assert "Two years." in page.words
    assert not [one for one in page.all("a") if "wait=1" in one.get("href", "")]


async def test_nothing_is_shown_before_the_guards_have_passed(tmp_path):
    async def scenario(w):
        w.site.grace_s = 0.0
        stranger, foreign = [await asked(w, "/exchanges/x1", host=host) for host in ("localhost", "elsewhere.example")]
        await asked(w, "/exchanges/x1", host="localhost", prefer="wait")
        return stranger, foreign

    async with first_world(tmp_path / "open") as w:
        _, foreign = await scenario(w)
    async with first_world(tmp_path / "guarded", token="a-token-of-this-test") as w:
        stranger, _ = await scenario(w)
    assert (foreign.status_code, stranger.status_code) == (403, 302)
    assert UNREAD not in foreign.text
    assert stranger.headers["location"].startswith("/login")


async def test_a_view_that_is_missing_says_so_once_it_is_read(tmp_path):
    async with first_world(tmp_path) as w:
        w.site.grace_s = 0.0
        async with hanging(w.store):
            assert UNREAD in (await asked(w, "/exchanges/none")).text
        answer = await asked(w, "/exchanges/none", prefer="wait")
    assert answer.status_code == 404
    assert "No exchange with the id none" in answer.text


async def test_what_was_read_before_a_change_is_not_shown_after_it(tmp_path):
    async with first_world(tmp_path) as w:
        w.site.grace_s = 0.0
        await asked(w, "/explore")
        read = [await asked(w, "/explore", prefer="wait")]
        await w.add(0.4, id="x2", question="How far?")
        read.append(await asked(w, "/explore", prefer="wait"))
        await w.client.post("/exchanges/x1/feedback", data={}, headers={"accept": "text/html"})
        read.append(await asked(w, "/explore", prefer="wait"))
        assert ["How far?" in one.text for one in read] == [False, False, True]


async def test_at_most_so_many_views_are_read_ahead(tmp_path):
    async with first_world(tmp_path) as w:
        w.site.grace_s = 0.0
        async with hanging(w.store):
            for number in range(MAX_READING):
                assert UNREAD in (await asked(w, f"/exchanges/x1?list={number}")).text
            further = spawn(asked(w, "/exchanges/x1?list=further"), name="one too many")
            await asyncio.sleep(0.1)
            assert not further.done()
        assert UNREAD not in (await further).text


def test_a_browser_shows_the_frame_and_then_the_view_by_itself(tmp_path):
    async def prepare(w):
        await w.add(0.9, id="x1")

    def visit(tab, base, _, soon, w):
        gate = threading.Event()

        async def hang():
            w.site.grace_s = 0.0
            databases = (w.store._reader, w.store._counter)  # noqa: SLF001 - all connections a view may use
            w.queries = [spawn(one.read(lambda _: gate.wait()), name="a query that hangs") for one in databases]

        soon(hang())
        try:
            tab.open(f"{base}/exchanges/x1")
            assert UNREAD in tab.run("document.body.innerText")
        finally:
            gate.set()
        shown, deadline = False, time.monotonic() + 60.0
        while not shown:
            assert time.monotonic() < deadline
            with contextlib.suppress(AssertionError):  # the page is being reloaded
                shown = tab.run("Boolean(document.body?.innerText.includes('Two years.'))")
        assert not tab.complaints

    browse(tmp_path, prepare, visit)
