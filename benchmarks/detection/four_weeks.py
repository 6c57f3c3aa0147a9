"""Four quiet weeks and five incidents through the alert engine, with a clock that is moved.

    nice -n 10 .venv/bin/python -m benchmarks.detection.four_weeks [--per-day 3000] [--seed 20261129]

One app with seasons drawn by seed (seasons.py). Its exchanges get their signals from the product's `SignalComputer` and
drawn scores of three judged metrics, are stored in SQLite, and the engine with the default rules ticks every five
minutes of the moved clock and sends what it finds to a receiver over HTTP. No page may be sent in the four weeks; then
every incident lasts a day, with two days between. Prints what the receiver was sent.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.detection.seasons import DAY, OF_A_METRIC, TYPICAL, season, volume
from gaugeway.records import Context, Evaluation, Sample, Score
from gaugeway.settings.shared import Alerts
from gaugeway.signals import SIGNALS, VERSION
from gaugeway.storage.engines.sqlite.store import SQLiteStore
from monitors.alerting.engine import AlertEngine
from monitors.alerting.notifiers.webhook import WebhookNotifier
from monitors.alerting.rules import rules_of
from monitors.signals.compute import SignalComputer
from tests.support.receivers import receiver

BUCKET_S, HOUR_S, DAY_S = 300.0, 3600.0, 86_400.0
QUIET_DAYS, EVERY_DAYS, WATCHED_DAYS = 28, 3, 1
START = 1_764_547_200.0  # the first of December 2025, a Monday
METRICS = ("faithfulness", "answer_relevancy", "context_relevancy")
JUDGED = 0.2
ANSWER = (
    "The refund takes five working days once the parcel is back in the warehouse. Print the label from your account."
)
DECLINES = "I'm sorry, but the documents do not mention that. Please contact our support."
PASSAGE = "Refunds are paid five working days after parcel {} is back. The label is printed from the account page."
INCIDENTS = ("top-k halved", "weaker model", "source broken", "slow provider", "more declines")


class Hour(NamedTuple):
    """By how many standard deviations each quantity lies above its average in an hour, and what is broken."""

    slow: float
    passages: float
    retriever: float
    declines: float
    quality: float
    incident: str


def hours_of(rng: np.random.Generator, days: int) -> list[Hour]:
    moves = [season(rng, days * DAY, TYPICAL) for _ in range(5)]
    broken = [""] * (days * DAY)
    for number, name in enumerate(INCIDENTS):
        begin = (QUIET_DAYS + number * EVERY_DAYS) * DAY + int(rng.integers(DAY))
        broken[begin : begin + WATCHED_DAYS * DAY] = [name] * (WATCHED_DAYS * DAY)
    return [Hour(*map(float, values), incident) for *values, incident in zip(*moves, broken, strict=True)]


class Desk:
    """The app: draws exchanges with their scores."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng, self._count, self._signals = rng, 0, SignalComputer(SIGNALS)

    def exchange(self, at: float, hour: Hour) -> tuple[Sample, list[Evaluation]]:
        rng, broken = self._rng, hour.incident
        self._count += 1
        wanted = int(rng.integers(4, 7)) + int(math.copysign(rng.random() < abs(hour.passages), hour.passages))
        source = "handbook" if rng.random() < 0.4 else "faq"
        failing = broken == "source broken" and source == "handbook"
        score = 0.7 + 0.05 * (rng.standard_normal() + hour.retriever) - 0.15 * failing
        number = math.ceil(wanted / 2) if broken == "top-k halved" else wanted
        declines = rng.random() < 0.02 * math.exp(hour.declines) + 0.06 * (broken == "more declines")
        sample = Sample(
            id=f"x{self._count}",
            started_at=at,
            app="desk",
            model="large" if broken != "weaker model" else "small",
            question=f"How long does the refund for parcel {self._count} take?",
            contexts=tuple(
                Context(text=PASSAGE.format(place), score=min(1.0, max(0.0, score)), source=source)
                for place in range(number)
            ),
            context_source="structure",
            response=DECLINES if declines else ANSWER,
            duration_s=math.exp(0.5 * (rng.standard_normal() + hour.slow))
            * (1.6 if broken == "slow provider" else 1.0),
        )
        outcomes = {name: ("", value) for name, value in self._signals.compute(sample).items()}
        if rng.random() < JUDGED and not declines:
            worse = {"weaker model": ("faithfulness", 0.12), "top-k halved": ("answer_relevancy", 0.06)}
            for metric in METRICS:
                mean = 0.88 + 0.25 * OF_A_METRIC * hour.quality
                mean -= worse[broken][1] if broken in worse and worse[broken][0] == metric else 0.0
                mean -= 0.25 * failing * (metric == "context_relevancy")
                outcomes[metric] = ("judge", float(rng.beta(5.0 * mean, 5.0 * (1.0 - mean))))
        return sample, [
            Evaluation(sample_id=sample.id, metric=name, version=VERSION, judge=judge or None, outcome=Score(value))
            for name, (judge, value) in outcomes.items()
        ]


async def _nothing_waits() -> float | None:
    return None


async def run(per_day: float, seed: int) -> None:
    rng, days = np.random.default_rng(seed), QUIET_DAYS + EVERY_DAYS * len(INCIDENTS)
    hours, expected, desk = hours_of(rng, days), volume(rng, days * DAY, per_day), Desk(rng)
    now, seen = START, set()
    config = Alerts(bucket_s=BUCKET_S, watermark_s=BUCKET_S, slices=("app",), group_wait_s=0.0)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = SQLiteStore(folder / "store.db")
        stack.push_async_callback(store.aclose)
        origin, received = await stack.enter_async_context(receiver())
        engine = AlertEngine(
            rules_of(config, METRICS, SIGNALS, lambda _: False),
            config,
            store,
            store,
            queue_oldest=_nothing_waits,
            notifiers={"webhook": WebhookNotifier(origin)},
            clock=lambda: now,
            lower_is_better=lambda metric: metric in SIGNALS and SIGNALS[metric].watched == ("rise",),
        )
        for bucket in range(round(days * DAY_S / BUCKET_S)):
            hour = int(bucket * BUCKET_S // HOUR_S)
            for at in np.sort(rng.uniform(0.0, BUCKET_S, rng.poisson(expected[hour] * BUCKET_S / HOUR_S))).tolist():
                await store.add(*desk.exchange(now + at, hours[hour]))
            now += BUCKET_S
            await engine.tick()
            await engine.aclose()
            while received:
                for alert in received.pop(0).json["alerts"]:
                    if (alert["fingerprint"], alert["status"]) not in seen:  # else a reminder
                        seen.add((alert["fingerprint"], alert["status"]))
                        print(line_of(alert, now, hours[hour].incident), flush=True)


def line_of(alert: dict, now: float, incident: str) -> str:
    day = (now - START) / DAY_S
    labels = alert["labels"]
    cause = labels.get("likely_cause") or alert["annotations"].get("likely_cause", "")
    rule = labels.get("rule") or labels.get("metric")
    cells = [
        f"{day:.2f}",
        incident or "quiet",
        alert["status"],
        rule,
        alert["fingerprint"],
        labels.get("severity"),
        cause,
    ]
    return f"| {' | '.join(map(str, cells))} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--per-day", type=float, default=3_000.0)
    parser.add_argument("--seed", type=int, default=20261129)
    asked = parser.parse_args()
    print(
        "| day | what goes on | status | rule | alert | severity | cause |\n|--:|---|---|---|---|---|---|", flush=True
    )
    asyncio.run(run(asked.per_day, asked.seed))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
