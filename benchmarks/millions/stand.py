"""The monitors' own process over a filled store, with samples coming in meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from benchmarks.millions.fill import APPS, MODELS
from gaugeway.records import Context, Sample
from gaugeway.storage.queues import from_url
from tests.support.in_thread import in_thread
from tests.support.product import Product
from tests.support.scenario import TOPICS, Script, passages

CONFIG = """
[[upstreams]]
base_url = "http://127.0.0.1:1/v1"

[monitors]
window_s = {window}
gateways = []

[judge]
base_url = "{judge}/judge/v1"
model = "judge-large"
concurrency = 8

[metrics.faithfulness]
rate = 0.25

[metrics.context_relevancy]
rate = 0.25

[alerts]
slices = ["app", "model"]

[[alerts.rules]]
name = "answers"
metric = "faithfulness"
slo = 0.9

[[alerts.rules]]
metric = "answer_relevancy"
baseline = "auto"

[[alerts.rules]]
metric = "lexical_groundedness"
baseline = "auto"
{engines}
"""


class Feed:
    """Puts samples into the queue at a steady pace, from a thread; `put` counts them."""

    def __init__(self, queue_url: str, per_s: float) -> None:
        self._url, self._pause_s = queue_url, 1.0 / per_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self.put = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(10)

    async def _run(self) -> None:
        queue, draw, begin = from_url(self._url, 120.0, 5), random.Random(2), time.monotonic()
        topics = list(TOPICS)
        while not self._stopping.is_set():
            topic = draw.choice(topics)
            text = passages(topic, draw.randrange(50))
            sample = Sample(
                id=uuid.uuid4().hex,
                started_at=time.time(),
                app=draw.choice(APPS),
                model=draw.choice(MODELS),
                question=TOPICS[topic].format(n=draw.randrange(10**6)),
                contexts=(Context(text=text),),
                context_source="explicit",
                response=". ".join(text.split(". ")[:3]),
                tags={"release": "42", "tenant": f"tenant-{draw.randrange(20)}"},
                prompt="9f3b21c4",
            )
            await queue.put([sample])
            self.put += 1
            await asyncio.sleep(max(0.0, begin + self.put * self._pause_s - time.monotonic()))
        await queue.aclose()


class Monitors(Product):
    """The monitors' process."""

    @property
    def pid(self) -> int:
        """Its number."""
        assert self._process is not None
        return self._process.pid


@contextlib.contextmanager
def monitors(directory: Path, *, engines: str = "", window_s: float = 3600.0) -> Iterator[tuple[Monitors, float]]:
    """Run them; yields the process and how long it took until it answered."""
    with in_thread(Script()) as judge:
        running = Monitors(directory, CONFIG.format(judge=judge, engines=engines, window=window_s), command="monitors")
        begin = time.perf_counter()
        try:
            running.start()
            yield running, time.perf_counter() - begin
        finally:
            running.stop()


def firing(running: Monitors, within_s: float) -> dict[str, Any]:
    """An alert with its description: wait until the engine has read its day."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        for one in running.get("/api/alerts"):
            if one["state"] == "firing" and one["mean_since"] is not None:
                return dict(one)
        time.sleep(0.5)
    raise SystemExit(f"no alert within {within_s:g} s")
