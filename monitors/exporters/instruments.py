"""The Prometheus instruments of the evaluation plane."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gaugeway.data_files import table
from gaugeway.records import Evaluation
from gaugeway.runtime.label_cap import OVERFLOW, LabelCap
from gaugeway.signals import SIGNALS
from gaugeway.storage.trials import StoredTrial
from monitors.alerting.changes import Version
from monitors.alerting.delivery import Result
from monitors.alerting.engine import AlertObserver, StreamStatus
from monitors.analysis.capture_coverage import Captured
from monitors.analysis.human_labels import Labelled
from monitors.analysis.quality import Quality
from monitors.judges import Observer
from monitors.judges.anchors import AnchorComparison
from monitors.metrics.judged.evidence import EvidenceTally
from monitors.statistics.agreement import Repeatability

_GROUPS = table("monitors.exporters", "gauges.toml")
SCORE_BUCKETS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
JUDGE_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80)
RETRIEVAL_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class _Series(NamedTuple):
    """A series as a class declares it; without a `name` it is called as its attribute."""

    kind: type[Counter | Gauge | Histogram]
    text: str
    labels: tuple[str, ...] = ()
    name: str = ""
    options: Mapping[str, Any] = {}

    def open(self, attribute: str, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
        """Return the series, registered."""
        name = f"gaugeway_{self.name or attribute}"
        return self.kind(name, self.text, self.labels, registry=registry, **self.options)


def _counter(text: str, *labels: str) -> Any:
    return _Series(Counter, text, labels)


def _gauge(text: str, *labels: str, name: str = "") -> Any:
    return _Series(Gauge, text, labels, name)


def _histogram(text: str, buckets: tuple[float, ...], *labels: str, name: str = "") -> Any:
    return _Series(Histogram, text, labels, name, {"buckets": buckets})


def _gauges(group: str) -> Any:
    """Declare the gauges of a group."""
    labels, texts = _GROUPS[group]["labels"], _GROUPS[group]["gauges"]
    return tuple(_Series(Gauge, text, labels, name) for name, text in texts.items())


class GaugeGroup:
    """Gauges of the same labels, whose series are removed when they are not shown any more."""

    def __init__(self, *gauges: Gauge) -> None:
        self._gauges = gauges
        self._shown: set[tuple[str, ...]] = set()

    def set(self, labels: tuple[str, ...], values: Sequence[float | None] = ()) -> None:
        """Set each gauge; remove the series of those that have no value."""
        for gauge, value in zip(self._gauges, values or (None,) * len(self._gauges), strict=True):
            if value is not None:
                gauge.labels(*labels).set(value)
            else:
                with contextlib.suppress(KeyError):
                    gauge.remove(*labels)

    def show(self, values: Mapping[tuple[str, ...], Sequence[float | None]]) -> None:
        """Set the values of these labels, and remove the series of all that were shown before."""
        for labels, numbers in values.items():
            self.set(labels, numbers)
        for gone in self._shown.difference(values):
            self.set(gone)
        self._shown = set(values)


_WATCHED = ("app", "metric", "rule")


class Instruments(Observer):
    """All series of the monitors' `/metrics`; attributes are named like the series."""

    score: Histogram = _histogram("Scores in [0, 1].", SCORE_BUCKETS, "app", "metric", "model")
    verdicts: Counter = _counter("Scores against their threshold.", "app", "metric", "verdict")
    evaluations: Counter = _counter("Evaluations by outcome.", "metric", "outcome", "reason")

    _quality: GaugeGroup = _gauges("quality")
    _labels: GaugeGroup = _gauges("labels")
    quality_alarm: Gauge = _gauge("1 while an alert is firing.", *_WATCHED)
    quality_evidence_log10: Gauge = _gauge("Evidence of a drop, log10 over the alarm threshold (0 = alarm).", *_WATCHED)
    quality_baseline: Gauge = _gauge("Mean below which a drop is reported, on the metric's scale.", *_WATCHED)
    trial_worse: Gauge = _gauge("1 where a trial found that a switch made answers worse, else 0.", "app", "trial")
    rule_info: Gauge = _gauge("Always 1; the severity of a rule's alerts.", "rule", "severity")
    quality_slice_alarm: Gauge = _gauge("1 while a slice's alert fires.", *_WATCHED, "slice")
    version_first_seen: Gauge = _gauge(
        "When a version was first seen.", "app", "kind", "version", name="version_first_seen_timestamp_seconds"
    )
    uncovered_scores: Counter = _counter("Scores ignored by alerts: coverage too low.", "metric")

    abstention_comparisons: Counter = _counter("Answers of which judge and signal say whether they decline.", "app")
    abstention_disagreements: Counter = _counter(
        "Of these, answers that only one of them finds to decline.", "app", "kind"
    )
    _signals: GaugeGroup = _gauges("signals")

    answers: Counter = _counter("Evaluated answers, by what was found: question, passages.", "app", "found")
    _capture: GaugeGroup = _gauges("capture")

    judge_requests: Counter = _counter("Judge calls with a response.", "judge_model")
    judge_tokens: Counter = _counter("Tokens the judge used.", "judge_model", "type")
    judge_cost_usd: Counter = _counter("What the judge cost at the configured prices.", "judge_model")
    judge_errors: Counter = _counter("Judge calls without a usable response.", "judge_model", "error")
    judge_duration: Histogram = _histogram(
        "Latency of judge calls.", JUDGE_BUCKETS, "judge_model", name="judge_duration_seconds"
    )
    judge_unusable: Counter = _counter("Answers that could not be used, by reason.", "judge_model", "reason")
    judge_blind: Gauge = _gauge("1 while the circuit of the failing judge is open.", "judge_model", "role")
    judge_cache_lookups: Counter = _counter("Cache lookups of judge calls.", "judge_model", "result")
    judge_cache_saved_usd: Counter = _counter("What cached answers would have cost.", "judge_model")
    judge_tier: Counter = _counter("Judge calls by tier and outcome.", "tier", "outcome")
    judge_agreement: Histogram = _histogram("Agreement of a tier with the last one.", SCORE_BUCKETS, "tier", "sure")
    _drift: GaugeGroup = _gauges("drift")
    judge_repeats: Counter = _counter("Second judgements of an answer, by outcome.", "metric", "outcome", "reason")
    _repeatability: GaugeGroup = _gauges("repeatability")
    judge_evidence: Counter = _counter(
        "Claims of judges' first answers that were checked, by what was wrong.", "judge", "metric", "result"
    )
    _verified: GaugeGroup = _gauges("verified")
    judge_shutdown: Gauge = _gauge(
        "When the judge's endpoint shuts the model down.", "judge_model", name="judge_shutdown_timestamp_seconds"
    )
    judge_model_checks: Counter = _counter("Readings of the endpoint's list of models.", "judge_model", "result")
    _next: GaugeGroup = _gauges("next")
    evaluation_tokens: Counter = _counter("Tokens of judging.", "app", "metric", "type")
    evaluation_cost_usd: Counter = _counter("What judging cost.", "app", "metric")
    judge_budget_factor: Gauge = _gauge("Budget multiplier of the rates of judged metrics.")
    judge_pace_factor: Gauge = _gauge("Multiplier of judged rates for a slow judge.")
    judge_budget_spent: Gauge = _gauge("Spent today, by this process.", name="judge_budget_spent_usd")
    embedding_requests: Counter = _counter("Embedding requests with a response.", "model")
    embedding_tokens: Counter = _counter("Tokens of the texts embedded.", "model")
    embedding_cost_usd: Counter = _counter("What embeddings cost at the configured price.", "model")
    embedding_errors: Counter = _counter("Embedding requests without a usable response.", "model", "error")
    embedding_lookups: Counter = _counter("Texts looked up.", "model", "result")

    queue_depth: Gauge = _gauge("Samples waiting or being evaluated.")
    queue_oldest_seconds: Gauge = _gauge("Age of the oldest of them.")
    queue_trimmed: Gauge = _gauge("Samples trimmed from a full queue, in total.")
    queue_bytes: Gauge = _gauge("Approximate size of the waiting samples in the engine.")
    queue_expired: Counter = _counter("Samples that waited too long to be judged.")
    queue_dead_letters: Gauge = _gauge("Samples set aside after too many attempts.")
    late_scores: Counter = _counter("Scores that arrived after their bucket was closed.")
    conversation_links: Counter = _counter("Exchanges by how they were joined to a conversation, or why not.", "result")
    supplements: Counter = _counter("Contexts, feedback and spans sent separately, by result.", "source", "result")
    retrieval_duration: Histogram = _histogram(
        "Time of the retrieval before an answer, from spans.",
        RETRIEVAL_BUCKETS,
        "app",
        name="retrieval_duration_seconds",
    )
    retrieval_spans: Counter = _counter("Retriever spans received, by the convention they follow.", "convention")
    agent_spans: Counter = _counter("Spans of tools and agents received, by operation.", "operation")
    worker_errors: Counter = _counter("Failed operations, by operation.", "operation")
    cause_evaluations: Counter = _counter("Evaluations made only to find the cause of an alert.", "metric")
    prompt_marks: Counter = _counter("Requests sent to the judge for marking, by outcome.", "outcome")
    capture_audits: Counter = _counter("Exchanges of which the judge audited the capture.", "result")
    notifications: Counter = _counter("Notification attempts.", "notifier", "result")
    sink_results: Counter = _counter("Scores sent to other systems, by result.", "sink", "result")
    label_overflow: Counter = _counter("Label values shown as _other, by label.", "label")
    build_info: Gauge = _gauge("Always 1; the version is the label.", "version")

    def __init__(self, registry: CollectorRegistry, *, version: str) -> None:
        self.registry = registry
        for name, declared in vars(Instruments).items():
            if isinstance(declared, _Series):
                setattr(self, name, declared.open(name, registry))
            elif isinstance(declared, tuple):
                setattr(self, name, GaugeGroup(*(series.open(name, registry) for series in declared)))
        self.judge_budget_factor.set(1.0)
        self.judge_pace_factor.set(1.0)
        self.cap = LabelCap(self.label_overflow)
        self.evidence = EvidenceTally()
        self.build_info.labels(version).set(1)

    def agreed_with_next(self, model: str, metric: str, compared: AnchorComparison) -> None:
        """Show how a judge that may replace the present one scores the anchors; nothing without a common score."""
        agreement = [1.0 - share for share in (compared.disagreement, compared.high, compared.low)]
        numbers = (*agreement, float(compared.n), compared.shift) if compared.n else ()
        self._next.set((model, metric), numbers)

    def judged(self, model: str, seconds: float, input_tokens: int, output_tokens: int, usd: float) -> None:
        """Count an answer of the judge."""
        self.judge_requests.labels(model).inc()
        self.judge_tokens.labels(model, "input").inc(input_tokens)
        self.judge_tokens.labels(model, "output").inc(output_tokens)
        self.judge_cost_usd.labels(model).inc(usd)
        self.judge_duration.labels(model).observe(seconds)

    def failed(self, model: str, kind: str) -> None:
        """Count a failed judge request."""
        self.judge_errors.labels(model, kind).inc()

    def unusable(self, model: str, reason: str) -> None:
        """Count an answer of the judge that could not be used."""
        self.judge_unusable.labels(model, reason).inc()

    def looked_up(self, model: str, result: str, usd: float) -> None:
        """Count a lookup in the judge cache, and the USD that a hit saved."""
        self.judge_cache_lookups.labels(model, result).inc()
        self.judge_cache_saved_usd.labels(model).inc(usd)

    def tier(self, tier: str, outcome: str) -> None:
        """Count the outcome of a call at a tier of the cascade."""
        self.judge_tier.labels(tier, outcome).inc()

    def agreed(self, tier: str, sure: bool, agreement: float) -> None:  # noqa: FBT001 - the port's shape
        """Record a tier's agreement with the last tier, in [0, 1]."""
        self.judge_agreement.labels(tier, str(sure).lower()).observe(agreement)

    def drifted(self, drift: AnchorComparison) -> None:
        """Set the gauges of the judge's drift on the anchors of a metric; remove them when no anchor has a score."""
        self._drift.set((drift.metric,), (drift.disagreement, drift.low, drift.shift) if drift.n else ())

    def repeated(self, metrics: Iterable[str], outcome: str, reason: str) -> None:
        """Count second judgements of an answer."""
        for metric in metrics:
            self.judge_repeats.labels(metric, outcome, self.cap(f"reason:{metric}", reason)).inc()

    def show_repeats(self, found: Sequence[Repeatability]) -> None:
        """Set the gauges of judges that repeat themselves, of the version of each metric that has most pairs."""
        shown: dict[tuple[str, ...], tuple[float | None, ...]] = {}
        for one in sorted(found, key=lambda repeats: repeats.sd.n):
            flipped = None if one.flipped is None else one.flipped.value
            shown[one.judge, one.metric] = one.sd.value, one.sd.low, one.sd.high, flipped, float(one.sd.n)
        self._repeatability.show(shown)

    def checked(self, evaluation: Evaluation) -> None:
        """Count what was checked of the judge's answer for an evaluation, and show its share that was verified."""
        if (checks := self.evidence.add(evaluation)) is None:
            return
        judge, metric = evaluation.judge or "", evaluation.metric
        counts = {"verified": max(0, checks.checked - checks.refused.total()), **checks.refused}
        for result, count in counts.items():
            self.judge_evidence.labels(judge, metric, result).inc(count)
        share = self.evidence.share(judge, metric)
        numbers = (share.value, share.low, share.high, float(share.answers), share.unscored)
        self._verified.set((judge, metric), numbers)

    def charged(self, app: str, metric: str, input_tokens: int, output_tokens: int, usd: float) -> None:
        """Count the cost of one answer for its app and metric; `_other` when there are none."""
        app = self.cap("app", app) if app else OVERFLOW
        metric = metric or OVERFLOW
        self.evaluation_tokens.labels(app, metric, "input").inc(input_tokens)
        self.evaluation_tokens.labels(app, metric, "output").inc(output_tokens)
        self.evaluation_cost_usd.labels(app, metric).inc(usd)

    def embedded(self, model: str, texts: int, seconds: float, tokens: int, usd: float) -> None:  # noqa: ARG002 - port
        """Count an answered request for embeddings."""
        self.embedding_requests.labels(model).inc()
        self.embedding_tokens.labels(model).inc(tokens)
        self.embedding_cost_usd.labels(model).inc(usd)

    def embedding_failed(self, model: str, kind: str) -> None:
        """Count a failed request for embeddings."""
        self.embedding_errors.labels(model, kind).inc()

    def embeddings_looked_up(self, model: str, hits: int, misses: int) -> None:
        """Count hits and misses of the embeddings cache."""
        self.embedding_lookups.labels(model, "hit").inc(hits)
        self.embedding_lookups.labels(model, "miss").inc(misses)

    def show_quality(self, estimates: Sequence[Quality], targets: Mapping[str, tuple[float | None, float]]) -> None:
        """Set the gauges of each app and metric; `targets` maps a metric to (objective or None, threshold).

        Series without a basis, and those no longer in `estimates`, are removed.
        Apps beyond the cap have no gauges: under one name they would overwrite each other.
        """
        signals: dict[tuple[str, ...], tuple[float | None, ...]] = {}
        scores: dict[tuple[str, ...], tuple[float | None, ...]] = {}
        for quality in estimates:
            if (app := self.cap("app", quality.app)) == OVERFLOW:
                continue
            labels = (app, quality.metric)
            interval = quality.mean, quality.ci_low, quality.ci_high
            window_s = quality.window_s if quality.mean is not None else None
            if quality.metric in SIGNALS:
                signals[labels] = (*interval, quality.n_eff, window_s)
            else:
                savings = quality.coverage_ratio, quality.correlation, quality.saving
                target = targets.get(quality.metric, (None, None))
                scores[labels] = (*interval, window_s, quality.n_eff, *savings, *target)
        self._signals.show(signals)
        self._quality.show(scores)

    def show_labels(self, rows: Sequence[Labelled]) -> None:
        """Set the gauges of human labels; remove series that no longer apply."""
        shown: dict[tuple[str, ...], tuple[float | None, ...]] = {}
        for labelled in rows:
            app = self.cap("app", labelled.app)
            if labelled.source == "rating" and labelled.labels and app != OVERFLOW:
                kappa = labelled.kappa.value if labelled.kappa else None
                corrected = labelled.corrected_mean, labelled.ci_low, labelled.ci_high
                shown[app, labelled.metric] = (*corrected, float(labelled.labels), kappa)
        self._labels.show(shown)

    def show_trials(self, trials: Sequence[StoredTrial]) -> None:
        """Set the gauges of the trials that watch a switch; remove those of trials that are gone."""
        self.trial_worse.clear()
        for stored in trials:
            app = self.cap("app", stored.trial.app)
            if stored.trial.watch and app != OVERFLOW:
                self.trial_worse.labels(app, stored.trial.name).set(float(stored.why == "worse"))

    def show_capture(self, rows: Sequence[Captured]) -> None:
        """Set the gauges of each app's capture coverage; remove series that no longer apply."""
        shown: dict[tuple[str, ...], tuple[float | None, ...]] = {}
        for capture in rows:
            if (app := self.cap("app", capture.app)) != OVERFLOW:
                interval = capture.ratio, capture.ci_low, capture.ci_high, float(capture.answers)
                audited = capture.audited_ratio, capture.audited_low, capture.audited_high
                shown[(app,)] = (*interval, *audited, float(capture.audited) or None)
        self._capture.show(shown)


