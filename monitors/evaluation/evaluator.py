"""The evaluator: chooses the metrics of a sample and runs them."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from gaugeway.records import Evaluation, Sample, Skipped
from gaugeway.sampling import MetricSampler
from monitors.evaluation.backpressure import JudgePace
from monitors.evaluation.evaluate import TIMEOUT_S, evaluate, evaluate_at_once, is_judged
from monitors.evaluation.observer import WorkerObserver
from monitors.evaluation.signals import Signals
from monitors.judges.middleware.limits import DEADLINE, Deadline
from monitors.metrics import Metric, scores_at_once, scores_conversations

DEADLINE_S = 180.0
"""For all judging of one sample of the queue: three times the judge's default timeout."""
MAX_AGE_S = 86_400.0
"""Age of a sample of the queue from which it is no longer judged: an alert would come too late to be worth the cost."""


class BudgetFactor(NamedTuple):
    """By which the budget lowers the rates of judged metrics, in (0, 1]: for this sample, and at the lowest for any
    sample of its app at this moment.
    """

    own: float = 1.0
    lowest: float = 1.0


class SampledMetric(Protocol):
    """A metric and the share of exchanges it is computed for."""

    @property
    def metric(self) -> Metric:
        """The metric."""

    @property
    def rate(self) -> float:
        """The probability, in [0, 1], that an exchange gets this metric."""


class Begun(NamedTuple):
    """A sample with its evaluations without a judge; `paid` are the judged metrics it gets, each with its rate and the
    lowest rate that a sample of its app could have had. `asks` says that the judge will be asked.
    """

    sample: Sample
    done: Sequence[Evaluation]
    paid: Sequence[tuple[SampledMetric, float, float]]
    pace: float
    expired: bool
    asks: bool


