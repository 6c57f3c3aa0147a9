"""The evaluator: chooses the metrics of a sample and runs each; every failure of one becomes an outcome."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from types import TracebackType
from typing import Any, NamedTuple

from gaugeway.records import Evaluation, Failed, Outcome, Sample, Score, Skipped
from gaugeway.sampling import MetricSampler
from gaugeway.settings.bounds import bounded_name
from monitors.evaluation.backpressure import JudgePace
from monitors.evaluation.persist import WorkerObserver
from monitors.evaluation.signals import Signals
from monitors.judges import SPEND, JudgeError, Spend
from monitors.judges.middleware.limits import DEADLINE, Deadline
from monitors.metrics import Metric, scores_at_once, scores_conversations
from monitors.metrics.registry import Enabled

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


class Begun(NamedTuple):
    """A sample with its evaluations without a judge, signals included; `paid` are the judged metrics it gets, each with
    its rate and the lowest rate that a sample of its app could have had. `asks` says that the judge will be asked.
    """

    sample: Sample
    done: Sequence[Evaluation]
    paid: Sequence[tuple[Enabled, float, float]]
    pace: float
    expired: bool
    asks: bool


@dataclass(eq=False)
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

    metrics: Sequence[Enabled]
    choice: MetricSampler
    _: KW_ONLY
    timeout_s: float = TIMEOUT_S
    judged_timeout_s: float = 3600.0
    deadline_s: float = 3600.0
    max_age_s: float = math.inf
    budget_factor: Callable[[Sample, Sequence[Evaluation]], BudgetFactor] = lambda *_: BudgetFactor()
    judge_pace: JudgePace = field(default_factory=lambda: JudgePace(1))
    observer: WorkerObserver = field(default_factory=WorkerObserver)
    signals: Signals = field(default_factory=lambda: Signals(()))

    def __post_init__(self) -> None:
        self._of_answers = _by_judge_and_free(self.metrics, of_conversations=False)
        self._of_conversations = _by_judge_and_free(self.metrics, of_conversations=True)

    async def evaluate(self, sample: Sample) -> Sequence[Evaluation]:
        """Return one evaluation for each metric chosen for the sample, and its signals.

        Raises nothing that a metric raises. Conversations have metrics of their own.
        """
        return await self.finish(await self.start(sample))

    async def start(self, sample: Sample) -> Begun:
        """Run the metrics without a judge and choose the judged ones, for `finish`."""
        by_judge, free = self._chosen(sample)
        pace = self.judge_pace.factor
        done = await _together([self._run(sampled, sample, sampled.rate, sampled.rate) for sampled in free])
        return self._begun(sample, by_judge, done, pace)

    def begin(self, sample: Sample) -> Begun | None:
        """Do what `start` does where no metric has to wait; None where one has."""
        by_judge, free = self._chosen(sample)
        if sample.skip_reason is None and not all(scores_at_once(sampled.metric, sample) for sampled in free):
            return None
        done = []
        for sampled in free:
            joint = self.choice.joint(sample, sampled.rate)
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
        DEADLINE.set(Deadline(self.deadline_s))
        runs = [self._run(sampled, asked, rate, lowest) for sampled, rate, lowest in begun.paid]
        began = time.monotonic()
        self.judge_pace.judging += begun.asks
        try:
            found = [*begun.done, *await _together(runs)]
        finally:
            self.judge_pace.judging -= begun.asks
        now = time.monotonic()
        self.judge_pace.finished(now - began, begun.pace, judged=begun.asks, now=now)
        return found

    def finish_unjudged(self, begun: Begun) -> Sequence[Evaluation]:
        """Do what `finish` does for a sample that got no judged metric."""
        self.judge_pace.finished(0.0, begun.pace, judged=False, now=time.monotonic())
        return begun.done

    def _chosen(self, sample: Sample) -> tuple[Sequence[Enabled], list[Enabled]]:
        """The judged metrics that fit a sample, and the chosen ones without a judge."""
        by_judge, free = self._of_conversations if sample.transcript else self._of_answers
        return by_judge, [sampled for sampled in free if self.choice.keeps(sample, sampled.rate)]

    def _begun(self, sample: Sample, by_judge: Sequence[Enabled], done: Sequence[Evaluation], pace: float) -> Begun:
        """Choose the judged metrics, now that the others are done."""
        if expired := sample.skip_reason is None and time.time() - sample.started_at > self.max_age_s:
            self.observer.expired()
        asks = bool(by_judge) and sample.skip_reason is None and not expired
        budget = self.budget_factor(sample, done) if asks else BudgetFactor()
        factor, lowest = budget.own * (pace if asks else 1.0), budget.lowest * (pace if asks else 1.0)
        rates = [(sampled, self.choice.rate(sample, sampled.rate, done) * factor) for sampled in by_judge]
        paid = [
            (sampled, rate, self.choice.lowest(sampled.rate) * lowest)
            for sampled, rate in rates
            if self.choice.keeps(sample, rate)
        ]
        done = [*done, *self.signals.evaluations(sample, self.choice.joint(sample, 1.0))]
        return Begun(sample, done, paid, pace, expired=expired, asks=asks and bool(paid))

    async def retry_skipped(self, sample: Sample, before: Sequence[Evaluation]) -> Sequence[Evaluation]:
        """Run the metrics that were skipped in `before`; return the evaluations of those that are not skipped again."""
        first = {
            (evaluation.metric, evaluation.version): evaluation
            for evaluation in before
            if isinstance(evaluation.outcome, Skipped)
        }
        again = [sampled for sampled in self.metrics if (sampled.metric.name, str(sampled.metric.version)) in first]
        judged = any(is_judged(sampled.metric) for sampled in again)
        self.judge_pace.judging += judged
        try:
            outcomes = await asyncio.gather(
                *(self._run(sampled, sample, sampled.rate, sampled.rate) for sampled in again)
            )
        finally:
            self.judge_pace.judging -= judged
        # The probability of getting a metric is the one of the first time, when the metric was chosen.
        scored = [evaluation for evaluation in outcomes if not isinstance(evaluation.outcome, Skipped)]
        pairs = ((evaluation, first[evaluation.metric, evaluation.version]) for evaluation in scored)
        return [replace(evaluation, rate=skipped.rate, weight=skipped.weight) for evaluation, skipped in pairs]

    async def _run(self, sampled: Enabled, sample: Sample, rate: float, lowest: float) -> Evaluation:
        timeout_s = self.judged_timeout_s if is_judged(sampled.metric) else self.timeout_s
        joint = self.choice.joint(sample, rate)
        weight = self._weight(sample, lowest, joint)
        return await evaluate(
            sampled.metric, sample, rate=joint, weight=weight, clock=time.perf_counter, timeout_s=timeout_s
        )

    def _weight(self, sample: Sample, lowest: float, joint: float) -> float | None:
        return min(1.0, self.choice.joint(sample, lowest) / joint) if joint else None


def _by_judge_and_free(metrics: Sequence[Enabled], *, of_conversations: bool) -> tuple[list[Enabled], list[Enabled]]:
    """Return the judged metrics and the others, of conversations or of single answers."""
    fit = [sampled for sampled in metrics if scores_conversations(sampled.metric) == of_conversations]
    judged = [sampled for sampled in fit if is_judged(sampled.metric)]
    return judged, [sampled for sampled in fit if sampled not in judged]


async def _together(runs: Sequence[Coroutine[Any, Any, Evaluation]]) -> Sequence[Evaluation]:
    """Run these side by side; one alone needs no task of its own."""
    return [await runs[0]] if len(runs) == 1 else await asyncio.gather(*runs)
