"""The Prometheus instruments of the evaluation plane."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gaugeway.runtime.label_cap import OVERFLOW, LabelCap
from gaugeway.signals import SIGNALS
from monitors.alerting.changes import Version
from monitors.alerting.delivery import Result
from monitors.alerting.engine import AlertObserver, StreamStatus
from monitors.analysis.capture_coverage import Captured
from monitors.analysis.human_labels import Labelled
from monitors.analysis.quality import Quality
from monitors.judges import Observer
from monitors.judges.anchors import AnchorComparison

SCORE_BUCKETS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
JUDGE_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80)
RETRIEVAL_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Instruments(Observer):
    """All series of the monitors' `/metrics`; attributes are named like the series."""

    def __init__(self, registry: CollectorRegistry, *, version: str) -> None:
        def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(f"gaugeway_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
            return Gauge(f"gaugeway_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"gaugeway_{name}", text, labels, buckets=buckets, registry=registry)

        self.registry = registry
        self.score = histogram("score", "Scores in [0, 1].", ("app", "metric", "model"), SCORE_BUCKETS)
        self.verdicts = counter("verdicts", "Scores against their threshold.", ("app", "metric", "verdict"))
        self.evaluations = counter("evaluations", "Evaluations by outcome.", ("metric", "outcome", "reason"))
        self._for_quality(counter, gauge)
        self._for_signals(counter, gauge)
        self._for_capture(counter, gauge)
        self._for_judging(counter, gauge, histogram)
        self.queue_depth = gauge("queue_depth", "Samples waiting or being evaluated.")
        self.queue_oldest_seconds = gauge("queue_oldest_seconds", "Age of the oldest of them.")
        self.queue_trimmed = gauge("queue_trimmed", "Samples trimmed from a full queue, in total.")
        self.queue_bytes = gauge("queue_bytes", "Approximate size of the waiting samples in the engine.")
        self.queue_expired = counter("queue_expired", "Samples that waited too long to be judged.")
        self.queue_dead_letters = gauge("queue_dead_letters", "Samples set aside after too many attempts.")
        self.late_scores = counter("late_scores", "Scores that arrived after their bucket was closed.")
        self.conversation_links = counter(
            "conversation_links", "Exchanges by how they were joined to a conversation, or why not.", ("result",)
        )
        self.supplements = counter(
            "supplements", "Contexts, feedback and spans sent separately, by result.", ("source", "result")
        )
        self.retrieval_duration = histogram(
            "retrieval_duration_seconds",
            "Time of the retrieval before an answer, from spans.",
            ("app",),
            RETRIEVAL_BUCKETS,
        )
        self.retrieval_spans = counter(
            "retrieval_spans", "Retriever spans received, by the convention they follow.", ("convention",)
        )
        self.agent_spans = counter("agent_spans", "Spans of tools and agents received, by operation.", ("operation",))
        self.worker_errors = counter("worker_errors", "Failed operations, by operation.", ("operation",))
        self.cause_evaluations = counter(
            "cause_evaluations", "Evaluations made only to find the cause of an alert.", ("metric",)
        )
        self.prompt_marks = counter("prompt_marks", "Requests sent to the judge for marking, by outcome.", ("outcome",))
        self.capture_audits = counter(
            "capture_audits", "Exchanges of which the judge audited the capture.", ("result",)
        )
        self.notifications = counter("notifications", "Notification attempts.", ("notifier", "result"))
        self.sink_results = counter("sink_results", "Scores sent to other systems, by result.", ("sink", "result"))
        self.cap = LabelCap(counter("label_overflow", "Label values shown as _other, by label.", ("label",)))
        self._shown: set[tuple[str, str]] = set()
        gauge("build_info", "Always 1; the version is the label.", ("version",)).labels(version).set(1)

    def _for_quality(self, counter: Callable[..., Counter], gauge: Callable[..., Gauge]) -> None:
        stream, watched = ("app", "metric"), ("app", "metric", "rule")
        self.quality_mean = gauge("quality_mean", "Estimated mean score over the window.", stream)
        self.quality_ci_low = gauge("quality_ci_low", "Lower bound of the 95 % confidence sequence.", stream)
        self.quality_ci_high = gauge("quality_ci_high", "Upper bound of the 95 % confidence sequence.", stream)
        self.quality_window = gauge("quality_window_seconds", "Length of the window of the mean.", stream)
        self.quality_n_eff = gauge("quality_n_eff", "Effective number of scores behind the mean.", stream)
        self.quality_coverage_ratio = gauge(
            "quality_coverage_ratio", "Share of the applicable samples that have a score.", stream
        )
        self.quality_cheap_correlation = gauge(
            "quality_cheap_correlation", "Correlation of the score with the covariate on all traffic.", stream
        )
        self.quality_judge_saving_ratio = gauge(
            "quality_judge_saving_ratio", "Factor by which the covariate reduces judge calls.", stream
        )
        self._for_labels(gauge)
        self.quality_alarm = gauge("quality_alarm", "1 while an alert is firing.", watched)
        self.quality_evidence_log10 = gauge(
            "quality_evidence_log10", "Evidence of a drop, log10 over the alarm threshold (0 = alarm).", watched
        )
        self.quality_baseline = gauge(
            "quality_baseline", "Mean below which a drop is reported, on the metric's scale.", watched
        )
        self.rule_info = gauge("rule_info", "Always 1; the severity of a rule's alerts.", ("rule", "severity"))
        self.quality_slice_alarm = gauge("quality_slice_alarm", "1 while a slice's alert fires.", (*watched, "slice"))
        self.version_first_seen = gauge(
            "version_first_seen_timestamp_seconds", "When a version was first seen.", ("app", "kind", "version")
        )
        self.uncovered_scores = counter("uncovered_scores", "Scores ignored by alerts: coverage too low.", ("metric",))
        self.slo_objective_ratio = gauge("slo_objective_ratio", "Share of scores that should pass.", stream)
        self.score_threshold_ratio = gauge("score_threshold_ratio", "Lowest score that passes.", stream)

    def _for_signals(self, counter: Callable[..., Counter], gauge: Callable[..., Gauge]) -> None:
        self.abstention_comparisons = counter(
            "abstention_comparisons", "Answers of which judge and signal say whether they decline.", ("app",)
        )
        self.abstention_disagreements = counter(
            "abstention_disagreements", "Of these, answers that only one of them finds to decline.", ("app", "kind")
        )
        names = {
            "signal_mean": "Estimated mean of a signal over the window.",
            "signal_ci_low": "Lower bound of the 95 % confidence sequence of gaugeway_signal_mean.",
            "signal_ci_high": "Upper bound of the 95 % confidence sequence of gaugeway_signal_mean.",
            "signal_n_eff": "Effective number of exchanges behind gaugeway_signal_mean.",
            "signal_window_seconds": "Length of the window of gaugeway_signal_mean.",
        }
        self._signal_gauges = [gauge(name, text, ("app", "signal")) for name, text in names.items()]

    def _for_capture(self, counter: Callable[..., Counter], gauge: Callable[..., Gauge]) -> None:
        self.answers = counter("answers", "Evaluated answers, by what was found: question, passages.", ("app", "found"))
        names = {
            "capture_ratio": "Share of the answers with question and passages found.",
            "capture_ci_low": "Lower bound of the 95 % interval of gaugeway_capture_ratio.",
            "capture_ci_high": "Upper bound of the 95 % interval of gaugeway_capture_ratio.",
            "capture_n": "Number of answers behind gaugeway_capture_ratio.",
            "capture_audited_ratio": "Share of the audited exchanges in which the judge agrees with the capture.",
            "capture_audited_low": "Lower bound of the 95 % interval of gaugeway_capture_audited_ratio.",
            "capture_audited_high": "Upper bound of the 95 % interval of gaugeway_capture_audited_ratio.",
            "capture_audited_n": "Number of exchanges behind gaugeway_capture_audited_ratio.",
        }
        self._capture_gauges = [gauge(name, text, ("app",)) for name, text in names.items()]
        self._captured: set[str] = set()

    def _for_labels(self, gauge: Callable[..., Gauge]) -> None:
        stream = ("app", "metric")
        names = {
            "quality_corrected_mean": "Judge mean corrected by human labels.",
            "quality_corrected_ci_low": "Lower bound of the 95 % interval of gaugeway_quality_corrected_mean.",
            "quality_corrected_ci_high": "Upper bound of the 95 % interval of gaugeway_quality_corrected_mean.",
            "labels": "Answers with human labels.",
            "judge_agreement_kappa": "Cohen's kappa of judge and human labels on passing.",
        }
        self._label_gauges = [gauge(name, text, stream) for name, text in names.items()]
        self._labelled: set[tuple[str, str]] = set()

    def _for_judging(
        self, counter: Callable[..., Counter], gauge: Callable[..., Gauge], histogram: Callable[..., Histogram]
    ) -> None:
        self.judge_requests = counter("judge_requests", "Judge calls with a response.", ("judge_model",))
        self.judge_tokens = counter("judge_tokens", "Tokens the judge used.", ("judge_model", "type"))
        self.judge_cost_usd = counter(
            "judge_cost_usd", "What the judge cost at the configured prices.", ("judge_model",)
        )
        self.judge_errors = counter("judge_errors", "Judge calls without a usable response.", ("judge_model", "error"))
        self.judge_duration = histogram(
            "judge_duration_seconds", "Latency of judge calls.", ("judge_model",), JUDGE_BUCKETS
        )
        self._judge_unusable = counter(
            "judge_unusable", "Answers that could not be used, by reason.", ("judge_model", "reason")
        )
        self.judge_blind = gauge(
            "judge_blind", "1 while the circuit of the failing judge is open.", ("judge_model", "role")
        )
        self._judge_lookups = counter("judge_cache_lookups", "Cache lookups of judge calls.", ("judge_model", "result"))
        self._judge_saved = counter("judge_cache_saved_usd", "What cached answers would have cost.", ("judge_model",))
        self._judge_tier = counter("judge_tier", "Judge calls by tier and outcome.", ("tier", "outcome"))
        self._judge_agreement = histogram(
            "judge_agreement", "Agreement of a tier with the last one.", ("tier", "sure"), SCORE_BUCKETS
        )
        drift = ("metric",)
        self.judge_drift_ratio = gauge("judge_drift_ratio", "Share of anchors with an unexpected score.", drift)
        self.judge_drift_low = gauge(
            "judge_drift_low", "Lower bound of the 95 % interval of gaugeway_judge_drift_ratio.", drift
        )
        self.judge_drift_shift = gauge("judge_drift_shift", "Mean of score minus expectation.", drift)
        self._for_successor(counter, gauge)
        self._evaluation_tokens = counter("evaluation_tokens", "Tokens of judging.", ("app", "metric", "type"))
        self._evaluation_cost = counter("evaluation_cost_usd", "What judging cost.", ("app", "metric"))
        self.judge_budget_factor = gauge("judge_budget_factor", "Budget multiplier of the rates of judged metrics.")
        self.judge_budget_factor.set(1.0)
        self.judge_pace_factor = gauge("judge_pace_factor", "Multiplier of judged rates for a slow judge.")
        self.judge_pace_factor.set(1.0)
        self.judge_budget_spent = gauge("judge_budget_spent_usd", "Spent today, by this process.")
        self._embedding_requests = counter("embedding_requests", "Embedding requests with a response.", ("model",))
        self._embedding_tokens = counter("embedding_tokens", "Tokens of the texts embedded.", ("model",))
        self._embedding_cost = counter(
            "embedding_cost_usd", "What embeddings cost at the configured price.", ("model",)
        )
        self._embedding_errors = counter(
            "embedding_errors", "Embedding requests without a usable response.", ("model", "error")
        )
        self._embedding_lookups = counter("embedding_lookups", "Texts looked up.", ("model", "result"))

    def _for_successor(self, counter: Callable[..., Counter], gauge: Callable[..., Gauge]) -> None:
        self.judge_shutdown = gauge(
            "judge_shutdown_timestamp_seconds", "When the judge's endpoint shuts the model down.", ("judge_model",)
        )
        self.judge_model_checks = counter(
            "judge_model_checks", "Readings of the endpoint's list of models.", ("judge_model", "result")
        )
        names = {
            "judge_next_agreement_ratio": "Share of anchors on which judge.next_model agrees with judge.model.",
            "judge_next_agreement_low": "Lower bound of the 95 % interval of that share.",
            "judge_next_agreement_high": "Upper bound of the 95 % interval of that share.",
            "judge_next_anchors": "Anchors scored by both.",
            "judge_next_shift": "Mean score of judge.next_model minus that of judge.model on the anchors.",
        }
        self._next_gauges = [gauge(name, text, ("judge_model", "metric")) for name, text in names.items()]

    def agreed_with_next(self, model: str, metric: str, compared: AnchorComparison) -> None:
        """Show how a judge that may replace the present one scores the anchors; nothing without a common score."""
        numbers: tuple[float | None, ...] = (None,) * len(self._next_gauges)
        if compared.n:
            agreement = [1.0 - share for share in (compared.disagreement, compared.high, compared.low)]
            numbers = (*agreement, float(compared.n), compared.shift)
        _set(self._next_gauges, (model, metric), numbers)

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
        self._judge_unusable.labels(model, reason).inc()

    def looked_up(self, model: str, result: str, usd: float) -> None:
        """Count a lookup in the judge cache, and the USD that a hit saved."""
        self._judge_lookups.labels(model, result).inc()
        self._judge_saved.labels(model).inc(usd)

    def tier(self, tier: str, outcome: str) -> None:
        """Count the outcome of a call at a tier of the cascade."""
        self._judge_tier.labels(tier, outcome).inc()

    def agreed(self, tier: str, sure: bool, agreement: float) -> None:  # noqa: FBT001 - the port's shape
        """Record a tier's agreement with the last tier, in [0, 1]."""
        self._judge_agreement.labels(tier, str(sure).lower()).observe(agreement)

    def drifted(self, drift: AnchorComparison) -> None:
        """Set the gauges of the judge's drift on the anchors of a metric; remove them when no anchor has a score."""
        gauges = self.judge_drift_ratio, self.judge_drift_low, self.judge_drift_shift
        numbers = (drift.disagreement, drift.low, drift.shift) if drift.n else (None,) * len(gauges)
        _set(gauges, (drift.metric,), numbers)

    def charged(self, app: str, metric: str, input_tokens: int, output_tokens: int, usd: float) -> None:
        """Count the cost of one answer for its app and metric; `_other` when there are none."""
        app = self.cap("app", app) if app else OVERFLOW
        metric = metric or OVERFLOW
        self._evaluation_tokens.labels(app, metric, "input").inc(input_tokens)
        self._evaluation_tokens.labels(app, metric, "output").inc(output_tokens)
        self._evaluation_cost.labels(app, metric).inc(usd)

    def embedded(self, model: str, texts: int, seconds: float, tokens: int, usd: float) -> None:  # noqa: ARG002 - port
        """Count an answered request for embeddings."""
        self._embedding_requests.labels(model).inc()
        self._embedding_tokens.labels(model).inc(tokens)
        self._embedding_cost.labels(model).inc(usd)

    def embedding_failed(self, model: str, kind: str) -> None:
        """Count a failed request for embeddings."""
        self._embedding_errors.labels(model, kind).inc()

    def embeddings_looked_up(self, model: str, hits: int, misses: int) -> None:
        """Count hits and misses of the embeddings cache."""
        self._embedding_lookups.labels(model, "hit").inc(hits)
        self._embedding_lookups.labels(model, "miss").inc(misses)

    def show_quality(self, estimates: Sequence[Quality], targets: Mapping[str, tuple[float | None, float]]) -> None:
        """Set the gauges of each app and metric; `targets` maps a metric to (objective or None, threshold).

        Series without a basis, and those no longer in `estimates`, are removed.
        Apps beyond the cap have no gauges: under one name they would overwrite each other.
        """
        shown: set[tuple[str, str]] = set()
        for quality in estimates:
            app = self.cap("app", quality.app)
            if app != OVERFLOW:
                shown.add((app, quality.metric))
                window_s = quality.window_s if quality.mean is not None else None
                if quality.metric in SIGNALS:
                    values = quality.mean, quality.ci_low, quality.ci_high, quality.n_eff, window_s
                    _set(self._signal_gauges, (app, quality.metric), values)
                    continue
                numbers = (
                    quality.n_eff,
                    quality.coverage_ratio,
                    quality.mean,
                    quality.ci_low,
                    quality.ci_high,
                    quality.correlation,
                    quality.saving,
                )
                self._set((app, quality.metric), (*numbers, window_s, *targets.get(quality.metric, (None, None))))
        for gone in self._shown - shown:
            if gone[1] in SIGNALS:
                _set(self._signal_gauges, gone, (None,) * len(self._signal_gauges))
            else:
                self._set(gone, (None,) * 10)
        self._shown = shown

    def show_labels(self, rows: Sequence[Labelled]) -> None:
        """Set the gauges of human labels; remove series that no longer apply."""
        shown: set[tuple[str, str]] = set()
        for labelled in rows:
            app = self.cap("app", labelled.app)
            if labelled.source == "rating" and labelled.labels and app != OVERFLOW:
                shown.add((app, labelled.metric))
                kappa = labelled.kappa.value if labelled.kappa else None
                numbers = labelled.corrected_mean, labelled.ci_low, labelled.ci_high, float(labelled.labels), kappa
                _set(self._label_gauges, (app, labelled.metric), numbers)
        for gone in self._labelled - shown:
            _set(self._label_gauges, gone, (None,) * len(self._label_gauges))
        self._labelled = shown

    def show_capture(self, rows: Sequence[Captured]) -> None:
        """Set the gauges of each app's capture coverage; remove series that no longer apply."""
        shown: set[str] = set()
        for capture in rows:
            app = self.cap("app", capture.app)
            if app != OVERFLOW:
                shown.add(app)
                audited = (
                    capture.audited_ratio,
                    capture.audited_low,
                    capture.audited_high,
                    float(capture.audited) or None,
                )
                numbers = capture.ratio, capture.ci_low, capture.ci_high, float(capture.answers), *audited
                _set(self._capture_gauges, (app,), numbers)
        for gone in self._captured - shown:
            _set(self._capture_gauges, (gone,), (None,) * len(self._capture_gauges))
        self._captured = shown

    def _set(self, labels: tuple[str, str], values: tuple[float | None, ...]) -> None:
        gauges = (
            *(self.quality_n_eff, self.quality_coverage_ratio, self.quality_mean, self.quality_ci_low),
            *(self.quality_ci_high, self.quality_cheap_correlation, self.quality_judge_saving_ratio),
            *(self.quality_window, self.slo_objective_ratio, self.score_threshold_ratio),
        )
        _set(gauges, labels, values)


def _set(gauges: Sequence[Gauge], labels: tuple[str, ...], values: Sequence[float | None]) -> None:
    """Set each gauge, or remove its series when there is no value."""
    for gauge, value in zip(gauges, values, strict=True):
        if value is not None:
            gauge.labels(*labels).set(value)
        else:
            with contextlib.suppress(KeyError):
                gauge.remove(*labels)


_VERSIONS = 100


class AlertGauges(AlertObserver):
    """Gauges of the watched streams and versions, and counts of problems with alerts."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments
        self._slices: set[tuple[str, ...]] = set()
        self._versions: set[tuple[str, ...]] = set()

    def show_streams(self, streams: Sequence[StreamStatus]) -> None:
        """Set the gauges of every stream; a slice has one only while its alert fires."""
        firing: set[tuple[str, ...]] = set()
        for stream in streams:
            app = self._instruments.cap("app", stream.app)
            if app == OVERFLOW:  # under one name they would overwrite each other
                continue
            labels = (app, stream.metric, stream.rule)
            self._instruments.rule_info.labels(stream.rule, stream.severity).set(1)
            if stream.slice:
                if stream.state == "firing":
                    firing.add((*labels, stream.slice))
                continue
            self._instruments.quality_alarm.labels(*labels).set(stream.state == "firing")
            self._instruments.quality_evidence_log10.labels(*labels).set(stream.evidence_log10)
            if stream.m0 is not None:
                self._instruments.quality_baseline.labels(*labels).set(stream.m0)
            else:  # it is being learned or re-learned
                with contextlib.suppress(KeyError):
                    self._instruments.quality_baseline.remove(*labels)
        for new in firing:
            self._instruments.quality_slice_alarm.labels(*new).set(1)
        for gone in self._slices - firing:
            with contextlib.suppress(KeyError):
                self._instruments.quality_slice_alarm.remove(*gone)
        self._slices = firing

    def show_versions(self, versions: Sequence[Version]) -> None:
        """Set when each of the latest versions was first seen."""
        shown: set[tuple[str, ...]] = set()
        for version in versions[-_VERSIONS:]:
            labels = self._instruments.cap("app", version.app), version.kind, version.value
            self._instruments.version_first_seen.labels(*labels).set(version.first_seen)
            shown.add(labels)
        for gone in self._versions - shown:
            with contextlib.suppress(KeyError):
                self._instruments.version_first_seen.remove(*gone)
        self._versions = shown

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
