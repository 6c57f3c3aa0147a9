"""The scheduler: runs the worker and the periodic tasks, and holds what the API shows of them."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from typing import Any, TypeAlias

from gaugeway.records import Alert, Evaluation, Sample, Score
from gaugeway.runtime.label_cap import OVERFLOW
from gaugeway.runtime.tasks import repeat, spawn
from gaugeway.sampling import MAX_RATIO, MetricSampler
from gaugeway.settings import ConfigError
from gaugeway.settings.shared import Config, Judge, Sampled, Shared
from gaugeway.signals import RISING, SIGNALS
from gaugeway.signals import enabled as enabled_signals
from gaugeway.storage.joining import SOURCES
from gaugeway.storage.leader import Alone, Leader, while_leading
from gaugeway.storage.queues import Queue
from gaugeway.storage.stores import Query, StateStore, Store
from monitors.alerting.engine import AlertEngine
from monitors.alerting.notifiers.factory import page_url
from monitors.analysis.capture_coverage import CaptureCoverage, Captured, found_in
from monitors.analysis.captured import OF_TRIAL
from monitors.analysis.human_labels import WINDOW_S, labelled, passings
from monitors.analysis.quality import Covariates, Quality, covariates, estimate, largest
from monitors.analysis.recent_sums import GrowingWindow, RecentSums
from monitors.evaluation.backpressure import JudgePace
from monitors.evaluation.evaluator import DEADLINE_S, MAX_AGE_S, TIMEOUT_S, BudgetFactor, Evaluator, evaluate, judge_of
from monitors.evaluation.first_exchange import has_exchange, log_first
from monitors.evaluation.judge_marks import AUDIT_EVERY_S, audits_per_day, open_audits
from monitors.evaluation.judge_repeats import JudgeRepeats
from monitors.evaluation.models import JudgeSetup
from monitors.evaluation.persist import WorkerObserver
from monitors.evaluation.retirement_watch import RetirementWatch, endpoints_of
from monitors.evaluation.signals import Signals
from monitors.evaluation.transcripts import TranscriptMaker
from monitors.evaluation.worker import Worker, WorkerSettings
from monitors.exporters import Exporter
from monitors.exporters.instruments import Instruments
from monitors.judges.anchors import AnchorWatch, Scorer
from monitors.judges.budget import BudgetSync
from monitors.metrics import Metric, lower_is_better, scores_conversations
from monitors.metrics.judged.evidence import VerifiedShare
from monitors.metrics.registry import Catalogue
from monitors.statistics.agreement import Repeatability
from monitors.trials.runner import TrialRunner

_log = logging.getLogger("gaugeway")
Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
_DAY_S = 86_400.0
_SEVERITY = {"quiet": 1, "pending": 2, "firing": 3}
_CALLS_AT_ONCE, _CALLS_IN_A_ROW = 5, 3
"""Most judge calls of one sample at once (one a metric) and in a row (claims, verdicts, missing verdicts)."""


_TRANSCRIPTS_EVERY_S = 30.0
_PAUSE_PER_SCORE_S, _ESTIMATE_PAUSE_S = 50e-6, 60.0
"""Reading a score of the window takes a microsecond, and the estimates are to take a fiftieth of a core."""
_COUNT_S = 5.0
"""Between two readings of the gateways' counters: what a gateway counts after the last one before its end is lost."""
_PAUSE_S = 15.0
"""Longest pause between alert ticks where the store is slow."""
_SHARE_S, _SAVE_S = 10.0, 30.0
"""How often capture coverage is saved, by workers that share it and by one process: all states are read for it."""


class WorkerCounts(WorkerObserver):
    """Counts the worker's events in Prometheus, in the capture coverage, and as scores too late for their bucket."""

    def __init__(self, instruments: Instruments, engine: AlertEngine, capture: CaptureCoverage) -> None:
        self._instruments = instruments
        self._engine = engine
        self._capture = capture

    def failed(self, operation: str) -> None:
        self._instruments.worker_errors.labels(operation).inc()

    def stored(self, sample: Sample, before: Sample | None) -> None:
        self._capture.add(sample, before)
        if before is None and (found := found_in(sample)) is not None:
            self._instruments.answers.labels(self._instruments.cap("app", sample.app), found).inc()
        if sample.retrieval_s is not None and (before is None or before.retrieval_s is None):
            self._instruments.retrieval_duration.labels(self._instruments.cap("app", sample.app)).observe(
                sample.retrieval_s
            )

    def scored(self, sample: Sample, evaluations: Sequence[Evaluation]) -> None:
        for evaluation in evaluations:
            if isinstance(evaluation.outcome, Score) and self._engine.late(sample, evaluation.metric):
                self._instruments.late_scores.inc()

    def supplement(self, source: str, result: str) -> None:
        self._instruments.supplements.labels(source if source in SOURCES else OVERFLOW, result).inc()

    def linked(self, result: str, count: int) -> None:
        self._instruments.conversation_links.labels(result).inc(count)

    def expired(self) -> None:
        self._instruments.queue_expired.inc()


