"""`gaugeway demo` with the real product: the machine sets its pace, its table shows the fall, each end has a reason."""

import asyncio
import contextlib
import io
import os
import re
import signal
import socket

import httpx
import pytest
from rich.console import Console

from gaugeway.demo import rag, run, view
from gaugeway.demo.model import Model, serving
from gaugeway.demo.product import Ports, Product, ProductError
from gaugeway.runtime.tasks import spawn
from tests.support.processes import arguments, children

pytestmark = pytest.mark.timeout(3600)  # the machine sets the pace
ROW = re.compile(
    r"^ *\d+ +(?P<answered>\d+) +\d+ +(?P<scored>\d+) +"
    r"(?:not enough yet|(?P<newest>[\d.]+) \[[\d.]+, [\d.]+\]) +(?:not enough yet|(?P<before>[\d.]+) \[)",
    re.MULTILINE,
)


class HeldJudge(Model):
    """A model whose judge answers only once `released` is set."""

    def __init__(self):
        super().__init__(slips=True)
        self.released = asyncio.Event()

    async def __call__(self, scope, receive, send):
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = bool(message.get("more_body"))
        if b'"judge-1"' in body:
            await self.released.wait()
        whole = [{"type": "http.request", "body": body, "more_body": False}]

        async def again():
            return whole.pop() if whole else await receive()

        await super().__call__(scope, again, send)


@contextlib.asynccontextmanager
async def starting(directory, model, ports=None):
    """The demo's product in front of a model, not started yet."""
    async with serving(model) as url:
        product = Product(directory, ports or Ports.free(), model_url=url, webhook_url="http://127.0.0.1:9/")
        try:
            yield product
        finally:
            await product.stop()


def demo(seconds=None):
    """Run the whole demo; its exit code and what it printed."""
    out = io.StringIO()
    return asyncio.run(run.run_demo(seconds, None, Console(file=out, width=200))), out.getvalue()


def test_the_fall_is_printed_until_the_alert_whose_headline_and_cause_are_the_end(monkeypatch):
    monkeypatch.setattr(run, "HEALTHY_SCORES", 40)
    code, text = demo()
    assert code == 0, text
    healthy, broken = text.split("Phase 2")
    assert int(list(ROW.finditer(healthy))[-1]["scored"]) >= 30
    rows = list(ROW.finditer(broken))
    newest, before = [float(row["newest"]) for row in rows], [float(row["before"]) for row in rows]
    assert min(before) >= 0.8, "the mean of the healthy index stays beside the falling one"
    assert newest[-1] <= 0.3, "at the end the newest scores are all of the broken index"
    assert any(newest[-1] + 0.1 < mean < before[-1] - 0.1 for mean in newest), f"it is shown while it falls: {newest}"
    end = text[text.rindex("\nALERT\n") :].splitlines()
    assert "faithfulness" in end[2], "the headline, as notified, comes first"
    assert any(re.search(r"fired [\d.]+ s and \d+ scored answers after the index broke", line) for line in end)
    assert any("likely cause: retrieval. context_relevancy fell" in line for line in end)
    assert any(line.startswith("Where to look: at the index and the retriever") for line in end)


def test_with_keep_the_page_shows_the_alert_until_the_demo_is_stopped(monkeypatch):
    monkeypatch.setattr(run, "HEALTHY_SCORES", 40)
    out = io.StringIO()

    async def play():
        going = spawn(run.run_demo(None, None, Console(file=out, width=200), keep=True), name="demo")
        while not (kept := re.search(r"Until Ctrl-C: (\S+)", out.getvalue())):
            assert not going.done(), out.getvalue()
            await asyncio.sleep(0.2)
        async with httpx.AsyncClient(timeout=60) as client:
            page = await client.get(kept[1])
        os.kill(os.getpid(), signal.SIGTERM)
        return page, await going

    page, code = asyncio.run(play())
    assert code == 0, out.getvalue()
    assert page.status_code == 200
    assert "faithfulness" in page.text