_VERSIONS = 100


class AlertGauges(AlertObserver):
    """Gauges of the watched streams and versions, and counts of problems with alerts."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments
        self._baselines = GaugeGroup(instruments.quality_baseline)
        self._slices = GaugeGroup(instruments.quality_slice_alarm)
        self._versions = GaugeGroup(instruments.version_first_seen)

    def show_streams(self, streams: Sequence[StreamStatus]) -> None:
        """Set the gauges of every stream; a slice has one only while its alert fires."""
        firing: dict[tuple[str, ...], tuple[float]] = {}
        for stream in streams:
            app = self._instruments.cap("app", stream.app)
            if app == OVERFLOW:  # under one name they would overwrite each other
                continue
            labels = (app, stream.metric, stream.rule)
            self._instruments.rule_info.labels(stream.rule, stream.severity).set(1)
            if stream.slice:
                if stream.state == "firing":
                    firing[*labels, stream.slice] = (1.0,)
                continue
            self._instruments.quality_alarm.labels(*labels).set(stream.state == "firing")
            self._instruments.quality_evidence_log10.labels(*labels).set(stream.evidence_log10)
            self._baselines.set(labels, (stream.m0,))  # None while it is being learned or re-learned
        self._slices.show(firing)

    def show_versions(self, versions: Sequence[Version]) -> None:
        """Set when each of the latest versions was first seen."""
        cap = self._instruments.cap
        self._versions.show(
            {
                (cap("app", version.app), version.kind, version.value): (version.first_seen,)
                for version in versions[-_VERSIONS:]
            }
        )

    def notified(self, notifier: str, result: Result) -> None:
        """Count the result of one attempt to deliver a notification."""
        self._instruments.notifications.labels(notifier, result).inc()

    def description_failed(self) -> None:
        """Count an alert whose description could not be looked up."""
        self._instruments.worker_errors.labels("describe").inc()

    def app_over_limit(self, app: str) -> None:
        """Count an app that a rule has no room for, once."""
        self._instruments.cap.count("watched_app", app)

    def low_coverage(self, metric: str, scores: int) -> None:
        """Count scores that detectors ignore, because too many evaluations of the period failed."""
        self._instruments.uncovered_scores.labels(metric).inc(scores)
