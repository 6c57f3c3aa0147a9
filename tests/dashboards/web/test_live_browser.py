"""Live updates in a real Chromium: any number of tabs share one stream, and a view says "live" only if it is."""

from __future__ import annotations

import contextlib
import time
from urllib.parse import quote

import pytest

from dashboards.web import events
from tests.dashboards.web.test_browser import fired, nothing
from tests.support.browsing import browse, until
from tests.support.pages import EVIL

LIVE = "document.getElementById('live')?.textContent.trim()"
NO_LOCKS = "Object.defineProperty(Navigator.prototype, 'locks', { value: undefined });"
NO_CHANNEL = "delete window.BroadcastChannel;"
APP = f"/apps/{quote(EVIL, safe='')}"
STATIC = "Reload to update."


@pytest.fixture
def streams(monkeypatch):
    """The open streams; the server notices a change within a fifth of a second."""
    monkeypatch.setattr(events, "LOOK_S", 0.2)
    found, news = set(), events._news  # noqa: SLF001 - counts what is open

    async def counted(site, request, open_streams):
        me = object()
        found.add(me)
        try:
            async with contextlib.aclosing(news(site, request, open_streams)) as messages:
                async for one in messages:
                    yield one
        finally:
            found.discard(me)

    monkeypatch.setattr(events, "_news", counted)
    return found


def visible(tab):
    """Have a tab be visible beside others, as a window beside windows."""
    tab.ask("Emulation.setFocusEmulationEnabled", enabled=True)
    return tab


def become(found, count, within_s=20.0):
    deadline = time.monotonic() + within_s
    while len(found) != count:
        assert time.monotonic() < deadline, len(found)
        time.sleep(0.05)


def test_nine_tabs_share_one_stream_and_all_of_them_follow(tmp_path, streams):
    def visit(tab, base, _, soon, w):
        with contextlib.ExitStack() as opened:
            tabs = [tab, *(opened.enter_context(tab.another()) for _ in range(8))]
            for one in map(visible, tabs):
                one.open(f"{base}/alerts")
                until(one, f"{LIVE} === 'Updates automatically.'")
            become(streams, 1)
            tab.open("about:blank")  # it had the stream: another tab takes over
            become(streams, 1)
            soon(w.drop())
            for one in tabs[1:]:
                until(one, "document.querySelector('#open').innerText.includes('faithfulness')")
                assert not one.complaints

    browse(tmp_path, nothing, visit)


@pytest.mark.parametrize("script", ["", NO_LOCKS, NO_CHANNEL])
def test_a_hidden_tab_holds_no_stream_and_catches_up_when_it_is_shown(tmp_path, streams, script):
    def visit(tab, base, _, soon, w):
        tab.ask("Page.addScriptToEvaluateOnNewDocument", source=script)
        tab.open(f"{base}/alerts")
        until(tab, f"{LIVE} === 'Updates automatically.'")
        become(streams, 1)
        with tab.another():  # in front of the first
            until(tab, "document.hidden")
            become(streams, 0)
            soon(w.drop())
            tab.run("new Promise(done => setTimeout(done, 1000))")
            assert "faithfulness" not in tab.run("document.querySelector('#open').innerText")
            tab.ask("Page.bringToFront")
            until(tab, "document.querySelector('#open').innerText.includes('faithfulness')")
            become(streams, 1)
        assert not tab.complaints

    browse(tmp_path, nothing, visit)


def test_what_happens_while_the_stream_changes_hands_is_not_missed(tmp_path, streams):
    def visit(tab, base, _, soon, w):
        with tab.another() as second:
            for one in (visible(tab), visible(second)):
                one.open(f"{base}/alerts")
                until(one, f"{LIVE} === 'Updates automatically.'")
            # The second tab gets the lock a second late, and the alert fires before that.
            second.run(
                "window.begin = EventSource; window.EventSource = function (address) {"
                " const one = new EventTarget(); one.close = () => {}; one.readyState = 2;"
                " const fail = () => { window.EventSource = window.begin; one.dispatchEvent(new Event('error')); };"
                " setTimeout(fail, 1000);"
                " return one; }"
            )
            tab.open("about:blank")
            become(streams, 0)
            soon(w.drop())
            until(second, "document.querySelector('#open').innerText.includes('faithfulness')")

    browse(tmp_path, nothing, visit)


def test_a_view_says_that_it_updates_only_if_it_does(tmp_path, streams):
    def visit(tab, base, alert, soon, w):
        found = {}
        for path in (
            *("/", "/alerts", f"/alerts/{alert.fingerprint}", "/pipeline", "/welcome", APP),
            *("/explore", "/sources", "/topics", "/compare", "/settings", "/conversations", "/review", "/prompts"),
            *("/pipeline?since=2h&until=1h", "/nowhere"),
        ):
            tab.open(f"{base}{path}")
            if path in ("/", "/alerts"):
                until(tab, f"{LIVE} === 'Updates automatically.'")
            words = tab.run(f"({LIVE}) ?? ''")
            paused = tab.run("!document.getElementById('pause').hidden")
            found[path] = words, paused
        tab.open(f"{base}/explore")
        tab.run("document.querySelector('#live a').click()")
        until(tab, "location.pathname === '/explore'")
        return alert, found

    alert, found = browse(tmp_path, fired, visit)
    live = ("Updates automatically.", True)
    assert found["/"] == found["/alerts"] == found["/pipeline"] == live
    assert found["/welcome"] == ("Updates automatically.", False)
    charts = ("Charts and alerts update automatically; reload for the rest.", True)
    assert found[APP] == found[f"/alerts/{alert.fingerprint}"] == charts
    for path in ("/explore", "/sources", "/topics", "/compare", "/settings", "/conversations", "/review", "/prompts"):
        assert found[path] == (STATIC, False), path
    assert found["/pipeline?since=2h&until=1h"] == (STATIC, False)
    assert found["/nowhere"] == ("", False)


def test_the_time_of_a_view_that_does_not_update_stays(tmp_path, streams):
    def visit(tab, base, _, soon, w):
        tab.open(f"{base}/sources")
        read = tab.run("document.querySelector('footer time').dateTime")
        become(streams, 1)  # for the number of firing alerts in the navigation
        soon(w.drop())
        until(tab, "document.querySelector('#firing').innerText.includes('1')")
        assert tab.run("document.querySelector('footer time').dateTime") == read
        assert not tab.complaints

    browse(tmp_path, nothing, visit)