def test_questions_are_asked_only_as_fast_as_answers_are_scored(tmp_path):
    async def play():
        model = HeldJudge()
        async with starting(tmp_path, model) as product:
            config = tmp_path / "gaugeway.toml"
            config.write_text(config.read_text().replace("[judge]\n", "[judge]\ntimeout_s = 3600\n"))
            await product.start(print)
            showing = run.Demo(Console(file=io.StringIO()))
            app = rag.RagApp(rag.Index(rag.handbook()), product.base_url)
            traffic = run.Traffic(app, rag.questions(), showing.progress)
            users = [spawn(traffic.user(number), name="demo-user") for number in range(run.WORKERS)]
            progress, full = showing.progress, 0
            try:
                async for _ in showing.ticks(product, traffic, view.View(Console(file=io.StringIO()))):
                    full += progress.asked == run.WAITING_AT_ONCE
                    assert progress.asked <= run.WAITING_AT_ONCE
                    if full == 10:
                        break
                model.released.set()
                async for settled in showing.ticks(product, traffic, view.View(Console(file=io.StringIO()))):
                    assert progress.asked - settled <= run.WAITING_AT_ONCE
                    if progress.asked > 2 * run.WAITING_AT_ONCE:
                        return progress
            finally:
                for user in users:
                    user.cancel()
                await asyncio.gather(*users, return_exceptions=True)
                await app.aclose()

    progress = asyncio.run(play())
    assert progress.failed == 0
    assert len(progress.scores.scored()) > 0


@pytest.mark.parametrize("plane", ["gateway", "monitors"])
def test_a_process_that_dies_ends_the_demo_with_its_name(tmp_path, plane):
    async def play():
        async with starting(tmp_path, Model()) as product:
            await product.start(print)
            product.check()
            victim = next(child for child in children(product.pid) if f"gaugeway: {plane}".encode() in arguments(child))
            os.kill(victim, signal.SIGKILL)
            while True:
                product.check()
                await asyncio.sleep(0.05)

    with pytest.raises(ProductError, match=f"^{plane} was killed by SIGKILL$"):
        asyncio.run(play())


def test_a_product_that_cannot_start_ends_the_demo_and_its_log_says_why(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        gateway, admin = run.servers.free_ports(2)
        ports = Ports(gateway, admin, taken.getsockname()[1])

        async def play():
            async with starting(tmp_path, Model(), ports) as product:
                try:
                    await product.start(print)
                finally:
                    tail.extend(product.log_tail())

        tail = []
        with pytest.raises(ProductError, match=r"gaugeway serve exited with code \d"):
            asyncio.run(play())
    assert str(ports.monitors) in "\n".join(tail)


def test_without_an_alert_it_ends_after_so_many_answers_with_the_reason(monkeypatch):
    monkeypatch.setattr(run, "HEALTHY_SCORES", 12)
    monkeypatch.setattr(run, "ANSWERS_OF_A_PHASE", 24)
    monkeypatch.setattr(rag.Index, "rebuild_wrongly", lambda _: None)
    code, text = demo()
    assert code == 1
    reason = re.search(r"The demo failed: no GaugewayQualityDrop .* after (\d+) answers .* mean ([\d.]+)", text)
    assert reason, text
    assert int(reason[1]) >= 24
    assert float(reason[2]) >= 0.8, "the stated mean says why: nothing fell"
    assert "The last lines of gaugeway's log:" in text


def test_without_scores_it_ends_after_so_many_answers_with_the_reasons(monkeypatch):
    monkeypatch.setattr(run, "ANSWERS_OF_A_PHASE", 12)
    monkeypatch.setattr(run, "HEALTHY_SCORES", 1000)
    code, text = demo()
    assert code == 1
    assert re.search(
        r"The demo failed: only \d+ of \d+ answers have a score of faithfulness; without a score: ", text
    ), text
