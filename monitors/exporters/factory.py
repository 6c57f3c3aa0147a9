"""Opens the exporters of the configuration: Prometheus, OpenTelemetry and those of `[[sinks]]`."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from gaugeway.extensions import load, registered
from gaugeway.records import Evaluation, Failed, Sample, Score, Skipped
from gaugeway.runtime import otlp_exporters as telemetry
from gaugeway.settings import ConfigError, Problems
from gaugeway.settings import shared as configuration
from gaugeway.settings.options import construct
from gaugeway.settings.shared import Shared, Sink
from monitors import exporters
from monitors.exporters import Exporter, meets
from monitors.exporters.instruments import Instruments
from monitors.metrics import lower_is_better
from monitors.metrics.registry import Catalogue
from monitors.signals.answers import declines, declines_to_judge


class PrometheusExporter(Exporter):
    """Counts scores, verdicts and outcomes. `passes` maps a metric to (threshold, lower is better)."""

    def __init__(self, instruments: Instruments, passes: Mapping[str, tuple[float, bool]]) -> None:
        self._instruments = instruments
        self._passes = passes
        # Finding the series of labels costs more than counting in it. The labels' cap bounds how many there are.
        self._score = cache(instruments.score.labels)
        self._verdicts = cache(instruments.verdicts.labels)
        self._evaluations = cache(instruments.evaluations.labels)
        self._compared = cache(instruments.abstention_comparisons.labels)
        self._disagreed = cache(instruments.abstention_disagreements.labels)

    def export(self, sample: Sample, evaluations: Sequence[Evaluation]) -> None:
        app, model = self._instruments.cap.pair(sample.app, sample.model)
        for evaluation in evaluations:
            metric = evaluation.metric
            self._instruments.checked(evaluation)
            match evaluation.outcome:
                case Score(value):
                    exemplar = {"trace_id": sample.trace_id} if sample.trace_id else None
                    self._score(app, metric, model).observe(value, exemplar)
                    self._verdicts(app, metric, self._verdict(metric, value)).inc()
                    self._evaluations(metric, "score", "").inc()
                case Skipped(reason):
                    self._verdicts(app, metric, "skipped").inc()
                    self._evaluations(metric, "skipped", self._reason(metric, reason)).inc()
                case Failed(error):
                    self._verdicts(app, metric, "error").inc()
                    self._evaluations(metric, "failed", self._reason(metric, error)).inc()

        self._compare(app, sample, evaluations)

    def _compare(self, app: str, sample: Sample, evaluations: Sequence[Evaluation]) -> None:
        """Count where judge and signal differ on whether the answer declines."""
        judged = declines_to_judge(evaluations)
        signal = declines(sample) if judged is not None else None
        if signal is None:
            return
        self._compared(app).inc()
        if judged != bool(signal):
            self._disagreed(app, "judge_only" if judged else "signal_only").inc()

    def _reason(self, metric: str, reason: str) -> str:
        """Bound the reasons of each metric: a custom one may give any text."""
        return self._instruments.cap(f"reason:{metric}", reason)

    def _verdict(self, metric: str, value: float) -> str:
        return "pass" if meets(value, *self._passes.get(metric, (0.5, False))) else "fail"


GIVEN = {"timeout_s": 10.0, "give_up_s": 600.0}
"""For one request, and how long a delivery is retried, of every kind: what waits is held in memory."""
_EVERY_KIND = tuple(key for key in Sink.__struct_fields__ if key != "options")
SPANS = "documents"
"""The parameter by which an exporter learns whether passages are exported as spans."""


def open_sinks(config: Shared, instruments: Instruments) -> list[Exporter]:
    """Build the exporters, named by kind and index so that their counts stay separate. Raises ConfigError.

    None connects before it has something to send. Phoenix gets annotations of passages only if these are exported
    as spans.
    """
    telemetry = config.telemetry
    documents = telemetry.otlp_endpoint is not None and telemetry.content
    problems = Problems()
    opened = [
        problems.attempt(functools.partial(_open, index, settings, instruments, documents=documents), f"sinks[{index}]")
        for index, settings in enumerate(config.sinks)
    ]
    problems.raise_any()
    return [exporter for exporter in opened if exporter is not None]


def _open(index: int, settings: Sink, instruments: Instruments, *, documents: bool) -> Exporter:
    try:
        kind = load(settings.kind, registered("exporters"), "kind")
    except ValueError as error:
        raise ConfigError([f"sinks[{index}].kind: {error}"]) from error
    given = {key: getattr(settings, key) for key in ("url", "metrics", "content")}
    given |= {**GIVEN, "observe": _observer(f"{settings.kind}-{index}", instruments), SPANS: documents}
    return exporters.adapted(construct(kind, f"sinks[{index}]", settings.options, given, near=_EVERY_KIND))


def _observer(name: str, instruments: Instruments) -> Callable[[str, int], None]:
    def observe(result: str, scores: int) -> None:
        instruments.sink_results.labels(name, result).inc(scores)

    return observe


_log = logging.getLogger("gaugeway")


def open_exporters(
    config: Shared, catalogue: Catalogue, instruments: Instruments, warn: Callable[[str], object] = _log.warning
) -> list[Exporter]:
    """Open every exporter; one that the OpenTelemetry SDK refuses is left out, with a warning."""
    passes = {
        enabled.metric.name: (enabled.threshold, lower_is_better(enabled.metric)) for enabled in catalogue.enabled
    }
    exporters: list[Exporter] = [PrometheusExporter(instruments, passes)]
    if (endpoint := config.telemetry.otlp_endpoint) is not None:
        made = telemetry.unless_refused(lambda: _otel_exporter(config.telemetry, endpoint, passes), warn)
        exporters += [] if made is None else [made]
    return [*exporters, *open_sinks(config, instruments)]


def _otel_exporter(
    settings: configuration.Telemetry, endpoint: str, passes: Mapping[str, tuple[float, bool]]
) -> Exporter:
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor  # noqa: PLC0415 - only with telemetry on
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    from monitors.exporters.otel import OTelExporter  # noqa: PLC0415

    headers = settings.otlp_headers
    spans = BatchSpanProcessor(telemetry.span_exporter(endpoint, headers))
    logs = BatchLogRecordProcessor(telemetry.log_exporter(endpoint, headers)) if settings.events else None
    return OTelExporter(spans, logs, passes=passes, content=settings.content, both=settings.semconv == "both")
