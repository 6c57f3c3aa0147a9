"""One log line about the first scored exchange: what was captured, how, and its scores or why there are none."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from gaugeway.records import Evaluation, Failed, Sample, Score, Skipped
from gaugeway.signals import SIGNALS
from gaugeway.storage.stores import Point, Query, Store
from monitors.analysis.captured import OF_TRIAL

_log = logging.getLogger("gaugeway")
_HINT = "see docs/how-to/tell-gaugeway-the-contexts.md"
_DAY_S = 86_400.0
_SENT = "explicit"
_START_S = 60.0
"""A gateway may serve for so long before the monitors beside it have started."""


async def has_exchange(store: Store, retention_days: float) -> bool:
    """Whether a store has a scored exchange; False where it cannot be read."""
    try:
        return await _oldest(store, retention_days) is not None
    except Exception as error:  # noqa: BLE001 - any store error; `log_first` looks again
        _log.debug("cannot look for the first exchange: %s: %s", type(error).__name__, error)
        return False


async def log_first(store: Store, page_url: str, *, began: float, retention_days: float, every_s: float = 1.0) -> None:
    """Log the first exchange of a store that has none yet, and return; at once if it has an old one.

    To be run by the leader alone, of processes that started at `began` (Unix time): an exchange from more than a minute
    before is old. `page_url` is the address of the operator's page.
    """
    was_empty = False
    while True:
        try:
            point = await _oldest(store, retention_days)
            if point is not None and not was_empty and point.started_at < began - _START_S:
                return
            found = None if point is None else await store.sample(point.sample_id)
        except Exception as error:  # noqa: BLE001 - any store error; tried again
            _log.debug("cannot look for the first exchange: %s: %s", type(error).__name__, error)
        else:
            was_empty = True
            if found is not None:
                sample, evaluations = found
                said = described(
                    sample, [one for one in evaluations if one.metric not in SIGNALS and OF_TRIAL not in one.metric]
                )
                _log.info("first exchange: %s; %s/exchanges/%s", said, page_url, sample.id)
                return
        await asyncio.sleep(every_s)


async def _oldest(store: Store, retention_days: float) -> Point | None:
    """Return the oldest point of a metric."""
    now = time.time()
    since = max(0.0, now - retention_days * _DAY_S)
    points = await store.series(Query(since=since, until=now + _DAY_S, without=tuple(SIGNALS), limit=1))
    return points[0] if points else None


def described(sample: Sample, evaluations: Sequence[Evaluation]) -> str:
    """Describe an exchange without its content.

    Says which extractor found how many passages, the score of each metric, and why others have none.
    """
    if count := len(sample.contexts):
        how = "sent with the request" if sample.context_source == _SENT else f"found by '{sample.context_source}'"
        found = f"{count} passage{'s' if count > 1 else ''} {how}"
    else:
        found = f"no passages found ({_HINT})"
    question = "question found" if sample.question else "no question found"
    scores = [
        f"{evaluation.metric} {evaluation.outcome.value:.2f}"
        for evaluation in evaluations
        if isinstance(evaluation.outcome, Score)
    ]
    without = [
        f"{evaluation.metric} ({why(evaluation.outcome)})"
        for evaluation in evaluations
        if not isinstance(evaluation.outcome, Score)
    ]
    said = [f"app {sample.app}, model {sample.model}, {question}, {found}"]
    said += [f"scores: {', '.join(scores)}"] if scores else []
    said += [f"no score: {', '.join(without)}"] if without else []
    return "; ".join(said)


def why(outcome: Skipped | Failed) -> str:
    """Say in words why a metric has no score."""
    return outcome.reason.replace("_", " ") if isinstance(outcome, Skipped) else f"failed: {outcome.error}"
