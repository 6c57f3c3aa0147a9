"""A day of traffic in a store, with a release after which one app's answers got worse, and a page over it."""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
from litestar import Litestar
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

sys.path.insert(0, str(Path(__file__).parents[2]))

from gateway.telemetry.metrics import Instruments
from gaugeway.exchange import Recording
from gaugeway.records import Context, Evaluation, Failed, Outcome, Sample, Score, Skipped, Usage
from gaugeway.runtime.auth import metrics_handler
from gaugeway.settings.shared import Alerts, Config, Judge, Notifier, Rule
from gaugeway.storage.engines.sqlite.store import _SQL, SQLiteStore
from gaugeway.storage.stores import rows
from tests.support.pages import world
from tests.support.running import serving

DAY_S = 86_400.0
DROP_S = 3 * 3600.0
SURE = 0.8
PER_S = 8.0
APPS = ("support", "handbook")
LEVELS = {"faithfulness": 0.93, "answer_relevancy": 0.88, "context_relevancy": 0.81, "lexical_groundedness": 0.79}
RULES = tuple(Rule(metric=name, baseline="auto") for name in LEVELS if name != "faithfulness")
CONFIG = Config(
    judge=Judge(base_url="http://127.0.0.1:1/v1", model="judge-large", price_in=1.0, budget_usd_per_day=5.0),
    alerts=Alerts(
        watermark_s=0.0, slices=("app", "model"), rules=(Rule(metric="faithfulness", slo=0.88, name="faithful"), *RULES)
    ),
    notifiers=(Notifier(kind="slack", name="on-call", options={"url": "https://hooks.example/x"}),),
    upstreams=({"name": "main", "base_url": "https://llm.example/v1", "models": ["chat-*"]},),
)


def day(exchanges: int, now: float, seed: int = 1) -> Iterator[tuple[Sample, list[Evaluation]]]:
    """The exchanges of the last 24 hours, evenly spread, with their evaluations."""
    draw = random.Random(seed)
    demo = files("gaugeway") / "demo"
    passages = [json.loads(line) for line in (demo / "handbook.jsonl").read_text().splitlines()]
    questions = [json.loads(line) for line in (demo / "questions.jsonl").read_text().splitlines()]
    text = {one["id"]: one["text"] for one in passages}
    for index in range(exchanges):
        at = now - DAY_S * (1 - index / exchanges)
        app = APPS[draw.random() < 0.3]
        released = app == "support" and at > now - DROP_S
        asked = questions[index % len(questions)]
        passage = text[asked["document"]]
        sample = Sample(
            id=f"{seed:02x}{index:014x}",
            started_at=at,
            app=app,
            model="chat-2" if draw.random() < 0.25 else "chat-1",
            question=asked["question"],
            contexts=(Context(text=passage, id=asked["document"], score=round(draw.uniform(0.6, 0.95), 2)),),
            context_source="explicit",
            response=passage.split(". ")[0] + ".",
            tags={"release": "42" if released else "41"},
            prompt="9f3b21c0" if released else "1c7e88ad",
            usage=Usage(input_tokens=900, output_tokens=120),
            duration_s=draw.uniform(0.4, 2.5),
        )
        yield sample, [_evaluation(sample, metric, released, draw) for metric in LEVELS]


def fill(path: Path, exchanges: int, now: float, seed: int = 1) -> None:
    """Write a day into a store's file that is there already."""
    samples, evaluations = [], []
    for sample, found in day(exchanges, now, seed):
        payload = msgspec.json.encode(sample).decode()
        samples.append((sample.id, sample.started_at, sample.app, sample.model, payload, *[None] * 5))
        evaluations += [rows.row(sample, one) for one in found]
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(_SQL["add_sample"], samples)
        connection.executemany(_SQL["add_evaluation"], evaluations)


async def make(path: Path, exchanges: int, now: float) -> None:
    """Make a store of a day."""
    store = SQLiteStore(path)
    await store.load()
    await store.aclose()
    fill(path, exchanges, now)


@contextlib.asynccontextmanager
async def standing(directory: Path, exchanges: int, *, alert: bool = True) -> AsyncIterator[Any]:
    """The page over a day, and a gateway's counts behind it."""
    await make(directory / "store.db", exchanges, time.time())
    app = Litestar([metrics_handler(_gateway(exchanges))], openapi_config=None, logging_config=None)
    async with (
        serving(app) as gateway,
        world(directory, config=CONFIG, gateways=[f"http://127.0.0.1:{gateway}"]) as made,
    ):
        _plane(made, exchanges)
        if alert:
            await made.look()
        yield made


