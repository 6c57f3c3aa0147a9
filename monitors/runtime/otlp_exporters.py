"""OTLP exporters, behind the extra `otlp`: imported only when an endpoint is configured."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from monitors.runtime.replies import MAX_RECEIPT_BYTES
from monitors.runtime.settings import ConfigError

if TYPE_CHECKING:
    import requests
    from opentelemetry.sdk._logs.export import LogRecordExporter
    from opentelemetry.sdk.trace.export import SpanExporter

_CREDENTIALS = ("OTEL_PYTHON_EXPORTER_OTLP_HTTP_", "CREDENTIAL_PROVIDER")
_MISSING = "telemetry.otlp_endpoint: needs the extra `otlp` (pip install 'gaugeway[otlp]')"


def span_exporter(endpoint: str, headers: Mapping[str, str] | None = None) -> SpanExporter:
    """Return an exporter of spans to `endpoint` + /v1/traces (OTLP over HTTP). Raises ConfigError without the extra."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError([_MISSING]) from error
    return OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", headers=_lower(headers), session=_session())


def log_exporter(endpoint: str, headers: Mapping[str, str] | None = None) -> LogRecordExporter:
    """Return an exporter of log records to `endpoint` + /v1/logs. Raises ConfigError without the extra."""
    try:
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError([_MISSING]) from error
    return OTLPLogExporter(endpoint=f"{endpoint.rstrip('/')}/v1/logs", headers=_lower(headers), session=_session())


async def shut_down(shutdown: Callable[[], object], timeout_s: float = 3.0) -> None:
    """Flush a buffer's rest; a collector that does not answer must not keep the process from ending."""
    thread = threading.Thread(target=shutdown, name="telemetry shutdown", daemon=True)
    thread.start()
    await asyncio.to_thread(thread.join, timeout_s)


def _session() -> requests.Session | None:
    """Return a session that reads no answer beyond MAX_RECEIPT_BYTES; None where the environment names another."""
    names = list(os.environ)  # noqa: TID251 - the exporter reads these itself
    if any(name.startswith(_CREDENTIALS[0]) and name.endswith(_CREDENTIALS[1]) for name in names):
        return None
    import requests  # noqa: PLC0415 - comes with the extra

    class Session(requests.Session):
        """The exporter looks at the status alone. What is left unread costs the connection."""

        def request(self, *args: Any, **kwargs: Any) -> requests.Response:
            response = super().request(*args, **kwargs | {"stream": True})
            with response:
                response.raw.read(MAX_RECEIPT_BYTES, decode_content=False)
            return response

    return Session()


def _lower(headers: Mapping[str, str] | None) -> dict[str, str] | None:
    """Names in lower case, as the SDK compares them; None leaves those of the environment (OTEL_EXPORTER_OTLP_...)."""
    return {name.lower(): value for name, value in headers.items()} if headers else None
