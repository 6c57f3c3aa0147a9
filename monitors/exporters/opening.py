"""Opens the exporters of the configuration: Prometheus, OpenTelemetry and the sinks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from gaugeway.runtime import otlp_exporters as telemetry
from gaugeway.settings import shared as configuration
from gaugeway.settings.shared import Shared
from monitors.exporters import Exporter
from monitors.exporters.factory import open_sinks
from monitors.exporters.instruments import Instruments
from monitors.exporters.prometheus import PrometheusExporter
from monitors.metrics import lower_is_better
from monitors.metrics.registry import Catalogue

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
    return OTelExporter(spans, logs, passes=passes, content=settings.content)
