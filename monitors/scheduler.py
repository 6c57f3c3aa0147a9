"""The evaluation plane at work: the worker, the ticking of alerts and estimates, and what the API says of them."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import msgspec

from monitors.alerting.engine import AlertEngine
from monitors.analysis.capture_coverage import CaptureCoverage, Captured, found_in
from monitors.analysis.human_labels import WINDOW_S, labelled, passings
from monitors.analysis.quality import COVARIATE, Quality, comparable, estimate, largest
from monitors.choosing import Choice
from monitors.config import Config, Judge, Sampled, Shared
from monitors.evaluation.backpressure import JudgePace
from monitors.evaluation.evaluate import TIMEOUT_S, evaluate
from monitors.evaluation.judging import Judging
from monitors.evaluation.prompt_marking import EVERY_S, PromptMarking
from monitors.evaluation.worker import Worker
from monitors.exporters import Exporter
from monitors.exporters.instruments import Instruments
from monitors.judges.anchors import AnchorWatch, Drift
from monitors.judges.spending import Spending
from monitors.metrics import lower_is_better
from monitors.metrics.registry import Catalogue
from monitors.records import Alert, Evaluation, Sample, Score
from monitors.runtime.label_cap import OVERFLOW
from monitors.runtime.settings import ConfigError
from monitors.runtime.tasks import spawn
from monitors.sampling import Bias
from monitors.statistics.control_variate import Fit, fitted
from monitors.storage.joining import SOURCES
from monitors.storage.leader import Alone, Leader, while_leading
from monitors.storage.queues import Pruned, Queue
from monitors.storage.stores import PairedSums, Query, StateStore, Store

_log = logging.getLogger("gaugeway")
_DAY_S = 86_400.0
_BADNESS = {"quiet": 1, "pending": 2, "firing": 3}
_ASKED_AT_ONCE, _ASKED_IN_A_ROW = 5, 3
"""The most that one sample asks of the judge: every metric by itself; the claims, their verdicts, the missing ones."""


_PAUSE_S = 15.0
"""An alert that took long to describe is told in the next round: that must not be far away."""


class Scheduler:
    """Everything that runs beside the admin port. `start` and `aclose` belong to one event loop."""

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
        judging: Judging | None = None,
        ledger: StateStore | None = None,
        leader: Leader | None = None,
    ) -> None:
        self.store = store
        self._config = config
        self._queue = queue
        self._leader = leader or Alone()
        self._catalogue = catalogue
        self._engine = engine
        self._instruments = instruments
        self._quality: Sequence[Quality] = ()
        self._capture = CaptureCoverage(ledger, _replica(config), config.monitors.window_s)
        self._has_cheap = any(one.metric.name == COVARIATE for one in catalogue.enabled) and judging is not None
        self._fits: dict[tuple[str, str], Fit] = {}
        self._refit_at = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self.marking: PromptMarking | None = None
        """Marks prompts for the gateways, where the judge can; set before `start`."""
        self._anchors = self._watch_anchors(judging)
        self._pacer = judging.pacer if judging else None
        self._spending = Spending(ledger, self._pacer, _replica(config)) if ledger and self._pacer else None
        self._judge_pace = JudgePace(config.monitors.concurrency, target_s=config.queue.target_age_s)
        self._worker = Worker(
            queue=queue,
            store=store,
            metrics=catalogue.enabled,
            exporters=exporters,
            choice=choice_of(config.capture, config.judge),
            concurrency=config.monitors.concurrency,
            on_error=lambda operation: instruments.worker_errors.labels(operation).inc(),
            on_scored=self._count_late,
            judged_timeout_s=patience_s(config),
            join_window_s=config.monitors.join_window_s,
            spans=config.monitors.otlp_receiver,
            on_supplement=self._count_supplement,
            completes=config.capture.content,
            deadline_s=config.judge.deadline_s,
            pace=judging.pace if judging else lambda *_: 1.0,
            judge_pace=self._judge_pace,
            max_age_s=config.queue.max_age_s,
            on_expired=instruments.queue_expired.inc,
            on_stored=self._count_capture,
        )

    def start(self) -> None:
        """Start working."""
        self._leader.start()
        self._tasks = [
            spawn(self._worker.run(), name="worker"),
            spawn(_every(tick_s(self._config), self._tick, self._failed("alerts"), longest_s=_PAUSE_S), name="alerts"),
            spawn(_every(2.0, self._estimate, self._failed("estimates")), name="estimates"),
            spawn(_every(2.0, self._measure_queue, self._failed("queue")), name="queue gauges"),
            spawn(_every(300.0, self._label, self._failed("labels")), name="labels"),
            spawn(_every(30.0, self._capture.tick, self._failed("capture")), name="capture coverage"),
            spawn(while_leading(self._leader, self._retain, name="retention"), name="retention's turn"),
            *(
                [spawn(while_leading(self._leader, self._anchors.run, name="anchors"), name="anchors' turn")]
                if self._anchors
                else []
            ),
            *(
                [spawn(while_leading(self._leader, self._mark, name="marks"), name="marks' turn")]
                if self.marking
                else []
            ),
            *([spawn(_every(10.0, self._spend, self._failed("spending")), name="spending")] if self._spending else []),
        ]

    async def aclose(self, timeout_s: float = 10.0) -> None:
        """Finish the samples under way, within `timeout_s`; leases of the others run out and others take them over."""
        worker, *others = self._tasks
        self._worker.stop()
        await asyncio.wait([worker], timeout=timeout_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.wait([worker, *others])
        try:
            await self._spend()  # what was paid since the last time
            await self._capture.tick()
        except Exception as error:  # noqa: BLE001 - whatever the store does, stopping goes on
            _log.warning("cannot save the last counters: %s: %s", type(error).__name__, error)
        await self._engine.aclose()
        await self._leader.aclose()

    async def status(self) -> dict[str, Any]:
        """Say what is configured and how the plane is doing."""
        judge, depth = self._config.judge, await self._queue.depth()
        return {
            "version": version("gaugeway"),
            "judge": {"model": judge.model, "mode": judge.mode} if judge.base_url else None,
            "notes": list(self._catalogue.notes),
            "metrics": [
                {
                    "name": one.metric.name,
                    "version": one.metric.version,
                    "rate": one.rate,
                    "threshold": one.threshold,
                    "objective": one.objective,
                    "lower_is_better": lower_is_better(one.metric),
                }
                for one in self._catalogue.enabled
            ],
            "queue": {
                "ready": depth.ready,
                "leased": depth.leased,
                "dead_letters": depth.dead,
                "trimmed": depth.trimmed,
            },
            "rules": [asdict(one) for one in self._engine.streams()],
        }

    def quality(self) -> Sequence[Quality]:
        """Return the latest estimates."""
        return self._quality

    def captured(self) -> Sequence[Captured]:
        """Return what was found in the answers of each app."""
        return self._capture.captured()

    def states(self) -> Mapping[tuple[str, str], str]:
        """Return the worst state of the rules that watch each stream, by app and metric."""
        worst_last = sorted(self._engine.streams(), key=lambda one: _BADNESS[one.state])
        return {(one.app, one.metric): one.state for one in worst_last}

    def alerts(self) -> Sequence[Alert]:
        """Return the alerts, newest first."""
        return self._engine.alerts()

    def _count_capture(self, sample: Sample, before: Sample | None) -> None:
        self._capture.add(sample, before)
        if before is None and (found := found_in(sample)) is not None:
            self._instruments.answers.labels(self._instruments.cap("app", sample.app), found).inc()

    async def _tick(self) -> None:
        await (self._engine.tick() if self._leader.is_leader() else self._engine.follow())

    def _count_late(self, sample: Sample, evaluations: Sequence[Evaluation]) -> None:
        for evaluation in evaluations:
            if isinstance(evaluation.outcome, Score) and self._engine.late(sample, evaluation.metric):
                self._instruments.late_scores.inc()

    def _watch_anchors(self, judging: Judging | None) -> AnchorWatch | None:
        if judging is None or not judging.anchors:
            return None
        metrics = {one.metric.name: one.metric for one in self._catalogue.enabled}

        async def score(sample: Sample, metric: str) -> float | None:
            if metric not in metrics:
                return None
            found = await evaluate(metrics[metric], sample, rate=1.0, clock=time.perf_counter)
            return found.outcome.value if isinstance(found.outcome, Score) else None

        def show(drift: Drift) -> None:
            self._instruments.drifted(drift.metric, drift.disagreement, drift.low, drift.shift)
            judging.drifts[drift.metric] = drift
            if drift.drifted():
                _log.warning("the judge disagrees with %.0f %% of the anchors of %s", 100 * drift.low, drift.metric)

        watch = AnchorWatch(judging.anchors, score, every_s=self._config.judge.anchors_every_s, on_drift=show)
        judging.suspect.append(watch.wake)
        return watch

    def _count_supplement(self, source: str, result: str) -> None:
        self._instruments.supplements.labels(source if source in SOURCES else OVERFLOW, result).inc()

    async def _spend(self) -> None:
        if self._spending is not None and self._pacer is not None:
            await self._spending.tick()
            self._instruments.judge_budget_spent.set(self._pacer.spent(time.time()).usd)

    async def _estimate(self) -> None:
        now, window_s = time.time(), self._config.monitors.window_s
        window = Query(since=now - window_s, until=now + _DAY_S)
        paired: Sequence[PairedSums] = ()
        if self._has_cheap:
            if now >= self._refit_at:
                earlier = await self.store.paired(Query(since=now - 2 * window_s, until=now - window_s), COVARIATE)
                self._fits = {(one.app, one.metric): fitted(one.sums) for one in earlier if comparable(one)}
                self._refit_at = now + window_s / 4
            paired = await self.store.paired(window, COVARIATE)
        self._quality = estimate(largest(await self.store.summary(window)), paired, self._fits)
        promises = {one.metric.name: (one.objective, one.threshold) for one in self._catalogue.enabled}
        self._instruments.show_quality(self._quality, promises)
        self._instruments.show_capture(self._capture.captured())

    async def _label(self) -> None:
        now = time.time()
        window = Query(since=now - WINDOW_S, until=now + 1.0)
        self._instruments.show_labels(await labelled(self.store, window, passing=passings(self._catalogue)))

    async def _measure_queue(self) -> None:
        depth = await self._queue.depth()
        oldest = depth.oldest_started_at
        self._instruments.queue_depth.set(depth.ready + depth.leased)
        self._instruments.queue_oldest_seconds.set(0.0 if oldest is None else max(0.0, time.time() - oldest))
        self._instruments.queue_bytes.set(depth.bytes)
        self._instruments.queue_dead_letters.set(depth.dead)
        self._instruments.queue_trimmed.set(depth.trimmed)
        held, now = self._worker.held, time.monotonic()
        factor = self._judge_pace.look(ready=depth.ready, leased=depth.leased, held=held, now=now)
        self._instruments.judge_pace_factor.set(factor)

    async def _mark(self) -> None:
        if self.marking is not None:
            await _every(EVERY_S, self.marking.tick, self._failed("prompt_marks"))

    async def _retain(self) -> None:
        await _every(3600.0, self._prune, self._failed("prune"))

    async def _prune(self) -> None:
        days = self._config.capture.retention_days
        before = time.time() - days * _DAY_S
        if removed := await self.store.prune(before):
            _log.info("removed %d samples older than %g days", removed, days)
        if isinstance(self._queue, Pruned) and (removed := await self._queue.prune(before)):
            _log.warning("removed %d samples older than %g days that were never evaluated", removed, days)

    def _failed(self, what: str) -> Callable[[], None]:
        return lambda: self._instruments.worker_errors.labels(what).inc()


def choice_of(capture: Sampled, judge: Judge) -> Choice:
    """What decides which metrics a sample gets. Raises ConfigError."""
    bias = [Bias(**msgspec.structs.asdict(one)) for one in judge.bias]
    try:
        return Choice(capture.salt, nested_with_otel=capture.nested_with_otel, bias=bias)
    except ValueError as error:
        raise ConfigError([f"judge.bias: {error}"]) from error


def tick_s(config: Shared) -> float:
    """How often the alert engine looks for buckets to close."""
    return min(5.0, max(0.2, config.alerts.bucket_s / 4))


def patience_s(config: Config) -> float:
    """How long a metric that asks the judge may take: more than its answers and waiting for a free judge can add up to.

    All samples under way ask all they can at once, the judge takes its whole `timeout_s` for every answer, and ours
    comes last each time. Only a judge of one's own that never answers takes longer.
    """
    asked = config.monitors.concurrency * _ASKED_AT_ONCE
    rounds = 1 + math.ceil(asked / config.judge.concurrency)
    return max(TIMEOUT_S, _ASKED_IN_A_ROW * rounds * config.judge.timeout_s)


def _replica(config: Config) -> str:
    """What this process is called among those that use the same store."""
    return config.monitors.replica or f"{socket.gethostname()}:{config.monitors.port}"


async def _every(
    seconds: float, action: Callable[[], Awaitable[None]], failed: Callable[[], None], *, longest_s: float = math.inf
) -> None:
    """Repeat `action`; when it fails, count, say so once in a row of failures, and go on.

    What takes long runs less often: at most a tenth of the time goes into it, unless it would pause for longer than
    `longest_s`.
    """
    silent = False
    while True:
        begin = time.monotonic()
        try:
            await action()
            silent = False
        except Exception as error:  # noqa: BLE001 - whatever an engine does, the next round tries again
            failed()
            if not silent:
                _log.warning("%s failed, retrying: %s: %s", _name(), type(error).__name__, error)
            silent = True
        await asyncio.sleep(max(seconds, min(longest_s, 9 * (time.monotonic() - begin))))


def _name() -> str:
    task = asyncio.current_task()
    return task.get_name() if task else "a task"
