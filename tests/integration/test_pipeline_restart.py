"""The funnel on the page adds up after the product was stopped and started again, although its counters begin at 0."""

from __future__ import annotations

import re

import httpx

from benchmarks.page.browser import chromium
from tests.support.product import needs, product
from tests.support.scripted_model import serve

HALF = '[[upstreams]]\nbase_url = "{url}"\n\n[capture]\nrate = 0.5\n'
SENT = 40
ROWS = (
    "[...document.querySelectorAll('.funnel tbody tr')].map(row => [row.className,"
    " [...row.cells[0].childNodes].filter(one => one.nodeType === Node.TEXT_NODE).map(one => one.data.trim()).join(''),"
    " row.cells[1].innerText])"
)


def funnel(tab, running):
    """The stages with their counts, checked to add up; and the losses by name."""
    tab.open(f"{running.monitors}/pipeline?since=1h")
    stages, losses, left, lost = {}, {}, None, 0
    for kind, name, text in tab.run(ROWS):
        count = int(re.sub(r"[^0-9]", "", text))
        if kind == "loss":
            losses[name] = count
            lost += count
        else:
            assert left is None or left - lost == count, (name, stages, losses)
            stages[name] = left = count
            lost = 0
    return stages, losses


def ask(running, number):
    body = {
        "model": "handbook-1",
        "messages": [{"role": "user", "content": f"How many moons has Mars? ({number})"}],
        "gaugeway": {"contexts": ["Mars has two moons, Phobos and Deimos."]},
    }
    httpx.post(f"{running.base_url}/chat/completions", json=body).raise_for_status()


def counted(running):
    return running.value(running.admin, "gaugeway_exchanges_total")


def was_read(running):
    """Whether the gateway's counters were read once: counting begins with the first reading."""
    return "gateway-counts/last" in running.saved_states()


def scored(running):
    """The exchanges that the worker has stored, all of which have a score."""
    rows = running.get("/api/exchanges?metric=lexical_groundedness&limit=1000")
    return len(rows)


def test_the_funnel_adds_up_after_a_restart(tmp_path):
    needs("chromium")
    with serve() as url, product(tmp_path, HALF.format(url=url)) as running, chromium(tmp_path) as tab:
        running.until(lambda: was_read(running), 60, what="the counters are read once")
        for number in range(SENT):
            ask(running, number)
        running.until(lambda: counted(running) == SENT, 60, what="every exchange is counted")
        captured = int(running.value(running.admin, "gaugeway_exchanges_total", outcome="captured"))
        assert 0 < captured < SENT
        running.until(lambda: scored(running) == captured, 60, what="every captured exchange is scored")
        running.until(lambda: funnel(tab, running)[0].get("Requests") == SENT, 60, what="the counters are read")
        assert running.stop() == 0
        running.start()
        assert counted(running) == 0
        stages, losses = funnel(tab, running)
        assert stages["Requests"] == SENT
        assert stages["Captured"] == stages["Stored"] == stages["Scored"] == captured
        assert losses == {"sampled out": SENT - captured}
        for number in range(SENT, 2 * SENT):
            ask(running, number)
        running.until(lambda: counted(running) == SENT, 60, what="every exchange is counted")
        more = int(running.value(running.admin, "gaugeway_exchanges_total", outcome="captured"))
        running.until(lambda: scored(running) == captured + more, 60, what="every captured exchange is scored")
        running.until(lambda: funnel(tab, running)[0]["Requests"] == 2 * SENT, 60, what="the counters are read again")
        assert not tab.complaints
