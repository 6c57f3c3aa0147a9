"""How the page is laid out in a real Chromium: nothing is too wide, no text of a chart too small, on any screen."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from gaugeway.records import Context, Evaluation, Sample, Score
from gaugeway.settings.shared import Config
from tests.dashboards.web.test_browser import browse, fired, until
from tests.dashboards.web.views.test_app import TIERS, two_tiers

pytestmark = pytest.mark.full
WIDTHS = (390, 1024, 1440)
COMPARED, APP = "/compare?by=model&a=old&b=new", "/apps/shop?since=6h&metric=faithfulness"
LONG = "x" * 30_000
LEGIBLE = 11.0
"""Pixels."""
SIZES = """
[...document.querySelectorAll("main svg text")].filter(one => one.getClientRects().length).map(one =>
  [parseFloat(getComputedStyle(one).fontSize) * one.ownerSVGElement.getScreenCTM().a, one.textContent])
"""
FITS = """
(() => {
  const shown = (one) => one.getClientRects().length > 0;
  const lines = (one) => {
    const range = new Range();
    range.selectNodeContents(one);
    return [...range.getClientRects()];
  };
  const captions = [...document.querySelectorAll("main caption")].filter(shown);
  const inside = (one) => {
    const box = one.closest(".wide")?.getBoundingClientRect();
    return !box || lines(one).every((line) => line.width === 0 || line.right <= box.right + 1);
  };
  const top = document.querySelector("main").getBoundingClientRect().top + scrollY;
  const [brand, leave] = [".brand", ".leave button"].map((one) => document.querySelector(one).getBoundingClientRect());
  const words = [...document.querySelectorAll("#flow tbody th")].filter(shown);
  const traffic = [...document.querySelectorAll("#rows th.ops")];
  const first = document.querySelector("table.compared tbody td");
  return [
    top,
    leave.top < brand.bottom,
    captions.filter((one) => !inside(one)).map((one) => one.textContent),
    words.map((one) => one.firstChild).filter((one) => /^\\w+$/.test(one.textContent.trim()) && lines(one).length > 1)
      .map((one) => one.textContent),
    traffic.filter((one) => shown(one) && inside(one)).length,
    first !== null && /\\d/.test(first.textContent) && inside(first),
  ];
})()
"""
LABELS = """
const pen = document.createElement("canvas").getContext("2d");
const room = (text) => {  // between the top of a text's box and its letters, which each font chooses
  const {fontWeight, fontSize, fontFamily} = getComputedStyle(text);
  pen.font = `${fontWeight} ${fontSize} ${fontFamily}`;
  const letters = pen.measureText(text.textContent);
  return (letters.fontBoundingBoxAscent - letters.actualBoundingBoxAscent) * text.getScreenCTM().a;
};
[...document.querySelectorAll("svg.filter")].filter(one => one.getClientRects().length).map(svg => [
  svg.querySelector("line.axis").getBoundingClientRect().bottom,
  Math.max(...[...svg.querySelectorAll("rect.bar")].map(one => one.getBoundingClientRect().right)),
  [...svg.querySelectorAll("text")].filter(one => one.getClientRects().length).map(one => {
    const box = one.getBoundingClientRect();
    return [one.textContent, box.left, box.right, box.top + room(one)];
  }),
])
"""
WIDE = """
[document.documentElement.scrollWidth - innerWidth,
 Math.max(...[...document.querySelectorAll("main *")].map(one => one.scrollWidth)),
 document.documentElement.scrollHeight]
