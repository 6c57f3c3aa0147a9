"""The evaluation plane as the product assembles it, over a store with seeded contents; nothing runs by itself."""

from __future__ import annotations

import random
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

from gaugeway.records import Context, Evaluation, Failed, Sample, Score, Skipped, Supplement
from gaugeway.settings.shared import Alerts, Config, Judge, Metric, Sampled
from gaugeway.storage.engines.sqlite.documents import SQLiteDocuments
from gaugeway.storage.templates import Templates
from monitors.analysis.datasets import Datasets
from monitors.api.documents import dataset_handlers, template_handlers
from monitors.app import _handlers, assemble
from monitors.exporters.factory import PrometheusExporter
from monitors.scheduler import WorkerCounts
from tests.golden.record import NOW
from tests.support.incidents import incident
from tests.support.pages import RULES

DAY_S = 86_400.0
EXCHANGES, DAYS, COUNTED = 900, 3, 50
CONFIG = Config(
    capture=Sampled(salt="golden"),
    judge=Judge(base_url="http://127.0.0.1:9/v1", model="judge-1", cache="off"),  # never asked
    metrics={"faithfulness": Metric(rate=0.5, objective=0.9)},
    alerts=Alerts(watermark_s=0.0, group_wait_s=0.0, rules=RULES, slices=("app", "model"), cause_samples=0),
)


def exchange(draw, number):
    """An exchange of the app "desk", its evaluations, and a label: two models, three tenants, rates, failures."""
    quality, model = draw.betavariate(4.0, 1.2), draw.choice(["m-1", "m-2"])
    quality *= 0.9 if model == "m-2" else 1.0
    sample = Sample(
        id=f"desk-{number}",
        started_at=NOW - DAYS * DAY_S * (1.0 - (number + 0.5) / EXCHANGES),
        app="desk",
        model=model,
        prompt=draw.choice(["p-1", "p-2"]),
        question=f"What does the {draw.choice(['printer', 'contract', 'refund'])} of order {number % 60} need?",
        response="It needs what the handbook says.",
        contexts=tuple(Context(text=f"Passage {place}.", id=f"doc-{place}") for place in draw.sample(range(9), 3)),
        context_source="explicit",
        cluster=f"s:{number // 3} q:{number % 60}",
        tags={"tenant": draw.choice("abc")},
    )
    lexical = {"sample_id": sample.id, "metric": "lexical_groundedness", "version": "1", "rate": 0.5}
    judged = {**lexical, "metric": "faithfulness", "judge": f"judge-{1 + number // 450}", "rate": 0.25, "weight": 0.5}
    outcome = draw.choice([Score(quality)] * 30 + [Failed("timeout", "no answer"), Skipped("no_contexts")])
    evaluations = [Evaluation(outcome=Score(min(1.0, 0.2 + 0.8 * quality * draw.random())), **lexical)]
    evaluations += [Evaluation(outcome=outcome, **judged)] * (draw.random() < 0.5)
    label = {"source": "feedback", "exchange_id": sample.id, "rating": float(quality > 0.7), "by": draw.choice("ab")}
    return sample, evaluations, Supplement(id=f"label-{number}", received_at=sample.started_at, **label)


async def fill(parts):
    """Store the exchanges of "desk", with labels of every fourth; count and export the last ones."""
    draw = random.Random(5)
    made = [exchange(draw, number) for number in range(EXCHANGES)]
    await parts.store.add_each([(sample, evaluations) for sample, evaluations, _ in made])
    await parts.store.supplement([label for *_, label in made[::4]])
    counts = WorkerCounts(parts.instruments, parts.engine, parts.scheduler._capture)  # noqa: SLF001 - as the worker does
    exporter = PrometheusExporter(parts.instruments, {"faithfulness": (0.7, False)})
    for sample, evaluations, _ in made[-COUNTED:]:
        counts.stored(sample, None)
        exporter.export(sample, evaluations)


@asynccontextmanager
async def monitors():
    """The parts of the plane, after an incident of the app "shop"; `handlers` are those of its API."""
    with tempfile.TemporaryDirectory() as directory:
        parts, documents = assemble(CONFIG, Path(directory)), SQLiteDocuments(Path(directory))
        templates, datasets = Templates(documents), Datasets(documents)
        kept = [*template_handlers(templates), *dataset_handlers(datasets, parts.store, parts.engine.alerts)]
        parts.engine._notify_within_s = 300.0  # noqa: SLF001 - a busy machine describes an alert in its own time

        async def look():
            await parts.scheduler.estimate()
            await parts.engine.tick()
            await parts.engine.aclose()
            await parts.scheduler.measure_queue()

        await fill(parts)
        await incident(SimpleNamespace(store=parts.store, engine=parts.engine, look=look))
        await look()
        await datasets.add(parts.store, "incident", {"exchanges": ["bad-318", "desk-440"]}, 1_700_000_000.0)
        try:
            yield SimpleNamespace(
                parts=parts,
                handlers=lambda series: [*_handlers(CONFIG, parts, series, None), *kept],
            )
        finally:
            for part in (documents, *parts.closing):
                await part.aclose()
