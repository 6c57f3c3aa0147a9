"""Opens the exporters of the configuration: Prometheus, OpenTelemetry and those of `[[sinks]]`."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping

from gaugeway.extensions import load, registered
from gaugeway.runtime import otlp_exporters as telemetry
from gaugeway.settings import ConfigError, Problems
from gaugeway.settings import shared as configuration
from gaugeway.settings.options import construct
from gaugeway.settings.shared import Shared, Sink
from monitors import exporters
from monitors.exporters import Exporter
from monitors.exporters.instruments import Instruments
from monitors.exporters.prometheus import PrometheusExporter
from monitors.metrics import lower_is_better
from monitors.metrics.registry import Catalogue

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
    sink = construct(kind, f"sinks[{index}]", settings.options, given, near=_EVERY_KIND)
    return exporters.adapted(sink)


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
    both = settings.semconv == "both"
    return OTelExporter(spans, logs, passes=passes, content=settings.content, both=both)
