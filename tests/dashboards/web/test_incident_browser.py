"""An incident solved in a real Chromium: with the mouse, with the keyboard alone, and on every width."""

from __future__ import annotations

import re
import time

import pytest

from dashboards.web.views import alerts as alerts_view
from dashboards.web.views.alerts import silence_of
from gaugeway.records import Context, Evaluation, Sample, Score
from monitors.alerting.acknowledgements import Ack
from tests.dashboards.web.test_browser import browse, until
from tests.support.incidents import BAD, incident

KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowDown": 40}


def press(tab, key, *, shift=False):
    """Press a key as a person does."""
    fields = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key], "modifiers": 8 if shift else 0}
    text = {"text": "\r"} if key == "Enter" else {}
    tab.ask("Input.dispatchKeyEvent", type="keyDown", **fields, **text)
    tab.ask("Input.dispatchKeyEvent", type="keyUp", **fields)


def tab_to(tab, expression, most=150):
    """Press the Tab key until the focused element `one` fits."""
    for _ in range(most):
        press(tab, "Tab")
        if tab.run(f"(one => {expression})(document.activeElement)"):
            return
    raise AssertionError(tab.run("document.activeElement.outerHTML"))


def click(tab, selector, then):
    tab.run(f"document.querySelector({selector!r}).click()")
    until(tab, then)


async def fired(w):
    return await incident(w)


async def reading(w):
    """An exchange with two claims, each about one of two passages."""
    evidence = (
        {"claim": "Returned within 30 days.", "verdict": "supported", "contexts": [0], "quote": "within 30 days"},
        {"claim": "Cards expire.", "verdict": "contradicted", "contexts": [1], "quote": "never expire"},
    )
    sample = Sample(
        id="x",
        app="shop",
        started_at=time.time() - 60,
        question="May I return it?",
        response="It is returned within 30 days. Cards expire.",
        contexts=(Context(text="Free within 30 days."), Context(text="Gift cards never expire.")),
        context_source="explicit",
        duration_s=1.0,
    )
    made = Evaluation(sample_id="x", metric="faithfulness", version="1", outcome=Score(0.5, "", evidence), judge="j")
    await w.store.add(sample, [made])


LISTED = "[...document.querySelectorAll('#exchanges a[data-preview]')].map(one => one.dataset.preview.split('/')[2])"
DIFFERS = "document.querySelector('#suspects') !== null && !('pending' in document.querySelector('#suspects').dataset)"


@pytest.mark.parametrize("field", ["source", "tag"])
def test_from_a_firing_alert_to_all_bad_answers_of_the_suspect_in_two_clicks(tmp_path, monkeypatch, field):
    monkeypatch.setattr(alerts_view, "COMPARED_S", 30.0)

    def visit(tab, base, alert, soon, w):
        tab.open(f"{base}/alerts")
        click(tab, f"a[href='/alerts/{alert.fingerprint}']", f"location.pathname === '/alerts/{alert.fingerprint}'")
        until(tab, DIFFERS)
        click(tab, f"#suspects td a[href*='{field}='][href*='below=']", "location.pathname === '/explore'")
        found = tab.run(LISTED)
        while tab.run("document.querySelector('a[rel=next]') !== null"):
            here = tab.run("location.href")
            click(tab, "a[rel=next]", f"location.href !== {here!r}")
            found += tab.run(LISTED)
        assert not tab.complaints
        return found

    found = browse(tmp_path, fired, visit)
    assert len(found) == 60
    assert set(found) == {f"bad-{index}" for index in range(200, 320, 2)}


def test_a_comparison_that_takes_longer_appears_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(alerts_view, "COMPARED_S", 0.0)

    def visit(tab, base, alert, soon, w):
        tab.open(f"{base}/alerts/{alert.fingerprint}")
        until(tab, f"{DIFFERS} && document.querySelector('#suspects').innerText.includes('{BAD}')")
        assert not tab.complaints

    browse(tmp_path, fired, visit)


def test_an_acknowledgement_takes_one_click_the_second_time(tmp_path):
    def visit(tab, base, alert, soon, w):
        where = f"{base}/alerts/{alert.fingerprint}"
        tab.open(where)
        tab.run("document.getElementById('ack-by').value = 'Sam'")
        click(tab, "form[action$='/acknowledge'] button", "document.body.innerText.includes('Acknowledged by Sam')")
        click(
            tab, "form[action$='/unacknowledge'] button", "document.body.innerText.includes('Acknowledgement removed')"
        )
        click(tab, "form.one-click button", "document.body.innerText.includes('Acknowledged by Sam')")
        assert tab.run("document.cookie") == ""  # scripts do not see the name
        assert not tab.complaints

    browse(tmp_path, fired, visit)


