"""Runs metrics over samples concurrently; cached outcomes are not computed again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import TypeVar

from gaugeway.records import Evaluation, Failed, Sample, Skipped
from monitors.evaluation.evaluator import TIMEOUT_S, evaluate, judge_of
from monitors.metrics import Metric, lower_is_better
from monitors.metrics.registry import Enabled
from monitors.offline.dataset_fields import content_key
from monitors.offline.results import Measure, Row
from monitors.offline.results_cache import Key, ResultsCache

T = TypeVar("T")
CONCURRENCY = 8
NOT_SELECTED = "not_selected"


@dataclass(slots=True)
class Progress:
    """The progress of a run: samples done of `total`, evaluations failed or taken from the cache, USD paid so far."""

    total: int
    done: int = 0
    failed: int = 0
    reused: int = 0
    usd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run. `identity` hashes the judge's settings, `embedding` names the embeddings; each may be empty."""

    metrics: Sequence[Enabled]
    identity: str = ""
    embedding: str = ""
    concurrency: int = CONCURRENCY
    timeout_s: float = 600.0

    def key(self, metric: Metric) -> Key:
        """Return the inputs of an outcome of `metric` in addition to the sample."""
        judge = judge_of(metric)
        parts = [] if judge is None else [judge, self.identity]
        if self.embedding and "embeddings" in _parameters(metric):
            parts.append(self.embedding)
        return Key(metric.name, str(metric.version), "|".join(filter(None, parts)))

    def measures(self) -> list[Measure]:
        """Return the metrics as a run records them."""
        return [
            Measure(
                name=enabled.metric.name,
                version=str(enabled.metric.version),
                judge=judge_of(enabled.metric),
                lower_is_better=lower_is_better(enabled.metric),
                threshold=enabled.threshold,
            )
            for enabled in self.metrics
        ]


async def run(
    samples: Sequence[Sample],
    plan: Plan,
    *,
    cache: ResultsCache | None = None,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> tuple[list[Row], Progress]:
    """Evaluate all samples concurrently; return the rows in the order of the samples.

    Each sample's outcomes are cached as soon as it is done, so an interrupted run is not paid for twice.
    """
    progress = Progress(total=len(samples))
    rows: dict[int, Row] = {}

    async def work(item: tuple[int, Sample]) -> None:
        index, sample = item
        rows[index] = await _row(sample, plan, cache, progress)
        progress.done += 1
        on_progress(progress)

    await for_each(enumerate(samples), work, plan.concurrency)
    return [rows[index] for index in range(len(samples))], progress


async def for_each(items: Iterable[T], work: Callable[[T], Awaitable[None]], concurrency: int) -> None:
    """Run `work` on all items, at most `concurrency` at a time; the first exception cancels the rest and is raised."""
    remaining = iter(items)

    async def worker() -> None:
        for item in remaining:
            await work(item)

    workers = [asyncio.ensure_future(worker()) for _ in range(concurrency)]
    try:
        await asyncio.gather(*workers)
    finally:
        for task in workers:
            task.cancel()
        await asyncio.wait(workers)


async def _row(sample: Sample, plan: Plan, cache: ResultsCache | None, progress: Progress) -> Row:
    content = content_key(sample)
    known: Mapping[Key, Evaluation] = await cache.get(content, sample.id) if cache else {}
    chosen = [enabled.metric for enabled in plan.metrics if _selected(enabled.metric, sample)]
    keys = {metric.name: plan.key(metric) for metric in chosen}
    missing = [metric for metric in chosen if keys[metric.name] not in known]
    found = await asyncio.gather(*(evaluated(metric, sample, plan.timeout_s) for metric in missing))
    fresh = {evaluation.metric: evaluation for evaluation in found}
    if cache:
        await cache.put(content, [(keys[name], evaluation) for name, evaluation in fresh.items()])
    progress.reused += len(keys) - len(fresh)
    progress.failed += sum(isinstance(evaluation.outcome, Failed) for evaluation in fresh.values())
    progress.usd += sum(evaluation.cost_usd for evaluation in fresh.values())
    evaluations = {name: fresh[name] if name in fresh else known[key] for name, key in keys.items()}
    others = {
        enabled.metric.name: _not_selected(enabled.metric, sample)
        for enabled in plan.metrics
        if enabled.metric.name not in evaluations
    }
    return Row(
        sample=sample,
        evaluations={enabled.metric.name: (evaluations | others)[enabled.metric.name] for enabled in plan.metrics},
    )


def _selected(metric: Metric, sample: Sample) -> bool:
    return sample.only_metrics is None or metric.name in sample.only_metrics


def _not_selected(metric: Metric, sample: Sample) -> Evaluation:
    """Return the outcome of a metric that the record does not name."""
    return Evaluation(
        sample_id=sample.id, metric=metric.name, version=str(metric.version), outcome=Skipped(NOT_SELECTED)
    )


async def evaluated(metric: Metric, sample: Sample, timeout_s: float) -> Evaluation:
    """Compute one evaluation; `timeout_s` applies to metrics that call a judge."""
    deadline_s = TIMEOUT_S if judge_of(metric) is None else timeout_s
    return await evaluate(metric, sample, rate=sample.rate, clock=time.perf_counter, timeout_s=deadline_s)


def _parameters(metric: Metric) -> frozenset[str]:
    try:
        return frozenset(signature(type(metric)).parameters)
    except (TypeError, ValueError):
        return frozenset()
