"""Reads how relevant the passages of each hop and tool were, for the alert about a drop of the retrieval."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from gaugeway.records import Evaluation, Sample, Score
from gaugeway.storage.engines.failures import engine_failed
from gaugeway.storage.stores import Point, Store
from monitors.alerting.causes.steps import FallenStep, Retrieved, Step, fallen_step
from monitors.alerting.stream import usable
from monitors.metrics.judged.passage_verdicts import by_step, relevances

MAX_READ = 200
"""Exchanges that are read on each side of an onset."""
MAX_READ_S = 20.0
AT_ONCE = 8
_METRIC = "context_relevancy"
_log = logging.getLogger("gaugeway")


async def find_fallen_step(store: Store, before: Sequence[Point], since: Sequence[Point]) -> FallenStep | None:
    """Return the step of an agent whose passages became less relevant; None without one, or if the store fails."""
    try:
        async with asyncio.timeout(MAX_READ_S):
            sides = [await _read(store, side) for side in (before, since)]
    except TimeoutError:
        _log.warning("reading passages to find the hop behind a drop timed out after %.0f s", MAX_READ_S)
        return None
    except Exception as error:
        if not engine_failed(error):
            raise
        _log.warning("cannot read passages to find the hop behind a drop: %s", type(error).__name__)
        return None
    return fallen_step(*sides)


async def _read(store: Store, side: Iterable[Point]) -> list[Retrieved]:
    rates = {point.sample_id: point.rate for point in side if point.metric == _METRIC and usable(point)}
    chosen = sorted(rates, key=lambda sample_id: blake2b(sample_id.encode(), digest_size=8).digest())[:MAX_READ]
    gate = asyncio.Semaphore(AT_ONCE)

    async def read(sample_id: str) -> Retrieved | None:
        async with gate:
            stored = await store.sample(sample_id)
        return None if stored is None else retrieved(*stored, rate=rates[sample_id])

    return [exchange for exchange in await asyncio.gather(*map(read, chosen)) if exchange is not None]


def retrieved(sample: Sample, evaluations: Iterable[Evaluation], *, rate: float) -> Retrieved | None:
    """Return the relevance of an exchange's passages by step; None where none of them has a step and a rating."""
    score = next(
        (
            evaluation.outcome
            for evaluation in evaluations
            if evaluation.metric == _METRIC and isinstance(evaluation.outcome, Score)
        ),
        None,
    )
    if score is None:
        return None
    steps = by_step(sample.contexts, relevances(sample.contexts, score.evidence))
    means = {Step(*step): sum(some) / len(some) for step, some in steps.items()}
    return Retrieved(relevance=means, rate=rate) if means else None