def test_with_the_keyboard_alone_from_the_alert_to_an_exchange_and_on_to_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(alerts_view, "COMPARED_S", 30.0)

    def visit(tab, base, alert, soon, w):
        tab.open(f"{base}/alerts")
        tab_to(tab, f"one.getAttribute('href') === '/alerts/{alert.fingerprint}'")
        press(tab, "Enter")
        until(tab, f"location.pathname === '/alerts/{alert.fingerprint}' && {DIFFERS}")
        tab_to(tab, "one.closest('#suspects td') && one.href.includes('source=') && one.href.includes('below=')")
        press(tab, "Enter")
        until(tab, "location.pathname === '/explore'")
        tab_to(tab, "one.matches('button.peek')")
        press(tab, "Enter")
        until(tab, "document.querySelector('#preview:not([hidden]) h3') !== null")
        first = tab.run("document.querySelector('#preview a').getAttribute('href')")
        press(tab, "ArrowDown")
        until(tab, f"document.querySelector('#preview a')?.getAttribute('href') !== {first!r}")
        assert tab.run("document.querySelector('tr.shown button.peek') === document.activeElement")
        press(tab, "Escape")
        assert tab.run("document.getElementById('preview').hidden")
        assert tab.run("document.activeElement.matches('button.peek')")
        click(tab, "#exchanges tbody tr:last-child td", "!document.getElementById('preview').hidden")
        assert tab.run(
            "document.activeElement.closest('tr') === document.querySelector('#exchanges tbody tr:last-child')"
        )
        press(tab, "Escape")
        press(tab, "Tab", shift=True)
        press(tab, "Enter")
        until(tab, "location.pathname.startsWith('/exchanges/')")
        second = tab.run("location.pathname")
        tab_to(tab, "one.rel === 'next'")
        press(tab, "Enter")
        until(tab, f"location.pathname.startsWith('/exchanges/') && location.pathname !== {second!r}")
        assert not tab.complaints

    browse(tmp_path, fired, visit)


def test_with_the_keyboard_alone_the_worst_answers_become_a_data_set(tmp_path):
    def visit(tab, base, alert, soon, w):
        tab.open(f"{base}/alerts/{alert.fingerprint}")
        tab_to(tab, "one.closest('form[action=\"/datasets\"] button') !== null")
        press(tab, "Enter")
        until(tab, "document.body.innerText.includes('Added to the data set')")
        assert not tab.complaints
        made, records = soon(w.datasets.read("incidents"))
        assert (made.version, {record["provenance"]["alert"] for record in records}) == (1, {alert.fingerprint})

    browse(tmp_path, fired, visit)


LIT = "[...document.querySelectorAll('.lit')].map(one => one.id || one.className.replace(' lit', ''))"


