"""OpenTelemetry's environment variables, for what the configuration leaves open.

https://opentelemetry.io/docs/specs/otel/protocol/exporter/ and .../configuration/sdk-environment-variables/.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import NamedTuple

from gaugeway.settings import environment
from gaugeway.settings.endpoints import address_problem

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"
_DISABLED = "OTEL_SDK_DISABLED"
_EXPORTER = "opentelemetry.exporter"
_EXAMPLE = "http://127.0.0.1:4318"


class Endpoint(NamedTuple):
    """The endpoint to export to; None without one, and `warning` says why one that is named is not used.

    A platform may set the variables for every container, so what cannot be used is no error: the gateway starts.
    """

    url: str | None = None
    warning: str | None = None


def otlp_endpoint(variables: Mapping[str, str] | None = None) -> Endpoint:
    """Return the endpoint that the environment names (by default this process's).

    >>> otlp_endpoint({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"})
    Endpoint(url=None, warning=None)
    >>> otlp_endpoint({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}).warning
    'OTEL_EXPORTER_OTLP_ENDPOINT is not used: OTEL_EXPORTER_OTLP_PROTOCOL is not http/protobuf'
    """
    known = environment() if variables is None else variables
    url = known.get(ENDPOINT, "").strip()
    if not url or known.get(_DISABLED, "").strip().lower() == "true":
        return Endpoint()
    if known.get(_PROTOCOL, "").strip() not in ("", "http/protobuf"):
        return _unused(f"{_PROTOCOL} is not http/protobuf")
    if (problem := address_problem(url, _EXAMPLE)) is not None:
        return _unused(problem)
    if not _has_exporter():
        return _unused("it needs the extra `otlp` (pip install 'gaugeway[otlp]')")
    return Endpoint(url)


def _unused(reason: str) -> Endpoint:
    return Endpoint(warning=f"{ENDPOINT} is not used: {reason}")


def _has_exporter() -> bool:
    try:
        return importlib.util.find_spec(f"{_EXPORTER}.otlp.proto.http") is not None
    except ImportError:  # a parent package is missing
        return False
