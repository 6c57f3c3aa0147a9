"""OTLP exporters, behind the extra `otlp`: imported only when an endpoint is configured."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from monitors.settings import ConfigError

if TYPE_CHECKING:
    from opentelemetry.sdk._logs.export import LogRecordExporter
    from opentelemetry.sdk.trace.export import SpanExporter

_MISSING = "telemetry.otlp_endpoint: needs the extra `otlp` (pip install 'gaugeway[otlp]')"


def span_exporter(endpoint: str, headers: Mapping[str, str] | None = None) -> SpanExporter:
    """Return an exporter of spans to `endpoint` + /v1/traces (OTLP over HTTP). Raises ConfigError without the extra."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError([_MISSING]) from error
    return OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", headers=_lower(headers))


def log_exporter(endpoint: str, headers: Mapping[str, str] | None = None) -> LogRecordExporter:
    """Return an exporter of log records to `endpoint` + /v1/logs. Raises ConfigError without the extra."""
    try:
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError([_MISSING]) from error
    return OTLPLogExporter(endpoint=f"{endpoint.rstrip('/')}/v1/logs", headers=_lower(headers))


async def shut_down(shutdown: Callable[[], object], timeout_s: float = 3.0) -> None:
    """Flush a buffer's rest; a collector that does not answer must not keep the process from ending."""
    thread = threading.Thread(target=shutdown, name="telemetry shutdown", daemon=True)
    thread.start()
    await asyncio.to_thread(thread.join, timeout_s)


def _lower(headers: Mapping[str, str] | None) -> dict[str, str] | None:
    """Names in lower case, as the SDK compares them; None leaves those of the environment (OTEL_EXPORTER_OTLP_...)."""
    return {name.lower(): value for name, value in headers.items()} if headers else None
