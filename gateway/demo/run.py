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

from gateway.demo import servers
from gateway.demo.model import Model, Receive, Send, serving
from gateway.demo.product import SLO, Ports, Product, ProductError
from gateway.demo.rag import APP, Index, Question, RagApp, handbook, questions
from gateway.demo.view import Progress, Screen, View, Wrong, alert_lines, view_for
from monitors.runtime.tasks import spawn
from monitors.signals import SIGNALS

METRIC = "faithfulness"
ALERT = "GaugewayQualityDrop"
PER_SECOND = 9.0
WORKERS = 4
HEALTHY_S = 15.0
ENOUGH_N_EFF = 120
_HEALTHY_SHARE = 0.6
_POLL_S = 0.5
_START_S = 30.0
_LINGER_S = 15.0
_DROPPED = 0.5
_STRIDE = 17


class DemoError(Exception):
    """The demo failed: no alert in time, or too few scores."""


class Receiver:
    """Takes webhooks, as an on-call tool would; `fired` is set by the alert the demo waits for."""

    def __init__(self) -> None:
        self.alerts: list[dict[str, Any]] = []
        self.fired = asyncio.Event()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Store the notification and answer 200."""
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = bool(message.get("more_body"))
        with contextlib.suppress(msgspec.DecodeError):
            self._take(msgspec.json.decode(body))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    def firing(self) -> dict[str, Any] | None:
        """Return the first firing alert about the metric that the demo breaks."""
        for alert in self.alerts:
            labels = alert.get("labels", {})
            if alert.get("status") == "firing" and (labels.get("alertname"), labels.get("metric")) == (ALERT, METRIC):
                return alert
        return None

    def _take(self, body: Any) -> None:
        self.alerts += [one for one in body.get("alerts", []) if isinstance(one, dict)]
        if self.firing():
            self.fired.set()


class Traffic:
    """Simulated users: a few concurrent requests at a constant rate."""

    def __init__(self, app: RagApp, asked: list[Question], progress: Progress) -> None:
        self._app = app
        self._progress = progress
        self._next: Iterator[Question] = (asked[turn * _STRIDE % len(asked)] for turn in itertools.count())

    async def user(self, number: int) -> None:
        """Ask questions in turn until cancelled."""
        import openai  # noqa: PLC0415 - see rag.py

        pace = WORKERS / PER_SECOND
        await asyncio.sleep(pace * number / WORKERS)
        while True:
            began = time.monotonic()
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

    def __init__(self, seconds: float, console: Console) -> None:
        self._deadline = time.monotonic() + seconds
        self._began = time.monotonic()
        self._seconds = seconds
        self._console = console
        self._progress = Progress()
        self._receiver = Receiver()

    async def run(self, port: int | None) -> int:
        """Run all phases; return the exit code."""
        try:
            ports = Ports.free(port)
        except ProductError as error:
            self._print(f"The demo failed: {error}")
            return 1
        with tempfile.TemporaryDirectory(prefix="gaugeway-demo-") as folder:
            async with serving(Model(slips=True)) as model_url, servers.in_loop(self._receiver) as webhook_url:
                urls = {"model_url": model_url, "webhook_url": webhook_url}
                product = Product(Path(folder), ports, **urls, start_s=min(_START_S, self._seconds))
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
        await product.start()
        self._print(*_where(product))
        view = view_for(self._console)
        try:
            await self._act(product, view)
        finally:
            view.close()
        if not isinstance(view, Screen):
            self._print(*alert_lines(self._progress))
        waited = (self._progress.alert_at or 0.0) - (self._progress.broken_at or 0.0)
        self._print(
            "These addresses are gone now. Your own app: gaugeway serve --upstream https://api.openai.com/v1",
            f"alert fired {waited:.1f} s after the index was broken, likely cause {self._progress.cause}",
        )
        return 0

    async def _act(self, product: Product, view: View) -> None:
        index = Index(handbook())
        app = RagApp(index, product.base_url)
        traffic = Traffic(app, questions(), self._progress)
        users = [spawn(traffic.user(number), name="demo-user") for number in range(WORKERS)]
        try:
            await self._healthy(product, view)
            index.rebuild_wrongly()
            await self._broken(product, view)
            await self._look_closer(product)
            await self._linger(product, view)
        finally:
            for user in users:
                user.cancel()
            await asyncio.gather(*users, return_exceptions=True)
            await app.aclose()
        view.show(self._progress)

    async def _healthy(self, product: Product, view: View) -> None:
        """Wait for enough scores before the regression. Raises DemoError on timeout."""
        self._progress.phase = "healthy"
        view.say("Phase 1: healthy index.")
        began, latest = time.monotonic(), self._began + _HEALTHY_SHARE * self._seconds
        async for _ in self._ticks(product, view, latest):
            if time.monotonic() - began >= HEALTHY_S and self._known():
                return
        waited = f"after {latest - self._began:.0f} s; a busy machine needs more --seconds"
        raise DemoError(f"no interval for {METRIC} from {ENOUGH_N_EFF} scores {waited}")

    async def _broken(self, product: Product, view: View) -> None:
        """Wait for the alert. Raises DemoError on timeout."""
        self._progress.phase = "broken index"
        self._progress.broken_at = time.time()
        view.say("Phase 2: broken index: each vector points to another row.")
        async for _ in self._ticks(product, view, self._deadline):
            if self._receiver.fired.is_set():
                self._progress.alert = self._receiver.firing()
                self._progress.alert_at = time.time()
                self._progress.phase = "alert fired"
                return
        raise DemoError(f"no webhook with {ALERT} for {METRIC} (slo {SLO}) within {self._seconds:.0f} s")

    async def _linger(self, product: Product, view: View) -> None:
        """Wait, if time allows, until the means show the drop too: the detector reacts before any average."""
        async for _ in self._ticks(product, view, min(self._deadline, time.monotonic() + _LINGER_S)):
            if self._mean() <= _DROPPED:
                return

    async def _ticks(self, product: Product, view: View, until: float) -> AsyncIterator[None]:
        """Poll the product and refresh the view; wakes up immediately when the alert arrives."""
        while time.monotonic() < until:
            product.check()
            self._progress.metrics = [row for row in await product.metrics() if row.get("app") == APP]
            view.show(self._progress)
            yield
            if self._receiver.fired.is_set():
                await asyncio.sleep(_POLL_S)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_S):
                    await self._receiver.fired.wait()

    def _mean(self) -> float:
        shown = (row.get("mean") for row in self._progress.metrics if row.get("metric") == METRIC)
        return next((float(mean) for mean in shown if mean is not None), 1.0)

    def _known(self) -> bool:
        return any(
            row.get("metric") == METRIC and row.get("ci_low") is not None and (row.get("n_eff") or 0) >= ENOUGH_N_EFF
            for row in self._progress.metrics
        )

    async def _look_closer(self, product: Product) -> None:
        """Fetch the worst answers listed in the alert."""
        ids = str(self._progress.annotations.get("worst_exchanges") or "").split(",")
        for found in [await product.exchange(one) for one in ids if one]:
            if found is not None:
                self._progress.worst.append(_wrong(found))

    def _print(self, *lines: str) -> None:
        for line in lines:
            self._console.print(Text(line), soft_wrap=True)


async def run_demo(seconds: float, port: int | None, console: Console) -> int:
    """Show the whole product within `seconds`; 0 when the alert fired, 1 (with the reason) when not.

    `port` is the traffic port, None for a free one. However it ends, the child process ends with it.
    """
    running = spawn(Demo(seconds, console).run(port), name="demo")
    with _cancelled_by_sigterm(running):
        try:
            return await running
        except asyncio.CancelledError:
            running.cancel()
            await asyncio.wait([running])
            if (this := asyncio.current_task()) is not None and this.cancelling():
                raise  # Ctrl-C
            console.print("The demo was stopped.")
            return 1


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
        str(one.get("metric")): float(one["outcome"]["value"])
        for one in found.get("evaluations", [])
        if isinstance(one.get("outcome"), dict) and one["outcome"].get("value") is not None
        if one.get("metric") not in SIGNALS
    }
    text = str(contexts[0].get("text", "")) if isinstance(contexts[0], dict) else str(contexts[0])
    return Wrong(str(sample.get("question")), str(sample.get("response")), text, scores)
