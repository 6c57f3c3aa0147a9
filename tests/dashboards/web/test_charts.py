"""Charts and toolbar in a real Chromium: pointer, keyboard, schemes and widths."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from benchmarks.page.accessibility import RUN
from monitors.analysis.series import STEPS_S
from tests.support.browsing import browse, until
from tests.support.product import needs

pytestmark = pytest.mark.full
DRAWN = """document.querySelector('.chart-live .u-over') !== null
  && !document.querySelector('.chart-note').textContent.includes('Still reading')"""
PATH = "/apps/shop?since=6h&metric=faithfulness"


async def scored(w):
    await w.drop(good=600, bad=200, minutes=300)
    await w.drop(app="other", good=30, bad=0)
    await w.look()


def opened(tab, base, path=PATH):
    tab.open(f"{base}{path}")
    until(tab, DRAWN)


def query(tab):
    return {name: values[0] for name, values in parse_qs(urlsplit(tab.run("location.href")).query).items()}


def place(tab, share, selector=".chart-live .u-over"):
    """A point of the first chart's plot."""
    box = tab.run(
        f"""(() => {{ const one = document.querySelector({selector!r}); one.scrollIntoView({{block: 'center'}});
        const {{x, y, width, height}} = one.getBoundingClientRect(); return [x, y, width, height]; }})()"""
    )
    return box[0] + share * box[2], box[1] + box[3] / 2


