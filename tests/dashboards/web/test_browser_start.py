"""Welcome, Review, Trials, Settings and Pipeline in a real Chromium: by keyboard, in every width and scheme."""

from __future__ import annotations

import contextlib
import time

import pytest

from gaugeway.records import Context, Evaluation, Sample, Score
from gaugeway.settings.shared import Config, Judge
from tests.dashboards.web.test_browser import browse, nothing
from tests.dashboards.web.views import test_trials as trials

JUDGE = Config(judge=Judge(base_url="http://127.0.0.1:1/v1", model="judge-1"))
WIDTHS = (390, 1024, 1440)


def until(tab, expression, within_s=60.0):
    """Wait until the expression holds on a loaded page; the page may be replaced meanwhile."""
    deadline = time.monotonic() + within_s
    while True:
        with contextlib.suppress(AssertionError):  # asked while the browser was on its way to another page
            if tab.run(f"document.readyState === 'complete' && ({expression})"):
                return
        assert time.monotonic() < deadline, expression
        time.sleep(0.1)


async def judged(w, count=12, app="shop"):
    for number in range(count):
        sample = Sample(
            id=f"{app}{number}",
            started_at=time.time() - 60.0 - number,
            app=app,
            question=f"How long is warranty {number}?",
            response=f"Warranty {number} lasts two years.",
            contexts=(Context(text=f"Warranty {number}: two years."),),
            context_source="tools",
        )
        one = Evaluation(
            sample_id=sample.id,
            metric="faithfulness",
            version="1",
            outcome=Score(0.9 if number % 3 else 0.2),
            judge="judge-1",
        )
        await w.store.add(sample, [one])


async def stored(w):
    some = await w.queue.take(100)
    await w.store.supplement(some)
    await w.queue.ack_supplies([one.id for one in some])
    return [(one.label, one.by) for one in some]


def press(tab, key):
    """Press and release a key, as a keyboard does."""
    code = "Space" if key == " " else f"Key{key.upper()}" if len(key) == 1 else key
    text = {"text": key} if len(key) == 1 else {}
    number = {"Enter": 13, "Tab": 9, "Escape": 27}.get(key, ord(key.upper()[0]))
    if key == "Enter":
        text = {"text": "\r"}
    for kind in ("keyDown", "keyUp"):
        tab.ask("Input.dispatchKeyEvent", type=kind, key=key, code=code, windowsVirtualKeyCode=number, **text)


def test_the_steps_of_welcome_tick_by_themselves(tmp_path):
    def done(tab):
        return tab.run("[...document.querySelectorAll('[data-done]')].map(one => one.dataset.done).join()")

    async def answered(w):
        w.answered(3, source="tools")

    def visit(tab, base, _, soon, w):
        tab.open(f"{base}/")
        until(tab, "location.pathname === '/welcome'")
        assert done(tab) == "false,false,false"
        assert tab.run("document.querySelectorAll('.snippet button').length") >= 1
        tab.run("window.same = true")
        soon(answered(w))
        until(tab, "document.getElementById('passages-state').dataset.done === 'true'")
        soon(judged(w, 1))
        until(tab, "[...document.querySelectorAll('[data-done]')].every(one => one.dataset.done === 'true')")
        assert tab.run("document.getElementById('so-far').innerText.includes('3 of 3 steps done')")
        assert tab.run("window.same")
        assert not tab.complaints

    browse(tmp_path, nothing, visit, config=JUDGE, first_scores=100)


def test_answers_are_labelled_with_the_keyboard_alone(tmp_path):
    def shown(tab):
        return tab.run("document.querySelector('.labelling input[name=id]')?.value")

    def next_after(tab, key):
        before, field = shown(tab), "document.querySelector('.labelling input[name=id]')?.value"
        press(tab, key)
        until(tab, f"![undefined, '{before}'].includes({field})")
        return before

    def visit(tab, base, _, soon, w):
        tab.open(f"{base}/review")
        until(tab, "document.activeElement.id === 'by'")
        for key in "Sam":
            press(tab, key)
        press(tab, "Enter")
        until(tab, "document.querySelector('.labelling [data-key=p]') !== null")
        assert (
            "0.9"
            not in tab.run("document.querySelector('main').innerText.replace(/±.*/g, '')").split("Judge's mean")[0]
        )
        passed = next_after(tab, "p")
        assert tab.run("document.body.innerText.includes('Your last label: pass')")
        failed = next_after(tab, "f")
        skipped = next_after(tab, "s")
        next_after(tab, "u")  # undoes the skip: that answer is shown again, and its label withdrawn
        assert shown(tab) == skipped
        assert len({passed, failed, skipped}) == 3
        labels = soon(stored(w))
        assert [one for one in labels if "withdrawn" not in one[0]] == [
            ("faithfulness:pass", "Sam"),
            ("faithfulness:fail", "Sam"),
        ]
        tab.open(f"{base}/review")
        until(tab, "document.querySelector('.progress').innerText.includes('2 labels')")
        assert not tab.complaints

    browse(tmp_path, judged, visit, config=JUDGE)


