"""One of three incidents behind the operator's page, for somebody who has only the page: how soon is the cause known?

python benchmarks/page/incidents.py prompt|source|topic [--seed 1] [--exchanges 6000]

Prints the page's address and serves it until it is stopped; what happened is drawn from the seed and stands in this
file only. Questions, passages and answers are made of words of shops, with two apps, a few models and releases; what
changes harmlessly at the same time as the incident is drawn too, so that "the newest thing" is no answer.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from litestar import Litestar

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.page.stand import CONFIG, DAY_S, _gateway, _plane
from gaugeway.records import Context, Evaluation, Outcome, Sample, Score, Skipped, Usage
from gaugeway.runtime.auth import metrics_handler
from gaugeway.storage.engines.sqlite.store import _SQL, SQLiteStore
from gaugeway.storage.stores import rows
from tests.support.pages import world
from tests.support.running import serving

KINDS = ("prompt", "source", "topic")
LEVELS = {"faithfulness": 0.92, "answer_relevancy": 0.88, "lexical_groundedness": 0.8}
TOPICS = {
    "refund": ("refund for a saver ticket", "saver tickets are refunded within {n} days of purchase"),
    "luggage": ("extra luggage on the night train", "two pieces of luggage up to {n} kg each are free"),
    "bicycle": ("taking a bicycle along", "a bicycle costs {n} euros and needs a reservation"),
    "seat": ("changing a reserved seat", "a reserved seat can be changed until {n} minutes before departure"),
    "meal": ("ordering a vegan meal", "vegan meals are ordered {n} hours before departure"),
    "delay": ("compensation for a delay", "after {n} minutes of delay a quarter of the fare is paid back"),
}
ASKED = ("How does {what} work?", "What are the rules for {what}?", "I need help with {what}, trip {n}.", "{what}?")
SOURCES = ("handbook.md", "tariffs.md", "faq.md")


@dataclass(frozen=True)
class Incident:
    """What happened, and when."""

    kind: str
    at: float
    version: str
    victim: str
    harmless: str


def incident(kind: str, seed: int, now: float) -> Incident:
    """Draw what happens."""
    draw = random.Random(f"{kind}/{seed}")
    at = now - draw.uniform(1.5, 4.0) * 3600
    version = f"{draw.getrandbits(32):08x}"
    victim = {"prompt": version, "source": draw.choice(SOURCES), "topic": draw.choice([*TOPICS])}[kind]
    return Incident(kind, at, version, victim, draw.choice(("release", "model")))


def day(happened: Incident, exchanges: int, now: float, seed: int) -> Iterator[tuple[Sample, list[Evaluation]]]:
    """The exchanges of the last 24 hours with their evaluations."""
    draw = random.Random(seed)
    for index in range(exchanges):
        at = now - DAY_S * (1 - index / exchanges)
        app = "tickets" if draw.random() < 0.7 else "intranet"
        since = app == "tickets" and at > happened.at
        topic, source = draw.choice([*TOPICS]), draw.choice(SOURCES)
        what, rule = TOPICS[topic]
        numbers = [draw.randint(2, 60) for _ in range(3)]
        passages = tuple(
            Context(
                text=rule.format(n=n).capitalize() + ".", id=f"{topic}-{place}", score=0.9 - 0.1 * place, source=source
            )
            for place, n in enumerate(numbers)
        )
        bad = (
            since
            and draw.random() < 0.8
            and {
                "prompt": draw.random() < 0.45,
                "source": source == happened.victim,
                "topic": topic == happened.victim,
            }[happened.kind]
        )
        said = rule.format(n=numbers[0] + 7 if bad else numbers[0])
        declined = bad and happened.kind == "topic"
        response = f"I could not find anything about {what}." if declined else f"{said.capitalize()}."
        sample = Sample(
            id=f"{seed:02x}{index:014x}",
            started_at=at,
            app=app,
            model="chat-2" if draw.random() < (0.6 if since and happened.harmless == "model" else 0.25) else "chat-1",
            question=draw.choice(ASKED).format(what=what, n=draw.randint(1000, 9999)).capitalize(),
            contexts=passages,
            context_source="explicit",
            response=response,
            tags={"release": "8.2" if since and happened.harmless == "release" else "8.1"},
            prompt=happened.version if since and happened.kind == "prompt" else "1c7e88ad",
            usage=Usage(input_tokens=900, output_tokens=120),
            duration_s=draw.uniform(0.4, 2.5),
        )
        yield sample, [*_judged(sample, said, bad, draw)]


def _judged(sample: Sample, said: str, bad: bool, draw: random.Random) -> Iterator[Evaluation]:  # noqa: FBT001
    declined = sample.response.startswith("I could not")
    for metric, level in LEVELS.items():
        worse = 0.45 if bad and metric != "answer_relevancy" else 0.0
        value = round(draw.betavariate(12 * (level - worse), 12 * (1 - level + worse)), 3)
        outcome: Outcome = Score(value)
        if metric == "faithfulness":
            verdict = "contradicted" if bad else "supported"
            outcome = (
                Skipped("no_claims") if declined else Score(value, "1 claim", ({"claim": said, "verdict": verdict},))
            )
        judge = None if metric == "lexical_groundedness" else "judge-large"
        yield Evaluation(sample_id=sample.id, metric=metric, version="1", outcome=outcome, judge=judge)
    outcome = Score(float(declined))
    yield Evaluation(sample_id=sample.id, metric="abstained", version="3", outcome=outcome, judge=None)


async def main() -> None:
    asking = argparse.ArgumentParser()
    asking.add_argument("kind", choices=KINDS)
    asking.add_argument("--seed", type=int, default=1)
    asking.add_argument("--exchanges", type=int, default=6000)
    asked = asking.parse_args()
    now = time.time()
    happened = incident(asked.kind, asked.seed, now)
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        store = SQLiteStore(directory / "store.db")
        await store.load()
        await store.aclose()
        samples, evaluations = [], []
        for sample, found in day(happened, asked.exchanges, now, asked.seed):
            payload = msgspec.json.encode(sample).decode()
            samples.append((sample.id, sample.started_at, sample.app, sample.model, payload, *[None] * 5))
            evaluations += [rows.row(sample, evaluation) for evaluation in found]
        with contextlib.closing(sqlite3.connect(directory / "store.db")) as connection, connection:
            connection.executemany(_SQL["add_sample"], samples)
            connection.executemany(_SQL["add_evaluation"], evaluations)
        app = Litestar([metrics_handler(_gateway(asked.exchanges))], openapi_config=None, logging_config=None)
        async with (
            serving(app) as gateway,
            world(directory, config=CONFIG, gateways=[f"http://127.0.0.1:{gateway}"]) as made,
        ):
            _plane(made, asked.exchanges)
            await made.look()
            print(
                f"http://127.0.0.1:{made.port}/ {[(a.app, a.metric, a.state) for a in made.engine.alerts()]}",
                flush=True,
            )
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
