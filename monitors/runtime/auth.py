"""What every admin port has: `/metrics`, a token where one is set, and where none is, a look at the Host header.

Guesses at the token are limited by address; `behind` says whose word about addresses is taken.
"""

from __future__ import annotations

import asyncio
import hmac
import math
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from litestar import Request, Response, get
from litestar.connection import ASGIConnection
from litestar.exceptions import (
    NotAuthorizedException,
    PermissionDeniedException,
    ServiceUnavailableException,
    TooManyRequestsException,
)
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from monitors.runtime import audit
from monitors.runtime.attempts import TooManyGuessesError
from monitors.runtime.token_check import TokenCheck

_NO_GUESSING = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(?::\d*)?")


def allowed_hosts(host: str, token: str | None) -> Any:
    """Return a guard that, without a token, answers only requests whose Host is a loopback name or the bound `host`.

    A web page cannot read another origin, but its author's name server can turn the page's own name into 127.0.0.1
    (DNS rebinding): the browser then asks us, under that name. Litestar's own check compares the port too, which we
    need not know.
    """
    names = {"localhost", "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host.lower()}

    def guard(connection: ASGIConnection[Any, Any, Any, Any], _: Any) -> None:
        asked = _HOST.fullmatch(connection.headers.get("host", ""))
        if token is None and (asked is None or asked[1].lower() not in names):
            raise PermissionDeniedException("without a token this address answers only under the name localhost")

    return guard


def guess_guard(token: str | None, check: TokenCheck | None = None) -> Any:
    """Return a guard that limits guessing at `Authorization: Bearer`; it runs before the guard that needs the token."""
    check = check or TokenCheck(token)

    async def guard(connection: ASGIConnection[Any, Any, Any, Any], _: Any) -> None:
        given = _bearer(connection)
        if token is None or given is None:
            return
        address = connection.client.host if connection.client else ""
        try:
            if not await check.passes(given, address):
                audit.tell("token", outcome="failed", address=address)
        except TooManyGuessesError as error:
            headers = {"retry-after": f"{math.ceil(error.retry_after_s)}"}
            raise TooManyRequestsException("too many wrong tokens", headers=headers) from None

    return guard


def token_guard(token: str | None, entered: Callable[[ASGIConnection[Any, Any, Any, Any]], bool] | None = None) -> Any:
    """Return a guard that asks for `Authorization: Bearer <token>`; without a token everybody may pass.

    Who is `entered` on the pages may read, as a browser cannot send the token; to change anything takes the token.
    """

    def guard(connection: ASGIConnection[Any, Any, Any, Any], _: Any) -> None:
        if token is None:
            return
        if entered is not None and connection.scope.get("method") in ("GET", "HEAD") and entered(connection):
            return
        given = _bearer(connection)
        if given is None or not _is(given, token):
            raise NotAuthorizedException("this address needs a token", headers={"www-authenticate": "Bearer"})

    return guard


def metrics_handler(source: CollectorRegistry | Callable[[], Awaitable[Any]]) -> Any:
    """Return the handler of `/metrics`; it renders in a thread, in the format the scraper asks for.

    `source` is the registry, or returns one. Where it raises OSError or TimeoutError the answer is 503: to Prometheus
    a gap is harmless, while part of a sum would look like a counter's restart.
    """

    @get("/metrics")
    async def metrics(request: Request[Any, Any, Any]) -> Response[bytes]:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        try:
            shown = source if isinstance(source, CollectorRegistry) else await source()
        except (OSError, TimeoutError) as error:
            raise ServiceUnavailableException("the metrics of all workers are not available") from error
        body = await asyncio.to_thread(encode, shown)
        return Response(body, headers={"content-type": content_type, **_NO_GUESSING})

    return metrics


def behind(proxies: Sequence[str], app: Any) -> Any:
    """Return the app as it is served behind these proxies (addresses or networks): what they say of a visitor's address
    and scheme is believed, what anybody else says is not.
    """
    return ProxyHeadersMiddleware(app, trusted_hosts=list(proxies)) if proxies else app


def _bearer(connection: ASGIConnection[Any, Any, Any, Any]) -> str | None:
    scheme, _, given = connection.headers.get("authorization", "").partition(" ")
    return given if scheme.lower() == "bearer" else None


def _is(given: str, token: str) -> bool:
    """Whether it is the token; takes as long whatever is given."""
    return hmac.compare_digest(given.encode(), token.encode())
