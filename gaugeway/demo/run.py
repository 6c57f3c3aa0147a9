"""`gaugeway demo`: the scripted model, the RAG app, the real product, a regression and the alert that catches it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from gaugeway.data_files import table
from gaugeway.demo import servers
from gaugeway.demo.model import Model, Receive, Send, serving
from gaugeway.demo.product import SLO, Ports, Product, ProductError
from gaugeway.demo.rag import Index, Question, RagApp, handbook, questions
from gaugeway.demo.view import METRIC, NEWEST, Progress, View, Wrong, alert_lines, heading, row_text
from gaugeway.runtime.tasks import spawn
from gaugeway.signals import SIGNALS

ALERT = "GaugewayQualityDrop"
PER_SECOND = 9.0
WORKERS = 4
WAITING_AT_ONCE = 16
"""Questions that may be on their way to a score: the machine, not a clock, sets their pace."""
HEALTHY_SCORES = 120
"""Scores of the healthy index before it breaks."""
ANSWERS_OF_A_PHASE = 300
"""Answers after which a phase that has not reached its end fails: what ends one takes a fraction of them."""
_POLL_S = 0.5
_STRIDE = 17


class DemoError(Exception):
    """The demo failed: no alert, or too few scores, after as many answers as should give them."""


class Receiver:
    """Takes webhooks, as an on-call tool would; `fired` is set by the alert the demo waits for."""

    def __init__(self) -> None:
        self.alerts: list[dict[str, Any]] = []
        self.fired = asyncio.Event()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Store the notification and answer 200."""
        if scope["type"] != "http":
            return
        body = await servers.body(receive)
        with contextlib.suppress(msgspec.DecodeError):
            self._take(msgspec.json.decode(body))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    def firing(self) -> dict[str, Any] | None:
        """Return the latest notification of the alert about the metric that the demo breaks."""
        for alert in self.alerts[::-1]:
            labels = alert.get("labels", {})
            if alert.get("status") == "firing" and (labels.get("alertname"), labels.get("metric")) == (ALERT, METRIC):
                return alert
        return None

    def _take(self, body: Any) -> None:
        self.alerts += [alert for alert in body.get("alerts", []) if isinstance(alert, dict)]
        if self.firing():
            self.fired.set()


class Traffic:
    """Simulated users: a few concurrent requests, at most `PER_SECOND`, while the scores keep up."""

    def __init__(self, app: RagApp, asked: list[Question], progress: Progress) -> None:
        self._app = app
        self._progress = progress
        self._next: Iterator[Question] = (asked[turn * _STRIDE % len(asked)] for turn in itertools.count())
        self._begun = self._settled = 0
        self._most = WAITING_AT_ONCE
        self._has_room = asyncio.Event()

    def settle(self, questions: int) -> None:
        """Note that so many questions of all begun do not wait any more: they are scored, or never will be.

        A reading may count one twice that is just being queued, so the highest one holds.
        """
        self._settled = max(self._settled, questions)
        self._progress.waiting = self._progress.asked + self._progress.failed - self._settled
        self._has_room.set()

    def hold(self) -> None:
        """Stop the users: no further questions are sent."""
        self._most = 0

    async def user(self, number: int) -> None:
        """Ask questions in turn until cancelled."""
        import openai  # noqa: PLC0415 - see rag.py

        pace = WORKERS / PER_SECOND
        await asyncio.sleep(pace * number / WORKERS)
        while True:
            while self._begun - self._settled >= self._most:
                self._has_room.clear()
                await self._has_room.wait()
            began = time.monotonic()
            self._begun += 1
            try:
                answer = await self._app.ask(next(self._next).question)
            except openai.OpenAIError:
                self._progress.failed += 1
            else:
                self._progress.asked += 1
                self._progress.streamed += answer.streamed
            await asyncio.sleep(max(0.0, pace - (time.monotonic() - began)))


