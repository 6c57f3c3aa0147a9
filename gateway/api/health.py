"""The gateway's own routes: health on the traffic port, metrics and OpenAPI on the admin port."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import msgspec
from litestar import Request, Response, get
from litestar.exceptions import HTTPException

from gateway.api.feedback import Contexts, Feedback, Supplements
from gateway.http.errors import Rejection, body_of
from gaugeway.data_files import table
from gaugeway.runtime.auth import WebApp, allowed_hosts, guess_guard, metrics_handler, token_guard, warn_if_short

_NOT_FOUND, _SERVERS = 404, 500
_CODES = {404: "unknown_url", 405: "method_not_allowed", 413: "request_too_large"}


class Readiness:
    """Readiness of this process. It does not depend on store, queue or judge."""

    def __init__(self) -> None:
        self.draining = False

    def drain(self) -> None:
        """Report not ready from now on."""
        self.draining = True


def traffic_app(
    readiness: Readiness, supplements: Supplements | None = None, on_invalid: Callable[[str], None] = lambda _: None
) -> WebApp:
    """Return the app for the traffic port's own routes; `supplements` adds contexts and feedback.

    `on_invalid` is called with `unknown_path` for each request to an unknown path.
    """

    @get("/healthz", sync_to_thread=False)
    def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @get("/readyz", sync_to_thread=False)
    def readyz() -> Response[dict[str, str]]:
        if readiness.draining:
            return Response({"status": "draining"}, status_code=503)
        return Response({"status": "ready"})

    def refuse(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
        if error.status_code == _NOT_FOUND:
            on_invalid("unknown_path")
        return _openai_error(request, error)

    return WebApp(
        [healthz, readyz, *(supplements.handlers() if supplements is not None else ())],
        openapi_config=None,
        logging_config=None,
        exception_handlers={HTTPException: refuse},
    )


def admin_app(registry: Any, host: str, token: str | None) -> WebApp:
    """Return the app of the gateway's admin port."""

    @get("/api/openapi.json", sync_to_thread=True)
    def openapi() -> dict[str, Any]:
        return document()

    warn_if_short("gateway.admin_token", token)
    return WebApp(
        [metrics_handler(registry), openapi],
        guards=[allowed_hosts(host, token), guess_guard(token), token_guard(token)],
        openapi_config=None,
        logging_config=None,
    )


def _openai_error(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    hint = " The API is under /v1." if error.status_code == _NOT_FOUND else ""
    rejection = Rejection(
        error.status_code,
        _CODES.get(error.status_code, "invalid_request" if error.status_code < _SERVERS else "internal_error"),
        f"{request.method} {request.url.path}: {error.detail}.{hint}",
    )
    return Response(
        body_of(rejection), status_code=error.status_code, headers=error.headers, media_type="application/json"
    )


def document() -> dict[str, Any]:
    """Return the document of contexts, feedback and the two health routes."""
    shown: dict[str, Any] = table("gateway.api", "openapi.json")
    shown["info"]["version"] = version("gaugeway")
    _, bodies = msgspec.json.schema_components((Contexts, Feedback), ref_template="#/components/schemas/{name}")
    schemas = shown["components"]["schemas"]
    for name, body in bodies.items():
        properties = body["properties"] | schemas[name]["properties"]
        schemas[name] = body | schemas[name] | {"properties": properties}
    return shown
