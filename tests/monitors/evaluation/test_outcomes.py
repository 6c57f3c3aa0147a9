"""Whatever a metric does becomes an outcome."""

from __future__ import annotations

import asyncio
import itertools
import math

import numpy as np
import pytest

from gaugeway.records import Failed, Sample, Score, Skipped
from gaugeway.settings.bounds import bounded_name
from monitors.evaluation.evaluator import evaluate
from monitors.judges import SPEND, JudgeError

SAMPLE = Sample(id="s1", started_at=0.0, response="Yes.")


class Metric:
    """A metric that does what it is told."""

    name = "mine"
    version = "3"
    judge = "judge-1"

    def __init__(self, does):
        self._does = does

    async def score(self, sample):
        result = self._does()
        if isinstance(result, BaseException):
            raise result
        return await result if asyncio.iscoroutine(result) else result


def run(does, sample=SAMPLE, **options):
    ticks = itertools.count(100.0, 2.5)
    return asyncio.run(evaluate(Metric(does), sample, rate=0.25, clock=lambda: next(ticks), **options))


def test_an_evaluation_says_what_was_measured_by_whom_and_for_how_long():
    evaluation = run(lambda: Score(0.5, "half", ({"a": 1},)))
    assert (evaluation.sample_id, evaluation.metric, evaluation.version) == ("s1", "mine", "3")
    assert (evaluation.judge, evaluation.rate, evaluation.seconds) == ("judge-1", 0.25, 2.5)
    assert evaluation.outcome == Score(0.5, "half", ({"a": 1},))


def test_what_the_judge_cost_is_on_the_evaluation_and_nowhere_else():
    def spend():
        SPEND.get().usd += 0.125
        return Score(1.0)

    assert run(spend).cost_usd == 0.125
    assert run(lambda: Score(1.0)).cost_usd == 0.0
    assert SPEND.get() is None


def test_a_sample_that_is_no_answer_is_skipped_without_asking_the_metric():
    sample = Sample(id="s1", started_at=0.0, skip_reason="tool_call")
    assert run(lambda: AssertionError("asked"), sample).outcome == Skipped("tool_call")


def invalid():
    score = Score(1.0)
    object.__setattr__(score, "value", math.nan)
    return score


async def awaiting_what_was_cancelled():
    waiting = asyncio.get_running_loop().create_future()
    waiting.cancel()
    await waiting


@pytest.mark.parametrize(
    ("does", "outcome"),
    [
        (lambda: Skipped("no_claims"), Skipped("no_claims")),
        (lambda: JudgeError("refused", "it would not"), Failed("refused", "it would not")),
        (lambda: KeyError("x"), Failed("metric_error", "KeyError: 'x'")),
        (lambda: ValueError("a score lies"), Failed("metric_error", "ValueError: a score lies")),
        (lambda: SystemExit(3), Failed("metric_error", "SystemExit: 3")),
        (KeyboardInterrupt, Failed("metric_error", "KeyboardInterrupt: ")),
        (asyncio.CancelledError, Failed("metric_error", "CancelledError: ")),
        (awaiting_what_was_cancelled, Failed("metric_error", "CancelledError: ")),
        (lambda: Skipped("x" * 1000), Skipped(bounded_name("x" * 1000))),
        (lambda: Failed("y" * 1000, "z"), Failed(bounded_name("y" * 1000), "z")),
        (lambda: Score(1.5), Failed("invalid_score", "ValueError: a score lies in [0, 1], got 1.5")),
        (lambda: Score(math.nan), Failed("invalid_score", "ValueError: a score lies in [0, 1], got nan")),
        (invalid, Failed("invalid_score", "a score lies in [0, 1], got nan")),
        (lambda: Score(np.float32(0.5), np.str_("r")), Score(0.5, "r")),
        (lambda: Score(True), Score(1.0)),
        (lambda: 0.7, Failed("invalid_score", "a metric returns a Score or Skipped, got float")),
        (lambda: None, Failed("invalid_score", "a metric returns a Score or Skipped, got NoneType")),
    ],
)
def test_every_ending_has_its_outcome(does, outcome):
    assert run(does).outcome == outcome


def test_a_score_is_a_plain_number_whatever_the_metric_computed_with():
    assert type(run(lambda: Score(np.float32(0.5))).outcome.value) is float


def test_a_metric_that_takes_too_long_fails_with_timeout():
    assert run(lambda: asyncio.sleep(30), timeout_s=0.05).outcome == Failed("timeout", "no score within 0.05 s")


def test_being_cancelled_is_not_an_outcome():
    async def cancelled():
        task = asyncio.ensure_future(evaluate(Metric(lambda: asyncio.sleep(30)), SAMPLE, rate=1.0, clock=lambda: 0.0))
        await asyncio.sleep(0.01)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