class Evaluator:
    """Runs the metrics that `choice` selects for a sample: first those without a judge, then the judged ones.

    A metric without a judge has `timeout_s`. A judged one has `judged_timeout_s`, which must exceed the longest wait
    for a free judge: the judge bounds each answer from the moment its turn comes, and giving up because others came
    first would lose scores, and not at random. All judging of one sample has `deadline_s`, waiting not counted.

    The rates of judged metrics are multiplied by `budget_factor(sample, evaluations without a judge)` and by
    `judge_pace.factor`. An evaluation's weight for alerts is the lowest rate that any sample of its app could have had
    at this moment over its own: what lowers all rates alike, as budget and back-pressure do, cancels out. A sample that
    began more than `max_age_s` ago is not judged: its judged metrics are skipped as "expired". `signals` are
    computed for every sample, whatever its skip reason, and choose nothing.
    """

    def __init__(
        self,
        metrics: Sequence[SampledMetric],
        choice: MetricSampler,
        *,
        timeout_s: float = TIMEOUT_S,
        judged_timeout_s: float = 3600.0,
        deadline_s: float = 3600.0,
        max_age_s: float = math.inf,
        budget_factor: Callable[[Sample, Sequence[Evaluation]], BudgetFactor] = lambda *_: BudgetFactor(),
        judge_pace: JudgePace | None = None,
        observer: WorkerObserver | None = None,
        signals: Signals | None = None,
    ) -> None:
        self.judge_pace = judge_pace or JudgePace(1)
        self._metrics = metrics
        self._of_answers = _by_judge_and_free(
            [sampled for sampled in metrics if not scores_conversations(sampled.metric)]
        )
        self._of_conversations = _by_judge_and_free(
            [sampled for sampled in metrics if scores_conversations(sampled.metric)]
        )
        self._choice = choice
        self._timeout_s = timeout_s
        self._judged_timeout_s = judged_timeout_s
        self._deadline_s = deadline_s
        self._max_age_s = max_age_s
        self._budget_factor = budget_factor
        self._observer = observer or WorkerObserver()
        self._signals = signals or Signals(())

    async def evaluate(self, sample: Sample) -> Sequence[Evaluation]:
        """Return one evaluation for each metric chosen for the sample, and its signals.

        Raises nothing that a metric raises. Conversations have metrics of their own.
        """
        by_judge, free = self._chosen(sample)
        pace = self.judge_pace.factor
        done = await _together([self._run(sampled, sample, sampled.rate, sampled.rate) for sampled in free])
        return await self.finish(self._begun(sample, by_judge, done, pace))

    def begin(self, sample: Sample) -> Begun | None:
        """Run the metrics without a judge and choose the judged ones, for `finish`; None where a metric has to wait."""
        by_judge, free = self._chosen(sample)
        if sample.skip_reason is None and not all(scores_at_once(sampled.metric, sample) for sampled in free):
            return None
        done = []
        for sampled in free:
            joint = self._choice.joint(sample, sampled.rate)
            weight = self._weight(sample, sampled.rate, joint)
            found = evaluate_at_once(sampled.metric, sample, rate=joint, weight=weight, clock=time.perf_counter)
            if found is None:
                return None
            done.append(found)
        return self._begun(sample, by_judge, done, self.judge_pace.factor)

    async def finish(self, begun: Begun) -> Sequence[Evaluation]:
        """Run the judged metrics that were chosen; return what `evaluate` does."""
        if not begun.paid:
            return self.finish_unjudged(begun)
        asked = replace(begun.sample, skip_reason="expired") if begun.expired else begun.sample
        DEADLINE.set(Deadline(self._deadline_s))
        runs = [self._run(sampled, asked, rate, lowest) for sampled, rate, lowest in begun.paid]
        began = time.monotonic()
        self.judge_pace.judging += begun.asks
        try:
            found = [*begun.done, *await _together(runs)]
        finally:
            self.judge_pace.judging -= begun.asks
        now = time.monotonic()
        self.judge_pace.finished(now - began, begun.pace, judged=begun.asks, now=now)
        return [*found, *self._signals_of(begun.sample)]

    def finish_unjudged(self, begun: Begun) -> Sequence[Evaluation]:
        """Do what `finish` does for a sample that got no judged metric."""
        self.judge_pace.finished(0.0, begun.pace, judged=False, now=time.monotonic())
        return [*begun.done, *self._signals_of(begun.sample)]

    def _chosen(self, sample: Sample) -> tuple[Sequence[SampledMetric], list[SampledMetric]]:
        """The judged metrics that fit a sample, and the chosen ones without a judge."""
        by_judge, free = self._of_conversations if sample.transcript else self._of_answers
        return by_judge, [sampled for sampled in free if self._choice.keeps(sample, sampled.rate)]

    def _begun(
        self, sample: Sample, by_judge: Sequence[SampledMetric], done: Sequence[Evaluation], pace: float
    ) -> Begun:
        """Choose the judged metrics, now that the others are done."""
        if expired := sample.skip_reason is None and time.time() - sample.started_at > self._max_age_s:
            self._observer.expired()
        asks = bool(by_judge) and sample.skip_reason is None and not expired
        budget = self._budget_factor(sample, done) if asks else BudgetFactor()
        factor, lowest = budget.own * (pace if asks else 1.0), budget.lowest * (pace if asks else 1.0)
        rates = [(sampled, self._choice.rate(sample, sampled.rate, done) * factor) for sampled in by_judge]
        paid = [
            (sampled, rate, self._choice.lowest(sampled.rate) * lowest)
            for sampled, rate in rates
            if self._choice.keeps(sample, rate)
        ]
        return Begun(sample, done, paid, pace, expired=expired, asks=asks and bool(paid))

    def _signals_of(self, sample: Sample) -> Sequence[Evaluation]:
        return self._signals.evaluations(sample, self._choice.joint(sample, 1.0))

    async def retry_skipped(self, sample: Sample, before: Sequence[Evaluation]) -> Sequence[Evaluation]:
        """Run the metrics that were skipped in `before`; return the evaluations of those that are not skipped again."""
        first = {
            (evaluation.metric, evaluation.version): evaluation
            for evaluation in before
            if isinstance(evaluation.outcome, Skipped)
        }
        again = [sampled for sampled in self._metrics if (sampled.metric.name, str(sampled.metric.version)) in first]
        judged = any(is_judged(sampled.metric) for sampled in again)
        self.judge_pace.judging += judged
        try:
            outcomes = await asyncio.gather(
                *(self._run(sampled, sample, sampled.rate, sampled.rate) for sampled in again)
            )
        finally:
            self.judge_pace.judging -= judged
        # The probability of getting a metric is the one of the first time, when the metric was chosen.
        outcomes = [
            replace(
                evaluation,
                rate=first[evaluation.metric, evaluation.version].rate,
                weight=first[evaluation.metric, evaluation.version].weight,
            )
            for evaluation in outcomes
        ]
        return [evaluation for evaluation in outcomes if not isinstance(evaluation.outcome, Skipped)]

    async def _run(self, sampled: SampledMetric, sample: Sample, rate: float, lowest: float) -> Evaluation:
        timeout_s = self._judged_timeout_s if is_judged(sampled.metric) else self._timeout_s
        joint = self._choice.joint(sample, rate)
        weight = self._weight(sample, lowest, joint)
        return await evaluate(
            sampled.metric, sample, rate=joint, weight=weight, clock=time.perf_counter, timeout_s=timeout_s
        )

    def _weight(self, sample: Sample, lowest: float, joint: float) -> float | None:
        return min(1.0, self._choice.joint(sample, lowest) / joint) if joint else None


def _by_judge_and_free(metrics: Sequence[SampledMetric]) -> tuple[list[SampledMetric], list[SampledMetric]]:
    return [sampled for sampled in metrics if is_judged(sampled.metric)], [
        sampled for sampled in metrics if not is_judged(sampled.metric)
    ]


async def _together(runs: Sequence[Coroutine[Any, Any, Evaluation]]) -> Sequence[Evaluation]:
    """Run these side by side; one alone needs no task of its own."""
    return [await runs[0]] if len(runs) == 1 else await asyncio.gather(*runs)