class Demo:
    """One run of the demo."""

    def __init__(self, console: Console, *, keep: bool = False) -> None:
        self._console, self._keep = console, keep
        self._receiver = Receiver()
        self.progress = Progress()

    async def run(self, port: int | None) -> int:
        """Run all phases; return the exit code."""
        try:
            ports = Ports.free(port)
        except ProductError as error:
            self._print(f"The demo failed: {error}")
            return 1
        with tempfile.TemporaryDirectory(prefix="gaugeway-demo-") as folder:
            async with serving(Model(slips=True)) as model_url, servers.in_loop(self._receiver) as webhook_url:
                product = Product(Path(folder), ports, model_url=model_url, webhook_url=webhook_url)
                try:
                    return await self._with(product)
                except (ProductError, DemoError) as error:
                    self._print(f"The demo failed: {error}", "The last lines of gaugeway's log:")
                    self._print(*(f"    {line}" for line in product.log_tail()))
                    return 1
                finally:
                    await asyncio.shield(product.stop())

    async def _with(self, product: Product) -> int:
        self._print("Starting the scripted model and gaugeway (both planes) on loopback ports ...")
        await product.start(self._print)
        self._print(*_where(product))
        view = View(self._console)
        try:
            await self._act(product, view)
        finally:
            view.close()
        self._print("", "ALERT", *(f"  {line}" for line in alert_lines(self.progress)), "")
        self._print(
            f"Where to look: {_LOOK[self.progress.cause]}; see docs/how-to/respond-to-an-alert.md",
            "Your own app: gaugeway serve --upstream https://api.openai.com/v1",
        )
        if not self._keep:
            self._print("The addresses above are gone now; --keep leaves the page open.")
            return 0
        self._print(f"Until Ctrl-C: {product.monitors}/alerts/{self.progress.described['fingerprint']}")
        while True:
            product.check()
            await asyncio.sleep(_POLL_S)

    async def _act(self, product: Product, view: View) -> None:
        index = Index(handbook())
        app = RagApp(index, product.base_url)
        traffic = Traffic(app, questions(), self.progress)
        users = [spawn(traffic.user(number), name="demo-user") for number in range(WORKERS)]
        try:
            await self._healthy(product, traffic, view)
            index.rebuild_wrongly()
            await self._broken(product, traffic, view)
            await self._notified(product, traffic, view)
        finally:
            for user in users:
                user.cancel()
            await asyncio.gather(*users, return_exceptions=True)
            await app.aclose()

    async def _healthy(self, product: Product, traffic: Traffic, view: View) -> None:
        """Wait for enough scores before the regression. Raises DemoError if the answers do not give them."""
        self.progress.phase = "healthy"
        view.say(f"Phase 1: healthy index, until {HEALTHY_SCORES} answers are scored.")
        view.say(heading())
        async for done in self.ticks(product, traffic, view):
            scored = len(self.progress.scores.scored())
            if self._receiver.fired.is_set():
                raise DemoError(f"{ALERT} for {METRIC} fired before the index was broken")
            if scored >= HEALTHY_SCORES:
                return
            if done >= ANSWERS_OF_A_PHASE:
                raise DemoError(f"only {scored} of {done} answers have a score of {METRIC}; {self._unscored()}")

    async def _broken(self, product: Product, traffic: Traffic, view: View) -> None:
        """Wait until the detector fires. Raises DemoError if it has read enough answers and does not."""
        progress, before = self.progress, self.progress.asked
        progress.phase = "broken index"
        progress.scores.broken_at = time.time()
        view.say("Phase 2: broken index: each vector points to another row.")
        async for done in self.ticks(product, traffic, view):
            scored = progress.scores.since_break()
            if (alert := await product.alert(METRIC)) is not None:
                progress.described, progress.alert_after = alert, scored
                progress.alert_after_s = time.time() - progress.scores.broken_at
                view.say(
                    f"The detector fires after {progress.alert_after_s:.1f} s; the notification follows. Its page:"
                )
                view.say(f"    {product.monitors}/alerts/{alert['fingerprint']} (until the demo ends)")
                return
            if done - before >= ANSWERS_OF_A_PHASE:
                traffic.hold()  # a busy machine may have scored more than its detector has read
                if await product.detector_read(METRIC) > float(progress.scores.scored()[-1]["started_at"]):
                    now = f"the newest {NEWEST} scores have the mean {progress.scores.newest()}"
                    raise DemoError(
                        f"no {ALERT} for {METRIC} (slo {SLO}) after {done - before} answers of the broken index, "
                        f"{scored} of them scored: {now}; {self._unscored()}"
                    )

    async def _notified(self, product: Product, traffic: Traffic, view: View) -> None:
        """Go on until the alert is notified and described, and the newest scores are all of the broken index.

        Nobody asks any more once they are: what is left to do is the monitors' work.
        """
        progress = self.progress
        progress.phase = "alert fired"
        async for _ in self.ticks(product, traffic, view):
            fell = progress.scores.since_break() >= NEWEST
            if fell:
                traffic.hold()
            progress.described = await product.alert(METRIC) or progress.described
            if fell and self._receiver.fired.is_set() and progress.described["mean_since"] is not None:
                break
        progress.alert = self._receiver.firing()
        view.say(row_text(progress))
        for exchange_id in progress.described["worst_exchanges"]:
            if (found := await product.exchange(exchange_id)) is not None:
                progress.worst.append(_wrong(found))

    async def ticks(self, product: Product, traffic: Traffic, view: View) -> AsyncIterator[int]:
        """Read the scores, let the users ask while few answers wait, refresh the view.

        Yields how many answers do not wait any more.
        """
        while True:
            product.check()
            answered, failed = self.progress.asked, self.progress.failed
            if (waiting := await product.unscored(answered)) is not None:
                traffic.settle(answered + failed - waiting)
            self.progress.scores.take(await product.points())
            view.show(self.progress)
            yield self.progress.asked - self.progress.waiting
            await asyncio.sleep(_POLL_S)

    def _unscored(self) -> str:
        reasons = self.progress.scores.unscored().most_common()
        return "without a score: " + (", ".join(f"{count} {reason}" for reason, count in reasons) or "none was judged")

    def _print(self, *lines: str) -> None:
        for line in lines:
            self._console.print(Text(line), soft_wrap=True)


