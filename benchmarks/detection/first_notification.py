"""Which cause the first notification names when the retrieval breaks: default configuration, scripted judge.

    .venv/bin/python benchmarks/detection/first_notification.py              # 40 seeds a row, some ten minutes
    .venv/bin/python benchmarks/detection/first_notification.py --seeds 5

Every run sends 800 exchanges through the evaluator, then up to 4,000 with passages that do not fit, until
the first alert is delivered. The second column of causes is without `alerts.cause_samples`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gaugeway.records import Alert, Context, Sample
from gaugeway.sampling import MetricSampler
from gaugeway.settings.shared import Alerts, Metric, Rule
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from monitors.alerting.description import JudgeSignals
from monitors.alerting.engine import AlertEngine
from monitors.alerting.notifiers import Notifier
from monitors.evaluation.cause_judging import CauseJudging
from monitors.evaluation.evaluator import Evaluator, judge_of
from monitors.judges.scripted import Scripted
from monitors.metrics import lower_is_better
from monitors.metrics.registry import build

T0, BEFORE, MOST, TICK = 1_760_000_040.0, 800, 4000, 20
FOUND = "The parcel leaves the depot in Leipzig on Monday. Delivery takes two days. The courier is Jens Meyer."
LOST = "Bread rises because of yeast. A loaf weighs one kilogram. The oven is at 230 degrees."
CASES = {
    "all 0.1, rule on faithfulness": ({}, Rule(metric="faithfulness", slo=0.8)),
    "faithfulness 1.0, rule on it": ({"faithfulness": Metric(rate=1.0)}, Rule(metric="faithfulness", slo=0.8)),
    "all 0.1, rule on lexical_groundedness": ({}, Rule(metric="lexical_groundedness", slo=0.7)),
}


def scripted(rng: random.Random) -> Scripted:
    """A judge that supports 90 % of the claims while all is well, and calls 80 % of the statements relevant."""

    def claims(prompt: Any) -> dict[str, Any]:
        share = 0.15 if "Hamburg" in prompt.user else 0.9
        verdicts = ["supported" if rng.random() < share else "not_mentioned" for _ in range(3)]
        place = "It is in Hamburg" if "Hamburg" in prompt.user else "The parcel leaves Leipzig"
        quote = "oven is at 230" if "loaf" in prompt.user else "depot in Leipzig"
        evidence = {"contexts": [0], "quote": quote, "relevance": "relevant"}
        claims = [{"claim": f"{place}, {i}.", "verdict": v, **evidence} for i, v in enumerate(verdicts)]
        return {"noncommittal": False, "claims": claims}

    def statements(prompt: Any) -> dict[str, Any]:
        share = 0.05 if "loaf" in prompt.user else 0.8
        text = "The oven is at 230 degrees" if "loaf" in prompt.user else "The courier is Jens Meyer"
        some = [{"statement": f"{text}, {i}.", "relevant": rng.random() < share} for i in range(3)]
        return {"contexts": [{"index": 0, "statements": some}]}

    return Scripted({"claims_verdicts": claims, "context_statements": statements})


class People(Notifier):
    """Whoever is notified."""

    def __init__(self) -> None:
        self.alerts: list[Alert] = []

    async def notify(self, alert: Alert) -> None:
        """Remember it."""
        self.alerts.append(alert)


async def play(seed: int, metrics: dict[str, Metric], rule: Rule, samples: int) -> tuple[str, int, int]:
    """One run: the cause, judge calls of the first 800 exchanges, and those made for the cause."""
    rng = random.Random(seed)
    judge, people, now = scripted(rng), People(), T0
    enabled = build(metrics, judge, None).enabled
    judged = [one.metric for one in enabled if judge_of(one.metric) is not None]
    lower = {one.metric.name: lower_is_better(one.metric) for one in enabled}

    async def oldest() -> None:
        return None

    with tempfile.TemporaryDirectory() as directory:
        store = SQLiteStore(Path(directory) / "store.db")
        engine = AlertEngine(
            (rule,),
            Alerts(watermark_s=0.0, group_wait_s=0.0),
            store,
            store,
            queue_oldest=oldest,
            notifiers={"people": people},
            clock=lambda: now,
            lower_is_better=lower.__getitem__,
            judge=JudgeSignals(
                metrics=[one.name for one in judged],
                score_more=CauseJudging(store, judged, samples=samples).complete if samples else None,
            ),
        )
        evaluator = Evaluator(enabled, MetricSampler(str(seed)))
        quiet = asked = 0
        for number in range(BEFORE + MOST):
            broken = number >= BEFORE
            quiet = quiet if broken else len(judge.asked)
            good = (
                "The parcel leaves Leipzig on Monday." if rng.random() < 0.9 else "Ask Anna Schmidt in Rome on Friday."
            )
            sample = Sample(
                id=f"{seed}-{number}",
                started_at=now,
                app="shop",
                question=f"Where is parcel {number}?",
                contexts=(Context(text=LOST if broken else FOUND),),
                response="The parcel is in Hamburg since Tuesday, says Tom." if broken else good,
            )
            await store.add(sample, await evaluator.evaluate(sample))
            now += 1.0
            if number % TICK == TICK - 1:
                asked = len(judge.asked)
                await engine.tick()
                await engine.aclose()
            if people.alerts:
                break
        await store.aclose()
    return people.alerts[0].likely_cause if people.alerts else "no alert", quiet, len(judge.asked) - asked


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each case."""
    parser = argparse.ArgumentParser(description="Causes in first notifications.")
    parser.add_argument("--seeds", type=int, default=40)
    seeds = parser.parse_args(arguments).seeds
    for name, (metrics, rule) in CASES.items():
        found = {
            samples: [asyncio.run(play(seed, metrics, rule, samples)) for seed in range(seeds)] for samples in (0, 40)
        }
        causes = {samples: dict(Counter(one[0] for one in runs)) for samples, runs in found.items()}
        calls = 1000 * sum(one[1] for one in found[40]) / seeds / BEFORE
        extra = sum(one[2] for one in found[40]) / seeds
        print(f"{name}: without {causes[0]}, with {causes[40]}; {calls:.0f} calls for 1,000, {extra:.0f} for an alert")


if __name__ == "__main__":
    main()