def test_a_sentence_lights_up_its_claims_and_passages_and_the_reverse(tmp_path):
    def visit(tab, base, _, soon, w):
        tab.open(f"{base}/exchanges/x")
        tab_to(tab, "one.matches('a.verdict') && one.dataset.claims === '2'")
        from_the_answer = tab.run(LIT)
        tab_to(tab, "one.matches('a.back') && one.dataset.claims === '1'")
        from_the_passage = tab.run(LIT)
        tab.run("document.activeElement.blur()")
        box = tab.run("(one => [one.left + 4, one.top + 4])(document.getElementById('said-2').getBoundingClientRect())")
        tab.run("document.getElementById('said-2').scrollIntoView()")
        box = tab.run("(one => [one.left + 4, one.top + 4])(document.getElementById('said-2').getBoundingClientRect())")
        tab.ask("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
        hovered = tab.run(LIT)
        for kind in ("mousePressed", "mouseReleased"):
            tab.ask("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)
        tab.ask("Input.dispatchMouseEvent", type="mouseMoved", x=2, y=2)
        pinned = tab.run(LIT)
        press(tab, "Escape")
        assert not tab.complaints
        return from_the_answer, from_the_passage, hovered, pinned, tab.run(LIT)

    from_the_answer, from_the_passage, hovered, pinned, after = browse(tmp_path, reading, visit)
    assert from_the_answer == ["said-2", "claim-2", "quoted"]
    assert from_the_passage == ["said-1", "claim-1", "quoted"]
    assert hovered == pinned == from_the_answer
    assert after == []


def test_views_are_saved_named_and_removed(tmp_path):
    def visit(tab, base, _, soon, w):
        name = '<img src=x onerror="alert(1)">'
        tab.open(f"{base}/explore?metric=faithfulness&most=0.5")
        tab.run(f"document.getElementById('view-name').value = {name!r}")
        tab.run("document.querySelector('#saved form button').click()")
        tab.open(f"{base}/explore")
        assert tab.run("document.querySelectorAll('#saved img').length") == 0
        assert tab.run("document.querySelector('#saved li a').textContent") == name
        click(tab, "#saved li a", "location.search.includes('most=0.5')")
        odd = '[{"name": 3}, {"name": "a", "query": "javascript:1"}]'
        tab.run(f"localStorage.setItem('gaugeway-explore-views', {odd!r})")
        tab.open(f"{base}/explore")
        assert tab.run("[...document.querySelectorAll('#saved li a')].map(one => one.getAttribute('href'))") == [
            "/explore?javascript%3A1="
        ]
        tab.run("document.querySelector('#saved li button').click()")
        assert tab.run("localStorage.getItem('gaugeway-explore-views')") == "[]"
        assert not tab.complaints

    browse(tmp_path, reading, visit)


def test_without_javascript_everything_is_a_link(tmp_path, monkeypatch):
    monkeypatch.setattr(alerts_view, "COMPARED_S", 30.0)

    def visit(tab, base, alert, soon, w):
        tab.ask("Network.setBlockedURLs", urls=["*/static/*.js*"])
        tab.open(f"{base}/alerts/{alert.fingerprint}")
        tab.open(tab.run("document.querySelector('#suspects td a').href"))
        assert tab.run("document.querySelectorAll('button.peek').length") == 0
        assert tab.run("document.getElementById('saved').hidden")
        assert tab.run("document.querySelectorAll('svg.filter a[href]').length") > 1
        assert tab.run("document.querySelectorAll('a.chip[href]').length") > 2
        return tab.run("document.querySelector('#exchanges a[data-preview]').getAttribute('href')")

    assert browse(tmp_path, fired, visit).startswith("/exchanges/bad-")


@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_no_view_is_wider_than_the_window(tmp_path, monkeypatch, width):
    monkeypatch.setattr(alerts_view, "COMPARED_S", 30.0)

    def visit(tab, base, alert, soon, w):
        wide = {}
        for scheme in ("light", "dark"):
            tab.look(width, scheme)
            for path in (
                f"/alerts/{alert.fingerprint}",
                "/explore?metric=faithfulness&group=source",
                f"/explore?app=shop&source={BAD}",
                f"/exchanges/{alert.worst_exchanges[0]}?list=metric%3Dfaithfulness",
            ):
                tab.open(f"{base}{path}")
                if tab.run("document.querySelector('button.peek') !== null"):
                    click(tab, "button.peek", "document.querySelector('#preview h3') !== null")
                wide[scheme, path] = tab.run("document.documentElement.scrollWidth - innerWidth")
                assert not tab.complaints
        return wide

    assert {key: over for key, over in browse(tmp_path, fired, visit).items() if over > 0} == {}


CUT = """
[...document.querySelectorAll("main caption")].filter(one => one.getClientRects().length).filter(one => {
  const range = document.createRange(); range.selectNodeContents(one);
  return [...range.getClientRects()].some(box => box.right > innerWidth || box.left < 0);
}).map(one => one.textContent)
"""
OUTSIDE = """
[...document.querySelectorAll("#open :is(td, th[scope=row]), #over :is(td, th[scope=row])")].filter(one => {
  const box = one.getBoundingClientRect();
  return box.right > innerWidth || box.width === 0;
}).map(one => one.textContent)
"""


def test_on_a_phone_captions_are_whole_and_the_list_shows_cause_onset_and_who_acknowledged(tmp_path):
    def visit(tab, base, alert, soon, w):
        soon(w.engine.acknowledgements.acknowledge(alert.fingerprint, Ack(by="O'Brien", at=time.time())))
        soon(w.engine.acknowledgements.silence(silence_of(alert, now=time.time(), seconds=60.0, by="Kim", comment="")))
        cut = {}
        for path in ("/alerts", f"/alerts/{alert.fingerprint}", "/"):
            tab.look(390, "light")
            tab.open(f"{base}{path}")
            cut[path] = tab.run(CUT)
        tab.look(390, "light")
        tab.open(f"{base}/alerts")
        words = tab.run("document.getElementById('open').innerText")
        titles = tab.run(
            "[...document.querySelectorAll('#open [data-label]')].map(one => getComputedStyle(one, '::before').content)"
        )
        assert not tab.complaints
        return cut, tab.run(OUTSIDE), words, titles

    cut, outside, words, titles = browse(tmp_path, fired, visit)
    assert not any(cut.values()), cut
    assert not outside
    assert "O'Brien" in words
    assert "silenced by Kim" in words
    assert any("Likely cause" in one for one in titles)


def test_in_local_time_no_time_of_the_alert_stays_in_utc(tmp_path):
    """Acts, failed deliveries and silences: times inside sentences too."""

    async def prepare(w):
        w.people.failures = 1000
        alert = await incident(w)
        await w.engine.acknowledgements.silence(
            silence_of(alert, now=time.time() - 90.0, seconds=60.0, by="me", comment="")
        )
        return alert

    def visit(tab, base, alert, soon, w):
        tab.ask("Emulation.setTimezoneOverride", timezoneId="America/Bogota")
        tab.open(f"{base}/alerts/{alert.fingerprint}")
        until(tab, "!!document.querySelector('#zone-switch')")
        tab.run("document.querySelector('#zone-switch').click()")
        until(tab, "document.documentElement.dataset.zone === 'local'")
        parts = ("facts", "timeline", "deliveries", "measures")
        found = {one: tab.run(f"document.getElementById('{one}').innerText") for one in parts}
        assert not tab.complaints
        return found

    found = browse(tmp_path, prepare, visit)
    assert "attempt since" in found["deliveries"]
    assert "silenced by me until" in found["timeline"]
    for part, words in found.items():
        assert "UTC" not in words, part
        assert not re.search(r"\d{2}:\d{2}:\d{2}Z", words), part
    assert "GMT-5" in found["timeline"]