async def run_demo(seconds: float | None, port: int | None, console: Console, *, keep: bool = False) -> int:
    """Show the whole product, within `seconds` if given; 0 when the alert fired, 1 (with the reason) when not.

    `port` is the traffic port, None for a free one. With `keep` it goes on until it is stopped. However it ends, the
    child process ends with it.
    """
    demo = Demo(console, keep=keep)
    running = spawn(demo.run(port), name="demo")
    with _cancelled_by_sigterm(running):
        try:
            async with asyncio.timeout(seconds) as limit:
                return await running
        except (asyncio.CancelledError, TimeoutError):
            running.cancel()
            await asyncio.wait([running])
            if keep and demo.progress.alert is not None:
                return 0
            if (this := asyncio.current_task()) is not None and this.cancelling():
                raise  # Ctrl-C
            console.print(Text(_stopped(demo.progress, seconds if limit.expired() else None)), soft_wrap=True)
            return 1


def _stopped(progress: Progress, seconds: float | None) -> str:
    """Say how far the demo got when it was stopped, after `seconds` or by a signal."""
    if seconds is None:
        return "The demo was stopped."
    scores = progress.scores
    reached = f"{len(scores.scored())} of {HEALTHY_SCORES} scores of the healthy index"
    if scores.broken_at is not None:
        reached = f"{scores.since_break()} scores of the broken index"
    return (
        f"The demo was stopped after {seconds:g} s, as --seconds says, before its end, with {reached}. Nothing failed; "
        "this machine needs more time. Without --seconds the demo takes the time it needs."
    )


@contextlib.contextmanager
def _cancelled_by_sigterm(running: asyncio.Task[int]) -> Iterator[None]:
    """Cancel `running` on SIGTERM. Signals reach the main thread only: in any other one nothing is set up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, running.cancel)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


_LOOK: dict[str, str] = table("gaugeway.demo", "words.toml")["look"]
"""Where to look for each cause."""


def _where(product: Product) -> list[str]:
    return [
        f'An app needs one line: OpenAI(base_url="{product.base_url}")',
        f"Look here while it runs: {product.monitors}/ (the page)",
        f"    {product.gateway_admin}/metrics  {product.monitors}/metrics",
        f"    {product.monitors}/api/metrics  /api/alerts  /api/exchanges",
    ]


def _wrong(found: dict[str, Any]) -> Wrong:
    sample = found["sample"]
    contexts = sample.get("contexts") or [{}]
    scores = {
        str(evaluation.get("metric")): float(evaluation["outcome"]["value"])
        for evaluation in found.get("evaluations", [])
        if isinstance(evaluation.get("outcome"), dict) and evaluation["outcome"].get("value") is not None
        if evaluation.get("metric") not in SIGNALS
    }
    text = str(contexts[0].get("text", "")) if isinstance(contexts[0], dict) else str(contexts[0])
    return Wrong(str(sample.get("question")), str(sample.get("response")), text, scores)
