"""The source of what is exported over OpenTelemetry, and the OTLP exporters (extra `otlp`), imported when used."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeVar

from gaugeway.runtime.replies import MAX_RECEIPT_BYTES
from gaugeway.settings import ConfigError

if TYPE_CHECKING:
    import requests
    from opentelemetry.sdk._logs.export import LogRecordExporter
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

_T = TypeVar("_T")
_log = logging.getLogger("gaugeway")
SCOPE = "gaugeway"
SCHEMA_URL = "https://opentelemetry.io/schemas/gen-ai/0.1.0"
"""Of the conventions that names follow: v0.1.0 of open-telemetry/semantic-conventions-genai."""
_LANGFUSE = "/api/public/otel/"
"""The path of Langfuse's endpoint. Without the header, Langfuse 4 shows spans some ten minutes late."""
_NOT_TAKEN = frozenset({404, 405, 501})
_CREDENTIALS = ("OTEL_PYTHON_EXPORTER_OTLP_HTTP_", "CREDENTIAL_PROVIDER")
_MISSING = "telemetry.otlp_endpoint: needs the extra `otlp` (pip install 'gaugeway[otlp]')"


def unless_refused(build: Callable[[], _T], warn: Callable[[str], object] = _log.warning) -> _T | None:
    """Return what `build` makes of the SDK; None, with a warning, where the SDK refuses the environment.

    It reads many OTEL_* variables (sizes and delays of its buffers, limits of attributes), a platform may set them for
    every container, and traffic does not depend on them. What the SDK logs about them is passed to `warn`, once each.
    Raises ConfigError as `build` does.
    """
    try:
        with _sdk_messages(warn):
            return build()
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001 - any of the variables may hold anything
        warn(f"nothing is exported over OpenTelemetry: the SDK does not accept an OTEL_* variable: {error}")
        return None


class _Messages(logging.Handler):
    """Keeps the distinct messages of a logger, without their tracebacks."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: dict[str, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.found[record.getMessage()] = None


@contextmanager
def _sdk_messages(warn: Callable[[str], object]) -> Iterator[None]:
    """Pass what the SDK logs within the block to `warn`: its own lines have no prefix, and come once per exporter."""
    logger, kept = logging.getLogger("opentelemetry"), _Messages()
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(kept)
    try:
        yield
    finally:
        logger.removeHandler(kept)
        logger.propagate = propagates
        for message in kept.found:
            warn(message)


def scope_version() -> str:
    """Return the version of the instrumentation scope: the release."""
    return version("gaugeway")


def scope() -> InstrumentationScope:
    """Return the instrumentation scope of everything that is exported: its version is the release."""
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: PLC0415 - only with telemetry on

    return InstrumentationScope(SCOPE, scope_version(), SCHEMA_URL)


def resource(default_name: str) -> Resource:
    """Return what all telemetry of a process carries.

    The name is OTEL_SERVICE_NAME, else `service.name` in OTEL_RESOURCE_ATTRIBUTES, else the default; the other
    attributes of that variable are added.
    """
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415 - only with telemetry on

    found = OTELResourceDetector().detect().attributes.get("service.name")
    name = found if isinstance(found, str) else default_name
    return Resource.create({"service.name": name})


def span_exporter(endpoint: str, headers: Mapping[str, str] | None = None) -> SpanExporter:
    """Return an exporter of spans to `endpoint` + /v1/traces (OTLP over HTTP). Raises ConfigError without the extra."""
    exporter: SpanExporter = _exporter(
        "trace_exporter", "OTLPSpanExporter", f"{endpoint.rstrip('/')}/v1/traces", headers
    )
    return exporter


def log_exporter(endpoint: str, headers: Mapping[str, str] | None = None) -> LogRecordExporter:
    """Return an exporter of log records to `endpoint` + /v1/logs. Raises ConfigError without the extra."""
    exporter: LogRecordExporter = _exporter(
        "_log_exporter", "OTLPLogExporter", f"{endpoint.rstrip('/')}/v1/logs", headers
    )
    return exporter


def metric_reader(endpoint: str, headers: Mapping[str, str] | None = None) -> MetricReader:
    """Return what sends metrics to `endpoint` + /v1/metrics every minute (OTEL_METRIC_EXPORT_INTERVAL).

    Raises ConfigError without the extra.
    """
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415 - only with telemetry on

    url = f"{endpoint.rstrip('/')}/v1/metrics"
    return PeriodicExportingMetricReader(_exporter("metric_exporter", "OTLPMetricExporter", url, headers))


def _exporter(module: str, name: str, url: str, headers: Mapping[str, str] | None) -> Any:
    try:
        kind = getattr(import_module(f"opentelemetry.exporter.otlp.proto.http.{module}"), name)
    except ImportError as error:
        raise ConfigError([_MISSING]) from error
    _keep_headers_out_of_logs()
    if (session := _session(url.rpartition("/")[2])) is not None and _LANGFUSE in url:
        session.headers["x-langfuse-ingestion-version"] = "4"  # the exporter's own headers count before the session's
    return kind(endpoint=url, headers=_lower(headers), session=session)


async def shut_down(shutdown: Callable[[], object], timeout_s: float = 3.0) -> None:
    """Flush a buffer's rest; a collector that does not answer must not keep the process from ending."""
    thread = threading.Thread(target=shutdown, name="telemetry shutdown", daemon=True)
    thread.start()
    await asyncio.to_thread(thread.join, timeout_s)


def _keep_headers_out_of_logs() -> None:
    """The SDK quotes what it cannot read in OTEL_EXPORTER_OTLP_HEADERS, and that may be a key."""
    logging.getLogger("opentelemetry.util.re").addFilter(_without_header)  # the same filter is added once


def _without_header(record: logging.LogRecord) -> bool:
    record.msg, record.args = "OTEL_EXPORTER_OTLP_HEADERS: ignoring what is not of the form name=value,name=value", ()
    return True


def _session(signal: str) -> requests.Session | None:
    """Return a session that reads no answer beyond MAX_RECEIPT_BYTES; None where the environment names another."""
    names = list(os.environ)  # noqa: TID251 - the exporter reads these itself
    if any(name.startswith(_CREDENTIALS[0]) and name.endswith(_CREDENTIALS[1]) for name in names):
        return None
    import requests  # noqa: PLC0415 - comes with the extra

    class Session(requests.Session):
        """The exporter looks at the status alone. What is left unread costs the connection."""

        hint = signal != "traces"

        def request(self, *args: Any, **kwargs: Any) -> requests.Response:
            response = super().request(*args, **kwargs | {"stream": True})
            with response:
                response.raw.read(MAX_RECEIPT_BYTES, decode_content=False)
            if self.hint and response.status_code in _NOT_TAKEN:
                self.hint = False
                _log.warning("telemetry.otlp_endpoint takes no %s: `events = false` sends only spans", signal)
            return response

    return Session()


def _lower(headers: Mapping[str, str] | None) -> dict[str, str] | None:
    """Names in lower case, as the SDK compares them; None leaves those of the environment (OTEL_EXPORTER_OTLP_...)."""
    return {name.lower(): value for name, value in headers.items()} if headers else None