"""


async def compared(w):
    now = time.time()
    for index in range(240):
        later = index >= 120
        at, value = now - 7200.0 + 60.0 * index / 2, (0.6 if later else 0.9) + 0.05 * (index % 2)
        await w.add(value, at=at, model="new" if later else "old", question=f"Question {index}?")
    await w.drop(app="bank")
    return next(one for one in w.engine.alerts() if one.state == "firing" and not one.slice)


def settled_sizes(tab):
    """What SIZES gives once no text is too small: a chart opened just now is drawn again for its new width."""
    deadline = time.monotonic() + 30
    while True:
        sizes = tab.run(SIZES)
        if all(size >= LEGIBLE for size, _ in sizes) or time.monotonic() > deadline:
            return sizes
        time.sleep(0.2)


def test_the_text_of_every_chart_is_legible_on_every_screen(tmp_path):
    def visit(tab, base, alert, soon, w):
        found = {}
        for width in WIDTHS:
            for path in ("/", "/explore?since=7d", f"/alerts/{alert.fingerprint}", COMPARED, APP):
                tab.look(width, "light")
                tab.open(f"{base}{path}")
                if path == APP:
                    until(tab, "!!document.querySelector('svg.histogram text')")
                tab.run("document.querySelectorAll('details').forEach(one => { one.open = true })")
                found[path.split("?")[0].split("/")[1], width] = settled_sizes(tab)
        assert not tab.complaints
        return found

    found = browse(tmp_path, compared, visit)
    for view in ("explore", "compare", "apps"):  # the chart of an alert is drawn on a canvas
        assert all(found[view, width] for width in WIDTHS), f"{view} has no chart"
    small = {(*key, text): size for key, sizes in found.items() for size, text in sizes if size < LEGIBLE}
    assert not small
    assert all(size < 20.0 for width in WIDTHS for size, _ in found["apps", width])


def test_header_captions_and_numbers_fit_every_screen(tmp_path):
    async def prepare(w):
        alert = await compared(w)
        for metric in (
            "answer_relevancy",
            "context_precision",
            "context_recall",
            "hallucination",
            "lexical_groundedness",
        ):
            for _ in range(15):
                await w.add(0.8, metric=metric)
        await w.look()
        return alert

    def visit(tab, base, alert, soon, w):
        tab.open(f"{base}/login")
        tab.run("document.getElementById('token').value = 'open sesame'")
        tab.run("document.querySelector('main button').click()")
        until(tab, "location.pathname === '/'")
        found = {}
        for width in WIDTHS:
            tab.look(width, "light")
            for path in ("/", "/pipeline?since=7d", COMPARED, "/settings", "/sources?app=shop", "/explore", "/review"):
                tab.open(f"{base}{path}")
                tab.run("document.querySelectorAll('details').forEach(one => { one.open = true })")
                found[width, path] = tab.run(FITS)
                assert not tab.complaints, path
        return found

    found = browse(tmp_path, prepare, visit, token="open sesame")
    for (width, path), (header, leave, captions, broken, columns, difference) in found.items():
        assert header <= {390: 200, 1024: 125, 1440: 125}[width], (width, path)
        assert leave, "Log out stands in the row of the name"
        assert not captions, (width, path, captions)
        assert not broken, (width, path, broken)
        if path == "/":  # no gateway was read: the capture has a column where there is room
            assert columns == (1 if width == 1440 else 0), width
        if path == COMPARED:
            assert difference, width


def test_labels_of_histograms_stand_below_the_axis_at_the_edges_of_their_bars(tmp_path):
    async def prepare(w):
        for index in range(40):
            await w.add(index / 20 if index <= 20 else 1.0)

    def visit(tab, base, _, soon, w):
        found = {}
        for width in WIDTHS:
            tab.look(width, "light")
            tab.open(f"{base}/explore?metric=faithfulness")
            tab.run("document.querySelectorAll('details').forEach(one => { one.open = true })")
            found[width] = tab.run(LABELS)
        return found

    for width, charts in browse(tmp_path, prepare, visit).items():
        assert len(charts) == 2, width
        for axis, _, labels in charts:
            assert all(top >= axis for _, _, _, top in labels), (width, axis, labels)
            assert all(one[2] <= other[1] for one, other in pairwise(labels)), (width, labels)
        scores = next(one for one in charts if one[2][-1][0] == "1.00")
        assert scores[2][0][0] == "0.00"
        assert scores[2][-1][2] == pytest.approx(scores[1], abs=3.0), "1.00 ends where the bar of 1.0 ends"


def test_a_long_word_widens_no_page(tmp_path):
    async def prepare(w):
        word = LONG
        sample = Sample(
            id="long",
            started_at=time.time() - 60.0,
            app="shop",
            model="m" * 200,
            question=word,
            contexts=(Context(text=word, id=word, source=word),),
            context_source="explicit",
            response=word,
            reference=word,
            tags={"t" * 100: "v" * 200},
            conversation="c1",
            turn=1,
        )
        evidence = ({"claim": word, "verdict": "supported", "quote": word},)
        outcome = Score(0.1, word, evidence)
        await w.store.add(sample, [Evaluation(sample_id="long", metric="faithfulness", version="1", outcome=outcome)])
        await w.add(0.1, app="a" * 200, question=word)
        return await fired(w)

    def visit(tab, base, alert, soon, w):
        found = {}
        for path in (
            *("/", "/explore", "/explore?app=shop", "/exchanges/long", "/exchanges/long?all=1", "/conversations"),
            *("/conversations/c1", "/sources?app=shop", "/topics?app=shop", "/alerts", f"/alerts/{alert.fingerprint}"),
            *("/prompts", "/pipeline", f"/alerts/{alert.fingerprint}/rebaseline"),
        ):
            tab.look(390, "light")
            tab.open(f"{base}{path}")
            found[path] = tab.run(WIDE)
        return found

    for path, (beyond, widest, tall) in browse(tmp_path, prepare, visit).items():
        assert beyond <= 0, path
        assert widest < 4000, path
        assert path != "/exchanges/long" or tall < 9000, tall


@pytest.mark.parametrize("confirmed", [True, False])
def test_a_baseline_is_reset_only_after_a_page_that_says_what_is_lost(tmp_path, confirmed):
    def visit(tab, base, alert, soon, w):
        told = []
        w.learns()
        w.engine.rebaseline = lambda *what: told.append(what)
        tab.open(f"{base}/alerts/{alert.fingerprint}")
        tab.run("document.querySelector('a[href$=rebaseline]').click()")
        until(tab, "location.pathname.endsWith('/rebaseline')")
        words = tab.run("document.querySelector('main').innerText")
        assert "This cannot be undone." in words
        assert not told
        if confirmed:
            tab.run("document.querySelector('main form button').click()")
            until(tab, "document.body.innerText.includes('Baseline reset: the rule is learning a new one.')")
        else:
            tab.run("[...document.querySelectorAll('main a')].find(one => one.textContent === 'Cancel').click()")
            until(tab, f"location.pathname === '/alerts/{alert.fingerprint}'")
        assert not tab.complaints
        return told, alert

    told, alert = browse(tmp_path, fired, visit)
    assert told == ([(alert.rule, alert.app)] if confirmed else [])


def test_the_overview_is_filtered_and_sorted_without_losing_the_other(tmp_path):
    async def prepare(w):
        for app, value in (("docs-eu", 0.9), ("docs-us", 0.5), ("shop", 0.7)):
            for _ in range(20):
                await w.add(value, app=app)
        for index in range(6):  # with few apps there is nothing to filter
            await w.add(0.9, app=f"other-{index}")
        await w.look()

    def visit(tab, base, _, soon, w):
        names = "[...document.querySelectorAll('#rows table:first-of-type tbody th a')].map(one => one.textContent)"
        tab.open(f"{base}/")
        tab.run("document.getElementById('q').value = 'DOCS'")
        tab.run("document.querySelector('form.filter button').click()")
        until(tab, "location.search.includes('q=DOCS')")
        tab.run(
            "[...document.querySelectorAll('#rows thead a')].find(one => one.textContent === 'faithfulness').click()"
        )
        until(tab, "location.search.includes('sort=faithfulness')")
        first = tab.run(names)
        order = tab.run("document.querySelector('#rows th[aria-sort]').getAttribute('aria-sort')")
        tab.run("document.querySelector('#rows th[aria-sort] a').click()")
        until(tab, "location.search.includes('sort=-faithfulness')")
        assert not tab.complaints
        return first, order, tab.run(names), tab.run("document.getElementById('q').value")

    first, order, second, text = browse(tmp_path, prepare, visit)
    assert (first, order, second, text) == (["docs-us", "docs-eu"], "ascending", ["docs-eu", "docs-us"], "DOCS")


def test_the_table_of_two_tiers_shows_who_judged_and_the_mean_on_every_screen(tmp_path):
    """What does not fit scrolls inside its box; answers and mean are seen without that."""

    async def prepare(w):
        await two_tiers(w, 400)

    def visit(tab, base, found, soon, w):
        for width in WIDTHS:
            for scheme in ("light", "dark"):
                tab.look(width, scheme)
                tab.open(f"{base}/apps/shop?since=6h")
                until(tab, "!!document.querySelector('table.tiers tbody td')")
                assert tab.run("document.documentElement.scrollWidth - innerWidth") <= 0, width
                seen = tab.run(
                    """(() => { const box = document.querySelector("table.tiers").parentElement.getBoundingClientRect();
                    return [...document.querySelectorAll("table.tiers tr")].map(row => [...row.cells].slice(0, 3)
                      .filter(cell => cell.colSpan === 1 && cell.getBoundingClientRect().right > box.right + 1)
                      .length); })()"""
                )
                assert len(seen) == 11, "a heading, and two metrics of five rows"
                assert not any(seen), (width, seen)
        assert not tab.complaints

    browse(tmp_path, prepare, visit, config=Config(judge=TIERS))
