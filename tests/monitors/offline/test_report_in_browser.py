"""The HTML report in a real Chromium: it loads nothing, complains of nothing, and shows what it says it shows."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import time
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect

from examples.rules import RuleJudge
from monitors import evaluate
from monitors.offline.reports import render
from tests.monitors.offline.test_reports import CLAIMS, EVIL, EXTRAS, a_run
from tests.support.product import needs

DATA = Path(__file__).parents[3] / "examples" / "data" / "finance.jsonl"
QUIET = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--mute-audio"),
)
START_S = 30.0
NAMES = ("faithfulness", "hallucination", "context_recall", "context_relevancy", "lexical_groundedness", "mrr")
MARKS = """
[...document.querySelectorAll("details mark")].map(one => {
  const style = getComputedStyle(one);
  return [one.className, one.textContent.trim(), style.backgroundColor, style.borderBottomStyle];
})
"""


class Page:
    """A page of the browser, through its debugging protocol. `complaints` and `requests` are what it met so far."""

    def __init__(self, socket):
        self._socket, self._ids = socket, itertools.count(1)
        self.complaints, self.requests, self._loaded = [], [], 0
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method, **parameters):
        """Call a method and return its result."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while (message := self._next(START_S)).get("id") != number:
            pass
        assert "error" not in message, message
        return message["result"]

    def open(self, url):
        """Load a page and wait until it is there, and for what it may do right after."""
        self.complaints, self.requests, self._loaded = [], [], 0
        self.ask("Page.navigate", url=url)
        while not self._loaded:
            self._next(START_S)
        self.ask("Runtime.evaluate", expression="new Promise(done => setTimeout(done, 200))", awaitPromise=True)

    def look(self, expression):
        """The value of an expression."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"]["value"]

    def sized(self, width, scheme):
        """Show the page as wide as this, light or dark."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def _next(self, timeout_s):
        message = json.loads(self._socket.recv(timeout_s))
        told = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])
            case "Log.entryAdded":
                self.complaints.append(told["entry"]["text"])
            case "Runtime.consoleAPICalled":
                self.complaints.append(str(told["args"]))
            case "Runtime.exceptionThrown":
                self.complaints.append(told["exceptionDetails"]["text"])
            case "Page.loadEventFired":
                self._loaded += 1
        return message


@contextlib.contextmanager
def chromium(directory):
    profile = directory / "profile"
    arguments = [needs("chromium"), *QUIET, f"--user-data-dir={profile}", "--remote-debugging-port=0", "about:blank"]
    with (directory / "chromium.log").open("wb") as log:
        process = subprocess.Popen(arguments, stdout=log, stderr=log)
    try:
        deadline, told = time.monotonic() + START_S, profile / "DevToolsActivePort"
        while not (told.exists() and "\n" in told.read_text()):
            assert process.poll() is None, (directory / "chromium.log").read_text()
            assert time.monotonic() < deadline, (directory / "chromium.log").read_text()
            time.sleep(0.05)
        port = told.read_text().split()[0]
        about = httpx.put(f"http://127.0.0.1:{port}/json/new?about:blank", timeout=START_S).json()
        with connect(about["webSocketDebuggerUrl"], max_size=None) as socket:
            yield Page(socket)
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("browser")) as one:
        yield one


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The page on the example data set, every part of it open."""
    rows = [json.loads(line) for line in DATA.read_text("utf-8").splitlines()]
    run = evaluate(rows, metrics=NAMES, judge=RuleJudge(), source=str(DATA))
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render(".html", run, EXTRAS).replace("<details>", "<details open>"), "utf-8")
    return path


def test_it_asks_for_nothing_and_complains_of_nothing(page, report):
    page.open(report.as_uri())
    assert page.requests == [report.as_uri()]
    assert page.complaints == []
    assert page.look("document.title").startswith("Evaluation of ")
    assert page.look("document.scripts.length") == 0
    links = page.look("[...document.links].map(one => document.querySelector(one.hash)?.textContent)")
    assert set(links) == {*NAMES}, "every link leads to its metric"


def test_what_a_data_set_may_hold_stays_text(page, tmp_path):
    evil = tuple({**claim, "claim": EVIL + claim["claim"], "quote": EVIL, EVIL: EVIL} for claim in CLAIMS)
    path = tmp_path / "evil.html"
    path.write_text(render(".html", a_run(EVIL, evil), EXTRAS), "utf-8", errors="replace")
    page.open(path.as_uri())
    assert page.requests == [path.as_uri()]
    assert page.complaints == []
    assert page.look("document.querySelectorAll('script, img').length") == 0
    assert "<script>alert(1)</script>" in page.look("document.querySelector('blockquote').textContent")


def test_the_two_above_would_see_a_page_that_loads_or_runs_something(page, report, tmp_path):
    text = report.read_text("utf-8")
    inside = '<img src="http://127.0.0.1:9/x.png"><script>console.error("ran")</script>'
    held, free = tmp_path / "held.html", tmp_path / "free.html"
    held.write_text(text.replace("</body>", f"{inside}</body>"), "utf-8")
    page.open(held.as_uri())
    assert any("Content Security Policy" in one for one in page.complaints), "its own policy holds it"
    assert "ran" not in str(page.complaints)
    free.write_text(text.replace("Content-Security-Policy", "x").replace("</body>", f"{inside}</body>"), "utf-8")
    page.open(free.as_uri())
    assert page.requests == [free.as_uri(), "http://127.0.0.1:9/x.png"]
    assert "ran" in str(page.complaints)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_claims_are_marked_each_verdict_in_its_own_way(page, report, scheme):
    page.sized(1200, scheme)
    page.open(report.as_uri())
    marks = page.look(MARKS)
    assert ["not_mentioned", "Paying in eight percent doubles the match."] in [one[:2] for one in marks]
    styles = {tuple(one[2:]): one[0] for one in marks}
    assert {one[0] for one in marks} == set(styles.values()) == {"supported", "contradicted", "not_mentioned"}
    assert len(styles) == 3
    assert all(not background.endswith(", 0)") and border != "none" for background, border in styles)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_it_fits_narrow_and_wide_light_and_dark(page, report, width, scheme):
    page.sized(width, scheme)
    page.open(report.as_uri())
    assert page.look("document.documentElement.scrollWidth") <= width, "nothing but a table is scrolled sideways"
    assert (
        page.look("getComputedStyle(document.body).color")
        == {"light": "rgb(0, 0, 0)", "dark": "rgb(255, 255, 255)"}[scheme]
    )
    columns = page.look(
        "[...document.querySelectorAll('td:first-child')].map(one => one.getBoundingClientRect().width)"
    )
    assert min(columns) > 60, "no column is squeezed to a letter's width"
    small = page.look(
        "[...document.querySelectorAll('p, td, th, span, figcaption, summary, blockquote')]"
        ".map(one => parseFloat(getComputedStyle(one).fontSize)).reduce((a, b) => Math.min(a, b))"
    )
    assert small >= 10.0
    bars = page.look("[...document.querySelectorAll('svg rect')].map(one => one.getBoundingClientRect().right)")
    assert max(bars) <= width
