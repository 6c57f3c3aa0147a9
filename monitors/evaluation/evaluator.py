"""The evaluator: chooses the metrics of a sample and runs them."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from monitors.evaluation.backpressure import JudgePace
from monitors.evaluation.evaluate import TIMEOUT_S, evaluate, is_judged
from monitors.evaluation.observer import WorkerObserver
from monitors.evaluation.signals import Signals
from monitors.judges.middleware.deadline import DEADLINE, Deadline
from monitors.metrics import Metric, scores_conversations
from monitors.records import Evaluation, Sample, Skipped
from monitors.sampling import MetricSampler


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
        whole = bool(sample.transcript)
        fitting = [one for one in self._metrics if scores_conversations(one.metric) == whole]
        by_judge = [one for one in fitting if is_judged(one.metric)]
        free = [one for one in fitting if not is_judged(one.metric) and self._choice.keeps(sample, one.rate)]
        pace = self.judge_pace.factor
        done = await _together([self._run(one, sample, one.rate, one.rate) for one in free])
        if expired := sample.skip_reason is None and time.time() - sample.started_at > self._max_age_s:
            self._observer.expired()
        asks = bool(by_judge) and sample.skip_reason is None and not expired
        budget = self._budget_factor(sample, done) if asks else BudgetFactor()
        factor, lowest = budget.own * (pace if asks else 1.0), budget.lowest * (pace if asks else 1.0)
        rates = [(one, self._choice.rate(sample, one.rate, done) * factor) for one in by_judge]
        paid = [(one, rate) for one, rate in rates if self._choice.keeps(sample, rate)]
        asked = replace(sample, skip_reason="expired") if expired else sample
        DEADLINE.set(Deadline(self._deadline_s))
        runs = [self._run(one, asked, rate, self._choice.lowest(one.rate) * lowest) for one, rate in paid]
        began, judged = time.monotonic(), asks and bool(paid)
        self.judge_pace.judging += judged
        try:
            found = [*done, *await _together(runs)]
        finally:
            self.judge_pace.judging -= judged
        now = time.monotonic()
        self.judge_pace.finished(now - began, pace, judged=judged, now=now)
        return [*found, *self._signals.evaluations(sample, self._choice.joint(sample, 1.0))]

    async def retry_skipped(self, sample: Sample, before: Sequence[Evaluation]) -> Sequence[Evaluation]:
        """Run the metrics that were skipped in `before`; return the evaluations of those that are not skipped again."""
        first = {(one.metric, one.version): one for one in before if isinstance(one.outcome, Skipped)}
        again = [one for one in self._metrics if (one.metric.name, str(one.metric.version)) in first]
        judged = any(is_judged(one.metric) for one in again)
        self.judge_pace.judging += judged
        try:
            outcomes = await asyncio.gather(*(self._run(one, sample, one.rate, one.rate) for one in again))
        finally:
            self.judge_pace.judging -= judged
        # The probability of getting a metric is the one of the first time, when the metric was chosen.
        outcomes = [
            replace(one, rate=first[one.metric, one.version].rate, weight=first[one.metric, one.version].weight)
            for one in outcomes
        ]
        return [one for one in outcomes if not isinstance(one.outcome, Skipped)]

    async def _run(self, one: SampledMetric, sample: Sample, rate: float, lowest: float) -> Evaluation:
        timeout_s = self._judged_timeout_s if is_judged(one.metric) else self._timeout_s
        joint = self._choice.joint(sample, rate)
        found = await evaluate(one.metric, sample, rate=joint, clock=time.perf_counter, timeout_s=timeout_s)
        return replace(found, weight=min(1.0, self._choice.joint(sample, lowest) / joint)) if joint else found


async def _together(runs: Sequence[Coroutine[Any, Any, Evaluation]]) -> Sequence[Evaluation]:
    """Run these side by side; one alone needs no task of its own."""
    return [await runs[0]] if len(runs) == 1 else await asyncio.gather(*runs)