def test_a_notifier_is_tested_from_settings(tmp_path):
    def visit(tab, base, _, soon, w):
        tab.open(f"{base}/settings")
        tab.run("document.querySelector('form[action=\"/settings/test\"] button').click()")
        until(tab, "document.getElementById('notifiers').parentElement.innerText.includes('Delivered')")
        assert not tab.complaints
        return [alert.rule for alert in w.people.alerts]

    assert browse(tmp_path, nothing, visit) == ["notifier_test"]


def test_the_funnel_adds_up_as_the_page_shows_it(tmp_path):
    async def prepare(w):
        await judged(w, 7)
        await w.add(0.5, metric="abstained")

    def visit(tab, base, _, soon, w):
        tab.open(f"{base}/pipeline?since=1h")
        rows = tab.run(
            "[...document.querySelectorAll('.funnel tbody tr')].map(row => [row.className, row.cells[1].innerText])"
        )
        rows = [(kind, int(text.replace("\u2212", "-").replace(",", ""))) for kind, text in rows]
        left = None
        lost = 0
        for kind, count in rows:
            if kind == "loss":
                lost += count
            else:
                assert left is None or left + lost == count, rows
                left, lost = count, 0
        assert next(count for kind, count in rows if kind == "stage") == 8
        assert left == 7
        tab.run("document.querySelector('nav[aria-label=\"Time range\"] a').click()")
        until(tab, "new URLSearchParams(location.search).get('since') === '15m'")
        assert not tab.complaints

    browse(tmp_path, prepare, visit)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_view_is_wider_than_its_window(tmp_path, scheme):
    async def prepare(w):
        await judged(w)
        await w.drop()

    def visit(tab, base, _, soon, w):
        for width in WIDTHS:
            tab.look(width, scheme)
            for path in ("/welcome", "/review", "/settings", "/pipeline"):
                tab.open(f"{base}{path}")
                wide = tab.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                assert wide <= 0, (path, width, wide)
                assert not tab.complaints, path

    browse(tmp_path, prepare, visit, config=JUDGE)


def test_a_trial_is_started_read_and_stopped_with_the_keyboard_alone(tmp_path):
    def go(tab, selector):
        """Press Tab until this has the focus, which is seen."""
        for _ in range(120):
            press(tab, "Tab")
            if tab.run(f"document.activeElement.matches({selector!r})"):
                assert tab.run("document.activeElement.matches(':focus-visible')")
                return
        raise AssertionError(f"Tab never reaches {selector}")

    def type_in(tab, name, text):
        go(tab, f"#{name}")
        tab.ask("Input.insertText", text=text)

    async def lost(w):
        await trials.answered(w, 60, -0.3, name="smaller")

    async def running(w):
        return [(stored.trial.app, stored.state, stored.trial.usd) for stored in await w.trials.all()]

    def visit(tab, base, _, soon, w):
        tab.look(390, "dark")
        tab.open(f"{base}/compare")
        press(tab, "g")
        press(tab, "l")
        until(tab, "location.pathname === '/trials'")
        go(tab, "a.button")
        press(tab, "Enter")
        until(tab, "location.pathname === '/trials/new'")
        for name, text in (("name", "smaller"), ("app", "shop")):
            type_in(tab, name, text)
        go(tab, "#upstream")
        press(tab, "o")  # the option "other: ..."
        type_in(tab, "model", "known-1")
        type_in(tab, "usd", "5")
        go(tab, "[name=send]")
        press(tab, " ")
        go(tab, "form.trial button")
        press(tab, "Enter")
        until(tab, "document.body.innerText.includes('Questions of shop will go to api.other.example')")
        assert soon(running(w)) == []
        go(tab, "button[name=confirmed]")
        press(tab, "Enter")
        until(tab, "location.pathname === '/trials/smaller'")
        assert soon(running(w)) == [("shop", "running", 5.0)]
        soon(lost(w))
        tab.open(f"{base}/trials/smaller")
        assert tab.run("document.querySelector('h1').innerText").startswith("Do not ship")
        go(tab, "a[href$='#answers']")
        press(tab, "Enter")
        until(tab, "document.body.innerText.includes('Behind gate')")
        tab.open(f"{base}/trials/smaller")
        go(tab, "form[action$='/stop'] button")
        press(tab, "Enter")
        until(tab, "document.body.innerText.includes('Stopped: nothing more is sent')")
        assert soon(running(w)) == [("shop", "ended", 5.0)]
        assert not tab.complaints

    browse(tmp_path, nothing, visit, config=trials.CONFIG)


