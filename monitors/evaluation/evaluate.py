"""Runs one metric on one sample; every failure becomes an outcome."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from types import TracebackType

from gaugeway.records import Evaluation, Failed, Outcome, Sample, Score, Skipped
from gaugeway.settings.bounds import bounded_name
from monitors.judges import SPEND, JudgeError, Spend
from monitors.metrics import Metric

TIMEOUT_S = 90.0
"""Timeout of a metric without a judge: shorter than a lease, so that no sample is evaluated twice at once."""


async def evaluate(
    metric: Metric,
    sample: Sample,
    *,
    rate: float,
    weight: float | None = None,
    clock: Callable[[], float],
    timeout_s: float = TIMEOUT_S,
) -> Evaluation:
    """Compute `metric` for `sample`; return the outcome, its duration and its cost.

    `rate` is the probability that this metric is computed for this exchange, capture included, `weight` that of
    `Evaluation`; `clock` returns seconds.
    `timeout_s` bounds the whole computation, including the wait for a free judge. An exception of the metric becomes a
    `Failed` outcome.
    """
    started, spend = clock(), Spend(app=sample.app, metric=metric.name)
    token = SPEND.set(spend)
    try:
        outcome = await _outcome(metric, sample, timeout_s)
    finally:
        SPEND.reset(token)
    seconds = clock() - started
    return _evaluation(metric, sample, outcome, seconds=seconds, cost_usd=spend.usd, rate=rate, weight=weight)


def evaluate_at_once(
    metric: Metric, sample: Sample, *, rate: float, weight: float | None, clock: Callable[[], float]
) -> Evaluation | None:
    """Do what `evaluate` does with a metric that `metrics.scores_at_once`; None for one that awaits something.

    Such a metric calls no judge, so it costs nothing.
    """
    started = clock()
    if sample.skip_reason is not None:
        outcome: Outcome = Skipped(sample.skip_reason)
    else:
        scoring = metric.score(sample)
        try:
            scoring.send(None)
        except StopIteration as done:
            outcome = _checked(done.value)
        except BaseException as error:  # noqa: BLE001 - as in `_outcome`; without an await this is no cancellation of ours
            outcome = _failed(error)
        else:
            scoring.close()
            return None
    return _evaluation(metric, sample, outcome, seconds=clock() - started, rate=rate, weight=weight)


def _evaluation(
    metric: Metric,
    sample: Sample,
    outcome: Outcome,
    *,
    seconds: float,
    rate: float,
    weight: float | None,
    cost_usd: float = 0.0,
) -> Evaluation:
    return Evaluation(
        sample_id=sample.id,
        metric=metric.name,
        version=str(metric.version),
        outcome=outcome,
        judge=judge_of(metric),
        seconds=max(0.0, seconds),
        cost_usd=cost_usd,
        rate=rate,
        weight=weight,
    )


def judge_of(metric: Metric) -> str | None:
    """Return the name of the model that `metric` calls, from its attribute `judge`; None when it has none."""
    judge = getattr(metric, "judge", None)
    return None if judge is None else str(getattr(judge, "model", judge))


def is_judged(metric: Metric) -> bool:
    """Whether `metric` calls the judge, so that budget, back-pressure and the judge's outages apply to it.

    A verifier (the attribute `verifies`) is no judge: it scores all traffic.
    """
    return judge_of(metric) is not None and not getattr(metric, "verifies", False)


async def _outcome(metric: Metric, sample: Sample, timeout_s: float) -> Outcome:
    if sample.skip_reason is not None:
        return Skipped(sample.skip_reason)
    try:
        async with asyncio.timeout(timeout_s):
            return _checked(await metric.score(sample))
    except TimeoutError:
        return Failed("timeout", f"no score within {timeout_s:g} s")
    except asyncio.CancelledError as error:
        if (task := asyncio.current_task()) is None or task.cancelling():
            raise
        return _failed(error)  # the metric raised it, or awaited what was cancelled
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - a metric is a user's code; its errors are counted as a Failed outcome
        return _failed(error)


def _failed(error: BaseException) -> Failed:
    if isinstance(error, JudgeError):
        return Failed(error.kind, error.detail)
    kind = "invalid_score" if _from_score(error.__traceback__) else "metric_error"
    return Failed(kind, f"{type(error).__name__}: {error}")


def _checked(outcome: object) -> Outcome:
    """Return the outcome in plain types: stores reject look-alikes such as numpy's numbers."""
    if isinstance(outcome, Score):
        if math.isfinite(outcome.value) and 0.0 <= outcome.value <= 1.0:
            return Score(float(outcome.value), str(outcome.reason), tuple(outcome.evidence))
        return Failed("invalid_score", f"a score lies in [0, 1], got {outcome.value!r}")
    if isinstance(outcome, Skipped):
        return Skipped(bounded_name(str(outcome.reason)))
    if isinstance(outcome, Failed):
        return Failed(bounded_name(str(outcome.error)), str(outcome.detail))
    return Failed("invalid_score", f"a metric returns a Score or Skipped, got {type(outcome).__name__}")


def _from_score(traceback: TracebackType | None) -> bool:
    """Whether `Score` raised the exception because of its value."""
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback is not None and traceback.tb_frame.f_code is Score.__post_init__.__code__