class Scheduler:
    """Runs the worker, alerts, estimates, gauges and retention. `start` and `aclose` belong to one event loop."""

    def __init__(
        self,
        config: Config,
        *,
        queue: Queue,
        store: Store,
        catalogue: Catalogue,
        engine: AlertEngine,
        exporters: Sequence[Exporter],
        instruments: Instruments,
        judging: JudgeSetup | None = None,
        state_store: StateStore | None = None,
        leader: Leader | None = None,
    ) -> None:
        self.store = store
        self.state_store = state_store
        self._config = config
        self._began, self._first_is_logged = time.time(), False
        self._queue = queue
        self._leader = leader or Alone()
        self._catalogue = catalogue
        self._engine = engine
        self._instruments = instruments
        self._quality: Sequence[Quality] | None = None
        self._recent = RecentSums(store, config.monitors.window_s)
        self._growing = GrowingWindow(store, self._recent, config.monitors.window_s)
        replica, per_day = replica_of(config), audits_per_day(config, judging)
        self._capture = CaptureCoverage(state_store, replica, config.monitors.window_s, audits_per_day=per_day)
        self._audits = open_audits(judging, per_day, self._capture, (store, state_store), instruments)
        covariates = list(catalogue.by_name) if judging is not None else []
        self._covariates = Covariates(store, covariates, config.monitors.window_s)
        self._estimate_at = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self.of_leader: dict[str, tuple[float, Callable[[], Awaitable[None]]]] = {}
        """What else the leader repeats, and how often, by the name of its failures; set before `start`."""
        self.trials: TrialRunner | None = None
        self.count_gateways: Callable[[], Awaitable[None]] | None = None
        """Reads the gateways' counters; set before `start`, called by the leader."""
        self._anchors = self._watch_anchors(judging)
        self._pacer = judging.pacer if judging else None
        self._budget_sync = BudgetSync(state_store, self._pacer, replica) if state_store and self._pacer else None
        self._transcripts = self._make_transcripts()
        self._judge_pace = JudgePace(config.monitors.concurrency, target_s=config.queue.target_age_s)
        self._signals = Signals(enabled_signals(config.signals.off), state_store, replica)
        self._repeats = self._make_repeats(judging, replica)
        observer = WorkerCounts(instruments, engine, self._capture)
        self._worker = Worker(
            queue,
            store,
            self._evaluator(judging, observer),
            settings=WorkerSettings(
                concurrency=config.monitors.concurrency,
                join_window_s=config.monitors.join_window_s,
                spans=config.monitors.otlp_receiver,
                completes=config.capture.content,
                renew_s=config.queue.lease_s / 3.0,
            ),
            exporters=[*exporters, self._repeats],
            observer=observer,
        )

    def _evaluator(self, judging: JudgeSetup | None, observer: WorkerCounts) -> Evaluator:
        config = self._config
        return Evaluator(
            self._catalogue.enabled,
            sampler_of(config.capture, config.judge),
            judged_timeout_s=judged_timeout_s(config),
            deadline_s=DEADLINE_S,
            max_age_s=MAX_AGE_S,
            budget_factor=judging.budget_factor if judging else lambda *_: BudgetFactor(),
            judge_pace=self._judge_pace,
            observer=observer,
            signals=self._signals,
        )

    def _make_repeats(self, judging: JudgeSetup | None, replica: str) -> JudgeRepeats:
        return JudgeRepeats(
            self._catalogue.enabled,
            self._config.judge.repeat,
            state_store=self.state_store,
            replica=replica,
            instruments=self._instruments,
            timeout_s=judged_timeout_s(self._config),
            refusal=lambda: "judge_busy" if self._judge_pace.factor < 1.0 else judging.refusal() if judging else "",
        )

    def start(self) -> None:
        """Start the tasks."""
        self._leader.start()
        self.start_scoring()
        self._tasks += [
            spawn(self._repeated(2.0, self._estimate_when_due, "estimates")(), name="estimates"),
            spawn(self._repeated(300.0, self._label, "labels")(), name="labels"),
        ]
        for name, work in self._work_of_the_leader().items():
            self._tasks.append(spawn(while_leading(self._leader, work, name=name), name=f"{name} leader"))
        judge = self._config.judge
        if endpoints := endpoints_of(judge):
            watch = RetirementWatch(endpoints, self._instruments, next_model=judge.next_model)
            self._tasks.append(spawn(watch.run(), name="shutdown dates"))

    def _work_of_the_leader(self) -> Mapping[str, Work]:
        work: dict[str, Work] = {
            "retention": self._repeated(3600.0, self.prune, "prune"),
            "first exchange": self._log_first,
        }
        if self._anchors:
            work["anchors"] = self._anchors.run
        if self.count_gateways:
            work["gateway counts"] = self._repeated(_COUNT_S, self.count_gateways, "gateway_counts")
        for name, (every_s, action) in self.of_leader.items():
            work[name] = self._repeated(every_s, action, name)
        if self.trials:
            work["trials"] = self._repeated(self.trials.every_s, self.trials.tick, "trials")
        if self._audits:
            work["audits"] = self._repeated(AUDIT_EVERY_S, self._audits.tick, "capture_audits")
        if self._transcripts:
            every_s = min(_TRANSCRIPTS_EVERY_S, self._config.monitors.conversation_silence_s / 2)
            work["transcripts"] = self._repeated(every_s, self._transcripts.tick, "transcripts")
        return work

    def _repeated(self, seconds: float, action: Callable[[], Awaitable[object]], what: str) -> Work:
        """Return what repeats an action, and counts its failures as those of `what`."""
        return partial(repeat, seconds, action, self._failed(what))

    async def look_back(self) -> None:
        """See what earlier processes stored. Call it before anything is scored."""
        self._first_is_logged = await has_exchange(self.store, self._config.capture.retention_days)

    async def _log_first(self) -> None:
        if self._first_is_logged:
            return
        days = self._config.capture.retention_days
        await log_first(self.store, page_url(self._config), began=self._began, retention_days=days)
        self._first_is_logged = True

    def start_scoring(self) -> None:
        """Start only the worker and what it needs, in a process that helps one that does the rest."""
        share_s = _SHARE_S if self._config.monitors.workers > 1 else _SAVE_S
        alerts = partial(
            repeat,
            tick_s(self._config),
            self._tick,
            self._failed("alerts"),
            longest_s=_PAUSE_S,
            is_urgent=lambda: self._engine.has_news,
        )
        work: dict[str, Work] = {
            "worker": self._worker.run,
            "alerts": alerts,
            "queue gauges": self._repeated(2.0, self.measure_queue, "queue"),
            "signals": self._repeated(30.0, self._signals.tick, "signals"),
            "capture coverage": self._repeated(share_s, self._capture.tick, "capture"),
            "judge repeats": self._repeats.run,
            "judge pairs": self._repeated(_SAVE_S, self._repeats.tick, "judge_repeats"),
        }
        if self._budget_sync is not None:
            work["spending"] = self._repeated(10.0, self._spend, "spending")
        self._tasks = [spawn(run(), name=name) for name, run in work.items()]

    async def aclose(self, timeout_s: float = 10.0) -> None:
        """Finish the samples in progress within `timeout_s`; other workers get the rest when the leases run out."""
        worker, *others = self._tasks
        self._worker.stop()
        await asyncio.wait([worker], timeout=timeout_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.wait([worker, *others])
        try:
            await self._spend()  # costs since the last tick
            await self._capture.tick()
            await self._signals.tick()
            await self._repeats.tick()
            if self.count_gateways is not None and self._leader.is_leader():
                await self.count_gateways()
        except Exception as error:  # noqa: BLE001 - shutdown continues on any store error; logged
            _log.warning("cannot save the last counters: %s: %s", type(error).__name__, error)
        await self._engine.aclose()
        await self._leader.aclose()

    async def status(self) -> dict[str, Any]:
        """Return the configuration in use and the state of queue and rules."""
        judge, depth = self._config.judge, await self._queue.depth()
        return {
            "version": version("gaugeway"),
            "judge": {"model": judge.model, "mode": judge.mode} if judge.base_url else None,
            "notes": list(self._catalogue.notes),
            "metrics": [
                {
                    "name": enabled.metric.name,
                    "version": enabled.metric.version,
                    "judge": judge_of(enabled.metric),
                    "rate": enabled.rate,
                    "threshold": enabled.threshold,
                    "objective": enabled.objective,
                    "lower_is_better": lower_is_better(enabled.metric),
                    "of_conversations": scores_conversations(enabled.metric),
                }
                for enabled in self._catalogue.enabled
            ],
            "judge_repeats": [asdict(repeats) for repeats in self.judge_repeats()],
            "judge_evidence": [asdict(share) for share in self.judge_evidence()],
            "signals": [
                {"name": name, "meaning": SIGNALS[name].meaning, "lower_is_better": name in RISING}
                for name in enabled_signals(self._config.signals.off)
            ],
            "queue": {
                "ready": depth.ready,
                "leased": depth.leased,
                "dead_letters": depth.dead,
                "trimmed": depth.trimmed,
            },
            "rules": [asdict(stream) for stream in self._engine.streams()],
        }

    def quality(self) -> Sequence[Quality]:
        """Return the latest estimates."""
        return self._quality or ()

    def is_estimated(self) -> bool:
        """Return whether there was an estimate."""
        return self._quality is not None

    def captured(self) -> Sequence[Captured]:
        """Return the capture coverage of each app."""
        return self._capture.captured()

    def judge_repeats(self) -> Sequence[Repeatability]:
        """Return how far the judge's scores of the same answer differ, by metric."""
        return self._repeats.found()

    def judge_evidence(self) -> Sequence[VerifiedShare]:
        """Return how much of the judge's evidence could be verified, as seen by this process."""
        return self._instruments.evidence.shares()

    def states(self) -> Mapping[tuple[str, str], str]:
        """Return the worst state of the rules that watch each stream, by app and metric."""
        worst_last = sorted(self._engine.streams(), key=lambda stream: _SEVERITY[stream.state])
        return {(stream.app, stream.metric): stream.state for stream in worst_last}

    def alerts(self) -> Sequence[Alert]:
        """Return the alerts, newest first."""
        return self._engine.alerts()

    async def _tick(self) -> None:
        await (self._engine.tick() if self._leader.is_leader() else self._engine.follow())

    def _watch_anchors(self, judging: JudgeSetup | None) -> AnchorWatch | None:
        if judging is None or not judging.anchors:
            return None
        other = judging.successor
        watch = AnchorWatch(
            judging.anchors,
            scorer_of(self._catalogue.by_name),
            on_drift=judging.show_drift,
            score_next=scorer_of(other.metrics) if other else None,
            score_alone=scorer_of(other.present_metrics) if other and other.present_metrics else None,
            on_agreement=judging.show_agreement,
        )
        judging.anchor_watches.append(watch)
        return watch

    def _make_transcripts(self) -> TranscriptMaker | None:
        """Return what queues whole conversations, if a metric scores them and their texts are stored."""
        rates = [enabled.rate for enabled in self._catalogue.enabled if scores_conversations(enabled.metric)]
        capture, silence_s = self._config.capture, self._config.monitors.conversation_silence_s
        if rates and not capture.content:
            _log.warning("conversations are not scored: [capture] content = false keeps no transcripts")
        if not rates or not capture.content:
            return None
        sampler, highest = sampler_of(capture, self._config.judge), max(rates)

        async def oldest() -> float | None:
            return (await self._queue.depth()).oldest_started_at

        return TranscriptMaker(
            self.store,
            self._queue,
            silence_s=silence_s,
            chosen=lambda sample: sampler.keeps(sample, min(1.0, highest * MAX_RATIO)),
            oldest=oldest,
        )

    async def _spend(self) -> None:
        if self._budget_sync is not None and self._pacer is not None:
            await self._budget_sync.tick()
            self._instruments.judge_budget_spent.set(self._pacer.spent(time.time()).usd)

    async def _estimate_when_due(self) -> None:
        if time.monotonic() >= self._estimate_at:
            await self.estimate()
            scores = sum(quality.n for quality in self.quality() if not quality.slice)
            self._estimate_at = time.monotonic() + min(_PAUSE_PER_SCORE_S * scores, _ESTIMATE_PAUSE_S)

    async def estimate(self) -> None:
        """Estimate the quality of the window and show it. Raises EngineError."""
        now, window_s = time.time(), self._config.monitors.window_s
        window = Query(since=now - window_s, until=now + _DAY_S)
        waiting = await self._queue.depth()  # before the scores are read: what has left the queue is in the store
        every = await self._recent.summary(now, waiting.oldest_started_at)
        summaries = largest([summary for summary in every if OF_TRIAL not in summary.metric])
        given = {*covariates(), *SIGNALS}
        wanted = {
            (summary.app, summary.metric) for summary in summaries if not summary.slice and summary.metric not in given
        }
        helped = await self._covariates.helped(window, now, wanted)
        effects = self._engine.design_effects()
        found = estimate(summaries, helped, effects, window_s=window_s)
        grown = await self._growing.grown(found, now, effects, waiting.oldest_started_at)
        self._quality = await self._covariates.with_spend(grown, window, now)
        targets = {enabled.metric.name: (enabled.objective, enabled.threshold) for enabled in self._catalogue.enabled}
        self._instruments.show_quality(self._quality, targets)
        self._instruments.show_capture(self._capture.captured())

    async def _label(self) -> None:
        window, passing = Query(since=time.time() - WINDOW_S, until=time.time() + 1.0), passings(self._catalogue)
        self._instruments.show_labels(await labelled(self.store, window, passing=passing))

    async def measure_queue(self) -> None:
        """Show what the queue holds, and adapt the judge's pace to it. Raises EngineError."""
        depth = await self._queue.depth()
        oldest = depth.oldest_started_at
        self._instruments.queue_depth.set(depth.ready + depth.leased)
        self._instruments.queue_oldest_seconds.set(0.0 if oldest is None else max(0.0, time.time() - oldest))
        self._instruments.queue_bytes.set(depth.bytes)
        self._instruments.queue_dead_letters.set(depth.dead)
        self._instruments.queue_trimmed.set(depth.trimmed)
        held, now = self._worker.held, time.monotonic()
        factor = self._judge_pace.observe_queue(ready=depth.ready, leased=depth.leased, held=held, now=now)
        self._instruments.judge_pace_factor.set(factor)

    async def prune(self) -> None:
        """Remove what is older than the retention. Raises EngineError."""
        days = self._config.capture.retention_days
        before = time.time() - days * _DAY_S
        if removed := await self.store.prune(before):
            _log.info("removed %d samples older than %g days", removed, days)
        if removed := await self._queue.prune(before):
            _log.warning("removed %d samples older than %g days that were never evaluated", removed, days)

    def _failed(self, what: str) -> Callable[[], None]:
        return lambda: self._instruments.worker_errors.labels(what).inc()


def scorer_of(metrics: Mapping[str, Metric]) -> Scorer:
    """Return what scores anchors by these metrics."""

    async def score(sample: Sample, metric: str) -> float | None:
        if metric not in metrics:
            return None
        found = await evaluate(metrics[metric], sample, rate=1.0, clock=time.perf_counter)
        return found.outcome.value if isinstance(found.outcome, Score) else None

    return score


def sampler_of(capture: Sampled, judge: Judge) -> MetricSampler:
    """Build the sampler that chooses the metrics of a sample. Raises ConfigError."""
    try:
        return MetricSampler(
            capture.salt,
            nested_with_otel=capture.sample_by == "trace",
            by_conversation=capture.sample_by == "conversation",
            bias=judge.bias,
        )
    except ValueError as error:
        raise ConfigError([f"judge.bias: {error}"]) from error


def tick_s(config: Shared) -> float:
    """Return the seconds between two ticks of the alert engine."""
    return min(5.0, max(0.2, config.alerts.bucket_s / 4))


def judged_timeout_s(config: Config) -> float:
    """Return the timeout of a judged metric: more than its calls and the waits for a free judge can take together.

    The worst case: all samples in progress make all their calls at once, every answer takes the whole `timeout_s`, and
    this metric's calls come last each time. Only a plug-in judge that never answers exceeds it.
    """
    asked = config.monitors.concurrency * _CALLS_AT_ONCE
    rounds = 1 + math.ceil(asked / config.judge.concurrency)
    return max(TIMEOUT_S, _CALLS_IN_A_ROW * rounds * config.judge.timeout_s)


def replica_of(config: Config) -> str:
    """Return this process's name among those that share the store."""
    return config.monitors.replica or f"{socket.gethostname()}:{config.monitors.port}"