def test_trials_fit_every_screen(tmp_path):
    long = "known-" + "x" * 200

    async def prepare(w):
        arms = [{"upstream": "other", "model": long, "drop_source": long}]
        given = {"name": "n" * 40, "app": long, "primary": trials.METRIC, "send": "redacted", "usd": 5.0, "arms": arms}
        await w.trials.start(w.site.trials.check(given))
        await trials.answered(w, 60, -0.3, name="n" * 40, app=long)

    def visit(tab, base, _, soon, w):
        over = {}
        for width in WIDTHS:
            for path in ("/trials", f"/trials/{'n' * 40}", f"/trials/new?app={long}&model={long}", "/exchanges/nn-1"):
                tab.look(width, "dark")
                tab.open(f"{base}{path}".replace("nn-1", "n" * 40 + "-1"))
                over[path, width] = tab.run("document.documentElement.scrollWidth - innerWidth")
        assert not tab.complaints
        return over

    assert {found for found in browse(tmp_path, prepare, visit, config=trials.CONFIG).items() if found[1] > 0} == set()


def test_on_a_narrow_screen_the_places_are_in_a_menu_and_the_key_of_the_search_opens_it(tmp_path):
    shown = "document.querySelector('.bar nav').checkVisibility()"

    def visit(tab, base, _, soon, w):
        tab.look(390, "light")
        tab.open(f"{base}/settings")
        assert not tab.run(shown)
        tab.run("document.querySelector('.menu-button').click()")
        assert tab.run(shown)
        heights = tab.run("[...document.querySelectorAll('.bar nav a')].map(one => one.getBoundingClientRect().height)")
        assert len(heights) == 6
        assert min(heights) >= 40
        assert tab.run("document.documentElement.scrollWidth - innerWidth") <= 0
        press(tab, "Escape")
        until(tab, f"!{shown}")
        press(tab, "/")
        until(tab, f"{shown} && document.activeElement.id === 'search'")
        tab.look(1440, "light")
        tab.open(f"{base}/settings")
        assert tab.run(shown)
        press(tab, "g")
        press(tab, "v")
        until(tab, "location.pathname === '/compare'")
        assert not tab.complaints

    browse(tmp_path, judged, visit, config=JUDGE)


def test_what_explains_a_word_is_shown_with_the_keyboard_and_the_pointer(tmp_path):
    text = "document.querySelector('#tip:popover-open')?.textContent ?? ''"

    def visit(tab, base, _, soon, w):
        tab.open(f"{base}/settings")
        title = tab.run("document.querySelector('button.tip').title")
        assert title
        tab.run("document.querySelector('main').focus()")
        for _ in range(20):
            press(tab, "Tab")
            if tab.run("document.activeElement.matches('button.tip')"):
                break
        until(tab, f"({text}) === {title!r}")
        assert tab.run("document.activeElement.getAttribute('aria-describedby')") == "tip"
        press(tab, "Escape")
        until(tab, f"({text}) === ''")
        assert tab.run("document.activeElement.title") == title
        over = "new PointerEvent('pointerover', {bubbles: true})"
        tab.run(f"document.querySelector('#copy-link').dispatchEvent({over})")
        until(tab, f"({text}).startsWith('Link to this view')")
        assert not tab.complaints

    browse(tmp_path, judged, visit, config=JUDGE)
