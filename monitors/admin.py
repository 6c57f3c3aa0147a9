"""What every admin port has: `/metrics`, and a token where one is set."""

from __future__ import annotations

import hmac
from typing import Any

from litestar import Request, Response, get
from litestar.connection import ASGIConnection
from litestar.exceptions import NotAuthorizedException
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder


def token_guard(token: str | None) -> Any:
    """Return a guard that asks for `Authorization: Bearer <token>`; without a token everybody may pass."""

    def guard(connection: ASGIConnection[Any, Any, Any, Any], _: Any) -> None:
        scheme, _, given = connection.headers.get("authorization", "").partition(" ")
        if token is None:
            return
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.encode(), token.encode()):
            raise NotAuthorizedException("this address needs a token", headers={"www-authenticate": "Bearer"})

    return guard


def metrics_handler(registry: CollectorRegistry) -> Any:
    """Return the handler of `/metrics`; it renders in a thread, in the format the scraper asks for."""

    @get("/metrics", sync_to_thread=True)
    def metrics(request: Request[Any, Any, Any]) -> Response[bytes]:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"content-type": content_type})

    return metrics
