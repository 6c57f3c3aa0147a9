"""The page in a real Chromium: its forms are taken, it follows what happens, its console stays empty."""

from __future__ import annotations

import json

from dashboards.web import events
from tests.support.browsing import browse, until
from tests.support.pages import EVIL


async def nothing(w):
    return None


async def fired(w):
    await w.drop(app=EVIL, question=EVIL, response=EVIL)
    return next(one for one in w.engine.alerts() if one.state == "firing" and not one.slice)


def test_a_form_sent_by_a_browser_is_taken(tmp_path):
    def visit(tab, base, alert, soon, w):
        tab.open(f"{base}/alerts/{alert.fingerprint}")
        tab.run("document.getElementById('ack-by').value = 'Sam'")
        tab.run("document.querySelector('form[action$=acknowledge] button').click()")
        until(tab, "document.body.innerText.includes('Acknowledged: repeat notifications are off')")
        assert not tab.complaints
        return dict(w.engine.acknowledgements.acks())

    (ack,) = browse(tmp_path, fired, visit).values()
    assert ack.by == "Sam"


def test_people_log_in_and_out(tmp_path):
    def visit(tab, base, _, soon, w):
        tab.open(f"{base}/alerts")
        assert tab.run("location.pathname") == "/login"
        tab.run("document.getElementById('token').value = 'open sesame'")
        tab.run("document.querySelector('main button').click()")
        until(tab, "location.pathname === '/alerts'")
        assert tab.run("document.cookie") == ""  # scripts do not see it
        tab.run("document.querySelector('form[action=\"/logout\"] button').click()")
        until(tab, "location.pathname === '/login'")
        assert not tab.complaints

    browse(tmp_path, nothing, visit, token="open sesame")


def test_an_open_page_shows_what_happens_without_being_reloaded(tmp_path, monkeypatch):
    monkeypatch.setattr(events, "LOOK_S", 0.2)

    def visit(tab, base, _, soon, w):
        tab.open(f"{base}/")
        until(tab, "document.getElementById('live').textContent === 'Updates automatically.'")
        tab.run("window.same = true")
        soon(w.drop())
        until(
            tab, "document.body.innerText.includes('alert firing') || document.body.innerText.includes('alerts firing')"
        )
        until(tab, "document.querySelectorAll('#rows tbody tr').length > 0")
        assert tab.run("window.same")
        assert not tab.complaints

    browse(tmp_path, nothing, visit)


def test_what_clients_write_runs_nowhere(tmp_path):
    def visit(tab, base, alert, soon, w):
        for path in (
            "/",
            "/?by=model",
            "/alerts",
            f"/alerts/{alert.fingerprint}",
            "/conversations",
            "/sources",
            "/topics",
            "/pipeline",
            "/settings",
            "/welcome",
            "/review",
            "/runbook",
            "/runbooks/GaugewayDown.md",
        ):
            tab.open(f"{base}{path}")
            assert not tab.complaints, path
            assert tab.run("document.querySelectorAll('img, script:not([src]), [onerror]').length") == 0

    browse(tmp_path, fired, visit)


def test_from_a_firing_alert_to_its_worst_answer_in_two_clicks_then_silence_rate_and_export(tmp_path):
    async def prepare(w):
        await w.drop(app="shop", question="How long?", response="Two years.")
        return next(one for one in w.engine.alerts() if one.state == "firing" and not one.slice)

    def click(tab, selector, then):
        tab.run(f"document.querySelector({selector!r}).click()")
        until(tab, then)

    def visit(tab, base, alert, soon, w):
        tab.open(f"{base}/")
        click(tab, "a[href^='/alerts/']", f"location.pathname === '/alerts/{alert.fingerprint}'")
        click(tab, "main a[href^='/exchanges/']", "location.pathname.startsWith('/exchanges/')")
        worst = tab.run("location.pathname.split('/')[2]")
        tab.run("document.querySelector('input[name=rating][value=\"0\"]').click()")
        click(tab, "form.feedback button", "document.readyState === 'complete' && location.search !== ''")
        tab.open(f"{base}/alerts/{alert.fingerprint}")
        tab.run("document.getElementById('by').value = 'Sam'")
        click(tab, "form[action$=silence] button", "document.body.innerText.toLowerCase().includes('silenced')")
        tab.open(f"{base}/explore?app=shop&metric=faithfulness&most=0.5")
        link = "document.querySelector('a[download]').href"
        exported = tab.run(f"fetch({link}).then(answer => answer.text())")
        assert not tab.complaints
        return alert, worst, exported, soon(w.engine.acknowledgements.silences())

    alert, worst, exported, silences = browse(tmp_path, prepare, visit)
    assert worst == alert.worst_exchanges[0]
    assert len(silences) == 1
    rows = [json.loads(line) for line in exported.splitlines()]
    assert len(rows) == 90
    assert {row["response"] for row in rows} == {"Two years."}


def test_an_update_changes_only_what_differs(tmp_path, monkeypatch):
    monkeypatch.setattr(events, "LOOK_S", 0.2)

    async def some(w):
        for metric in ("answer_relevancy", "context_precision", "context_recall"):
            await w.add(0.9, app="first", metric=metric)  # a table wider than the window
        await w.add(0.9, app="other")  # faithfulness, the metric of most apps, is first before and after
        await w.drop(app="first")

    def visit(tab, base, _, soon, w):
        tab.look(390, "light")
        tab.open(f"{base}/")
        until(tab, "document.getElementById('live').textContent === 'Updates automatically.'")
        until(tab, "document.querySelectorAll('#rows tbody tr').length > 0")
        tab.run(
            """
            window.table = document.querySelector('#rows table');
            window.scroller = [...document.querySelectorAll('#rows, #rows *')]
              .find((one) => one.scrollWidth > one.clientWidth + 40);
            scroller.scrollLeft = 40;
            getSelection().selectAllChildren(document.querySelector('#rows thead'));
            """
        )
        chosen = tab.run("getSelection().toString()")
        before = tab.run("document.querySelector('#rows').innerText")
        soon(w.drop(app="second"))
        until(tab, "document.querySelector('#rows').innerText.includes('second')")
        assert tab.run("document.querySelector('#rows').innerText") != before
        assert tab.run("window.table.isConnected")
        assert tab.run("window.scroller.scrollLeft") == 40
        assert tab.run("getSelection().toString()") == chosen != ""
        assert not tab.complaints

    browse(tmp_path, some, visit)


def test_how_long_ago_something_was_goes_on(tmp_path):
    def visit(tab, base, alert, soon, w):
        tab.open(f"{base}/alerts/{alert.fingerprint}")
        until(tab, "document.querySelector('.ago') !== null")
        moment = "document.querySelector('.ago').previousElementSibling.dateTime"
        tab.run(f"{moment} = new Date(Date.now() - 4000).toISOString()")
        until(tab, "/[(]\\d+ s ago[)]/.test(document.querySelector('.ago').textContent)", within_s=10)
        tab.run(f"{moment} = new Date(Date.now() + 7300000).toISOString()")
        until(tab, "document.querySelector('.ago').textContent === '(in 2 h)'", within_s=10)
        assert not tab.complaints

    browse(tmp_path, fired, visit)