def mouse(tab, kind, at):
    pressed = {"button": "left", "clickCount": 1} if kind != "mouseMoved" else {}
    tab.ask("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], **pressed)


def press(tab, key, **more):
    text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
    tab.ask("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=CODES.get(key, 0), **text, **more)
    tab.ask("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=CODES.get(key, 0), **more)


def painted(tab, colour):
    """How many pixels of the first chart have a colour, but for rounding."""
    return tab.run(
        f"""(() => {{ const one = document.querySelector('.chart-plot canvas'), wanted = {list(colour)};
        const all = one.getContext('2d').getImageData(0, 0, one.width, one.height).data; let found = 0;
        for (let i = 0; i < all.length; i += 4)
          if (all[i + 3] === 255 && wanted.every((value, at) => Math.abs(value - all[i + at]) <= 2)) found += 1;
        return found; }})()"""
    )


CODES = {"Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39, "Tab": 9}
SHIFT = 8


def test_a_drag_zooms_by_the_address_and_back_returns(tmp_path):
    def visit(tab, base, _, soon, w):
        opened(tab, base)
        start, end = place(tab, 0.4), place(tab, 0.7)
        for kind, at in (("mouseMoved", start), ("mousePressed", start), ("mouseMoved", end), ("mouseReleased", end)):
            mouse(tab, kind, at)
        until(tab, "location.search.includes('until=')")
        found = query(tab)
        until(tab, DRAWN)
        assert found["metric"] == "faithfulness"
        since, ends = (time.mktime(time.strptime(found[name], "%Y-%m-%dT%H:%M:%SZ")) for name in ("since", "until"))
        assert 0.25 * 6 * 3600 < ends - since < 0.39 * 6 * 3600
        assert tab.run("document.querySelector('.chart-live').dataset.series").endswith(
            tab.run(
                "new URLSearchParams({since: new URLSearchParams(location.search).get('since'),"
                " until: new URLSearchParams(location.search).get('until')}).toString()"
            )
        )
        tab.run("history.back()")
        until(tab, f"location.search === '?since=6h&metric=faithfulness' && {DRAWN}")
        assert not tab.complaints

    browse(tmp_path, scored, visit)


def test_a_click_on_a_point_opens_its_exchanges(tmp_path):
    def visit(tab, base, _, soon, w):
        opened(tab, base)
        at = place(tab, 0.6)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            mouse(tab, kind, at)
        until(tab, "location.pathname === '/explore' && document.readyState === 'complete'")
        found = query(tab)
        assert (found["app"], found["metric"]) == ("shop", "faithfulness")
        since, ends = (time.mktime(time.strptime(found[name], "%Y-%m-%dT%H:%M:%SZ")) for name in ("since", "until"))
        assert ends - since in STEPS_S
        assert not tab.complaints

    browse(tmp_path, scored, visit)


def test_a_click_where_there_is_no_point_opens_nothing(tmp_path):
    """The traffic began an hour after the range does; the nearest point counts within some pixels."""

    def visit(tab, base, _, soon, w):
        opened(tab, base)
        tab.run("window.stays = true")
        for share in (0.03, 0.1):
            for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
                mouse(tab, kind, place(tab, share))
        time.sleep(0.5)
        assert tab.run("window.stays === true && location.pathname") == "/apps/shop"
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            mouse(tab, kind, place(tab, 0.9))
        until(tab, "location.pathname === '/explore' && document.readyState === 'complete'")
        assert "No stored exchange" not in tab.run("document.body.textContent")
        assert not tab.complaints

    browse(tmp_path, scored, visit)


def test_a_chart_works_by_keyboard_alone(tmp_path):
    def visit(tab, base, _, soon, w):
        opened(tab, base)
        tab.run("document.querySelector('.chart-plot').focus()")
        said = "document.activeElement.getAttribute('aria-valuetext')"
        press(tab, "End")
        last = tab.run(said)
        press(tab, "ArrowLeft")
        before = tab.run(said)
        assert last != before
        assert "scores" in before
        press(tab, "ArrowLeft", modifiers=SHIFT)
        press(tab, "ArrowLeft", modifiers=SHIFT)
        assert tab.run(said).startswith("selected ")
        press(tab, "Escape")
        press(tab, "ArrowRight")
        assert not tab.run(said).startswith("selected ")
        press(tab, "ArrowLeft", modifiers=SHIFT)
        press(tab, "Enter")
        until(tab, f"location.search.includes('until=') && {DRAWN}")
        tab.run("document.querySelector('.chart-plot').focus()")
        press(tab, "Home")
        press(tab, "Enter")
        until(tab, "location.pathname === '/explore'")
        assert not tab.complaints

    browse(tmp_path, scored, visit)


def test_the_table_behind_a_chart_has_its_numbers(tmp_path):
    def visit(tab, base, _, soon, w):
        opened(tab, base)
        tab.run("document.querySelector('.chart-table summary').click()")
        until(tab, "document.querySelectorAll('.chart-table tbody tr').length > 10")
        counts = tab.run("[...document.querySelectorAll('.chart-table')][0].innerText.match(/\\d+$/gm).map(Number)")
        whole = tab.run("fetch(document.querySelector('.chart-live').dataset.series).then(one => one.json())")
        assert sum(counts) == whole["groups"][0]["n"] == 800
        assert tab.run("document.querySelector('.chart-fallback').hidden")
        assert not tab.complaints

    browse(tmp_path, scored, visit)


def test_a_chart_that_cannot_be_read_leaves_what_the_server_drew(tmp_path):
    def visit(tab, base, _, soon, w):
        tab.ask("Network.setBlockedURLs", urls=["*/api/series*"])
        drawn, deadline = False, time.monotonic() + 60.0
        while not drawn:  # a busy machine reads it in several views
            assert time.monotonic() < deadline
            tab.open(f"{base}{PATH}")
            until(tab, "document.body.innerText.includes('The chart could not be read')")
            drawn = tab.run("document.querySelector('.chart-live svg.chart') !== null")

    browse(tmp_path, scored, visit)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_charts_fit_every_width_and_follow_the_scheme(tmp_path, width, scheme):
    def visit(tab, base, _, soon, w):
        tab.look(width, scheme)
        opened(tab, base)
        assert tab.run("document.documentElement.scrollWidth - innerWidth") <= 0
        assert tab.run("[...document.querySelectorAll('.chart-plot')].every(one => one.clientWidth <= innerWidth)")
        accent = {"light": (47, 111, 181), "dark": (106, 169, 240)}
        other = "dark" if scheme == "light" else "light"
        assert painted(tab, accent[scheme]) > 50
        assert painted(tab, accent[other]) == 0
        tab.look(width, other)
        tab.run("new Promise(done => setTimeout(done, 200))")
        assert painted(tab, accent[other]) > 50
        assert painted(tab, accent[scheme]) == 0
        sizes = "[...document.querySelectorAll('.chart-live *')].map(one => parseFloat(getComputedStyle(one).fontSize))"
        assert min(tab.run(sizes)) >= 11
        assert [one for one in tab.complaints if "getImageData" not in one] == []  # that was ours

    browse(tmp_path, scored, visit)


def test_times_are_local_when_asked_for_and_stay_so(tmp_path):
    def visit(tab, base, _, soon, w):
        tab.ask("Emulation.setTimezoneOverride", timezoneId="Asia/Tokyo")
        tab.open(f"{base}/alerts")
        time_ = "document.querySelector('main time')"
        utc = tab.run(f"{time_}.textContent")
        assert utc.endswith("UTC")
        tab.run("document.getElementById('zone-switch').click()")
        expected = "(at => new Date(at.getTime() + 9 * 3600e3).toISOString().slice(0, 19).replace('T', ' '))"
        assert tab.run(f"{time_}.textContent").startswith(tab.run(f"{expected}(new Date({time_}.dateTime))"))
        assert "local (Asia/Tokyo)" in tab.run("document.querySelector('footer').textContent")
        tab.open(f"{base}/")
        clock = "new Date(one.dateTime).toLocaleTimeString('en-GB', {hour: '2-digit', minute: '2-digit'})"
        shown, hour = tab.run(f"(one => [one.textContent, {clock}])(document.querySelector('#banner time'))")
        assert shown[:1].isalpha()
        assert shown.endswith(hour)
        opened(tab, base)
        assert tab.run("document.documentElement.dataset.zone") == "local"
        assert tab.run("document.getElementById('zone-switch').getAttribute('aria-pressed')") == "true"
        tab.run("document.getElementById('zone-switch').click()")
        tab.open(f"{base}/alerts")
        assert tab.run(f"{time_}.textContent") == utc
        assert "Times are UTC." in tab.run("document.querySelector('footer').textContent")
        assert not tab.complaints

    browse(tmp_path, scored, visit)


def test_the_copied_link_shows_the_same_time_later(tmp_path):
    def visit(tab, base, _, soon, w):
        permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"]
        tab.ask("Browser.grantPermissions", permissions=permissions, origin=base)
        tab.ask("Emulation.setFocusEmulationEnabled", enabled=True)
        opened(tab, base)
        tab.run("document.getElementById('copy-link').click()")
        until(tab, "document.getElementById('copy-link').textContent === 'Copied'", within_s=15)
        link = tab.run("navigator.clipboard.readText()")
        found = parse_qs(urlsplit(link).query)
        assert link.startswith(f"{base}/apps/shop?")
        assert found["metric"] == ["faithfulness"]
        assert found["since"][0].endswith("Z")
        assert found["until"][0].endswith("Z")
        assert not tab.complaints

    browse(tmp_path, scored, visit)


def test_pause_stops_updates_until_resumed(tmp_path, monkeypatch):
    from dashboards.web import events

    monkeypatch.setattr(events, "LOOK_S", 0.2)

    def visit(tab, base, _, soon, w):
        tab.open(f"{base}/")
        until(tab, "document.getElementById('live').textContent === 'Updates automatically.'")
        tab.run("document.getElementById('pause').click()")
        until(tab, "document.getElementById('live').textContent.startsWith('Paused')")
        soon(w.drop(app="later", good=40, bad=0))
        tab.run("new Promise(done => setTimeout(done, 1500))")
        assert "later" not in tab.run("document.querySelector('main').innerText")
        tab.run("document.getElementById('pause').click()")
        until(tab, "document.querySelector('main').innerText.includes('later')")
        assert not tab.complaints

    browse(tmp_path, scored, visit)


def test_keys_search_move_and_lead_to_views_but_not_while_typing(tmp_path):
    def visit(tab, base, _, soon, w):
        tab.open(f"{base}/")
        until(tab, "document.querySelectorAll('#rows tbody tr').length >= 2")
        press(tab, "j")
        press(tab, "j")
        row = "[...document.querySelectorAll('#rows tbody tr')].findIndex(one => one.contains(document.activeElement))"
        assert tab.run(row) == 1
        press(tab, "k")
        assert tab.run(row) == 0
        press(tab, "/")
        assert tab.run("document.activeElement.id") == "search"
        for key in "gaj?":
            press(tab, key)
        assert tab.run("[document.activeElement.value, location.pathname]") == ["gaj?", "/"]
        tab.run("document.activeElement.blur()")
        press(tab, "?")
        assert tab.run("document.getElementById('help').open")
        press(tab, "Escape")
        assert not tab.run("document.getElementById('help').open")
        press(tab, "g")
        press(tab, "a")
        until(tab, "location.pathname === '/alerts'")
        press(tab, "g")
        press(tab, "o")
        until(tab, "location.pathname === '/' && document.querySelectorAll('#rows tbody tr').length >= 2")
        press(tab, "j")
        press(tab, "Enter")
        until(tab, "location.pathname.startsWith('/apps/')")
        assert not tab.complaints

    browse(tmp_path, scored, visit)


def test_the_search_box_and_the_app_picker_lead_on(tmp_path):
    def visit(tab, base, _, soon, w):
        opened(tab, base)
        tab.run("document.querySelector('#app-picker summary').click()")
        until(tab, "document.activeElement.id === 'picked-app'")
        for key in "oth":
            press(tab, key)
        listed = "[...document.querySelectorAll('#apps-listed [data-app]:not([hidden])')].map(one => one.dataset.app)"
        assert tab.run(listed) == ["other"]
        tab.run("document.querySelector('#apps-listed [data-app=other] a').click()")
        until(tab, "location.pathname === '/apps/other'")
        assert query(tab) == {"since": "6h", "metric": "faithfulness"}
        tab.run("document.getElementById('search').value = 'x1'")
        tab.run("document.querySelector('form.search').requestSubmit()")
        until(tab, "location.pathname === '/exchanges/x1'")
        assert not tab.complaints

    browse(tmp_path, scored, visit)


def test_the_frame_has_no_serious_accessibility_problem(tmp_path):
    needs("npm")
    command = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--prefix", str(tmp_path), "axe-core@4.14.1"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("axe-core cannot be installed")
    axe = (Path(tmp_path) / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")

    def visit(tab, base, _, soon, w):
        for width, scheme in ((1440, "light"), (390, "dark")):
            tab.look(width, scheme)
            opened(tab, base, f"{PATH}&by=model")
            tab.run("document.getElementById('slices').scrollIntoView()")
            until(tab, "document.querySelectorAll('.u-over').length >= 2", within_s=15)
            tab.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
            tab.run("new Promise(done => setTimeout(done, 300))")
            tab.run(f"{axe}; null")
            found = json.loads(tab.run(RUN))
            assert [one for one in found["violations"] if one[1] in ("serious", "critical")] == []
            tab.run("document.getElementById('help').showModal()")
            found = json.loads(tab.run(RUN))
            assert [one for one in found["violations"] if one[1] in ("serious", "critical")] == []

    browse(tmp_path, scored, visit)


UNREAD = """
const read = window.fetch;
window.fetch = async (...args) => {
  const answer = await read(...args);
  if (!String(args[0]).includes("/api/series")) return answer;
  const found = await answer.json();
  return Response.json({ ...found, groups: [], complete: false, read_since: found.until });
};
"""
"""Has every series be one of which the server has read nothing yet."""


def test_a_chart_of_what_is_not_read_does_not_say_that_there_are_no_scores(tmp_path):
    def visit(tab, base, _, soon, w):
        tab.ask("Page.addScriptToEvaluateOnNewDocument", source=UNREAD)
        tab.open(f"{base}{PATH}")
        until(tab, "document.querySelector('.chart-note')?.textContent.includes('Still reading older data.')")
        said = tab.run("document.querySelector('.chart-live').innerText")
        assert "Read so far: not read yet" in said
        assert "no scores" not in said.lower()
        assert not tab.complaints

    browse(tmp_path, scored, visit)