def _evaluation(sample: Sample, metric: str, released: bool, draw: random.Random) -> Evaluation:  # noqa: FBT001
    worse = 0.14 if released and metric in ("faithfulness", "lexical_groundedness") else 0.0
    chance = draw.random()
    outcome: Outcome
    if chance < 0.01:
        outcome = Failed("judge_timeout") if metric != "lexical_groundedness" else Skipped("no_contexts")
    elif chance < 0.03:
        outcome = Skipped("refusal")
    else:
        value = min(1.0, max(0.0, draw.betavariate(9 * (LEVELS[metric] - worse), 9 * (1 - LEVELS[metric] + worse))))
        words = sample.response.rstrip(".").split(", ")
        verdicts = ["not_mentioned" if value < SURE and not index else "supported" for index in range(len(words))]
        claims = [{"claim": one, "verdict": verdict} for one, verdict in zip(words, verdicts, strict=True)]
        evidence = tuple(claims) if metric == "faithfulness" else ()
        outcome = Score(round(value, 3), "1 claim" if len(claims) == 1 else f"{len(claims)} claims", evidence)
    judge = None if metric == "lexical_groundedness" else "judge-large"
    return Evaluation(
        sample_id=sample.id, metric=metric, version="1", outcome=outcome, judge=judge, cost_usd=0.0004, seconds=0.8
    )


def _gateway(exchanges: int) -> CollectorRegistry:
    instruments = Instruments(CollectorRegistry(), version="0")
    shares = {"captured": 0.962, "sampled_out": 0.0, "opted_out": 0.031, "overflow": 0.001, "too_large": 0.006}
    for outcome, share in shares.items():
        instruments._exchanges.labels("support", outcome).inc(round(share * exchanges))  # noqa: SLF001 - counted without a gateway
    for kind, share in {"answer": 0.86, "auxiliary": 0.06, "resubmission": 0.01, "no_answer": 0.03}.items():
        instruments._captured.labels("support", kind).inc(round(share * exchanges))  # noqa: SLF001 - counted without a gateway
    for name, share in {"explicit": 0.5, "tools": 0.3, "templates": 0.13, "none": 0.03}.items():
        instruments._extractions.labels("support", name).inc(round(share * exchanges))  # noqa: SLF001 - counted without a gateway
    traffic = _Traffic(instruments)
    traffic.add(exchanges)
    instruments.registry.register(traffic)
    return instruments.registry


class _Traffic(Collector):
    """The gateway's traffic: it goes on, `PER_S` requests a second, as often as it is asked for."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments
        self._asked = time.monotonic()

    def add(self, count: float) -> None:
        """Count so many requests of both apps."""
        for app, share, seconds in (("support", 0.7, 1.4), ("handbook", 0.3, 0.9)):
            for status, part in ((200, 0.99), (502, 0.01)):
                answered = Recording(
                    id="x",
                    started_at=0.0,
                    method="POST",
                    path="/v1/chat/completions",
                    route="chat_completions",
                    request_headers=[],
                    status=status,
                    duration_s=seconds,
                )
                for _ in range(round(share * part * count)):
                    self._instruments.request(answered, app=app, model="chat-1", stream=False)
            self._instruments.cost(app, "chat-1", {"input": 0.0009 * share * count, "output": 0.0007 * share * count})

    def collect(self) -> Iterable[Metric]:
        """Add what came since the last time; no series of its own."""
        now = time.monotonic()
        self.add(PER_S * (now - self._asked))
        self._asked = now
        return ()


def _plane(made: Any, exchanges: int) -> None:
    counts = made.instruments
    for metric in LEVELS:
        counts.evaluations.labels(metric, "score", "").inc(0.97 * exchanges)
        counts.evaluations.labels(metric, "skipped", "refusal").inc(0.02 * exchanges)
        counts.evaluations.labels(metric, "failed", "judge_timeout").inc(0.01 * exchanges)
    counts.judged("judge-large", 0.8, 900 * exchanges, 90 * exchanges, 3.1)
    counts.looked_up("judge-large", "hit", 0.62)
    counts.looked_up("judge-large", "miss", 0.0)
    counts.failed("judge-large", "timeout")
    counts.judge_budget_spent.set(3.1)
    counts.judge_budget_factor.set(0.64)
    counts.late_scores.inc(12)
    made.answered(171, app="support", source="explicit")
    made.answered(4, app="support")
    made.answered(75, app="handbook", source="tools")
