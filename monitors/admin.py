"""What every admin port has: `/metrics`, a token where one is set, and where none is, a look at the Host header.

Guesses at the token are limited by address; `behind` says whose word about addresses is taken.
"""

from __future__ import annotations

import hmac
import math
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from litestar import Request, Response, get
from litestar.connection import ASGIConnection
from litestar.exceptions import NotAuthorizedException, PermissionDeniedException, TooManyRequestsException
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from monitors import audit
from monitors.attempts import Attempts

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


def guess_guard(token: str | None, attempts: Attempts, clock: Callable[[], float] = time.monotonic) -> Any:
    """Return a guard that ends guessing at `Authorization: Bearer`; it stands before whatever asks for the token.

    After too many wrong tokens from one address none is looked at any more, the right one neither, or guessing would
    go on. The right one is let through where it is known to come from: then it was there before the guesses.
    """

    def guard(connection: ASGIConnection[Any, Any, Any, Any], _: Any) -> None:
        given = _bearer(connection)
        if token is None or given is None:
            return
        address = connection.client.host if connection.client else ""
        now = clock()
        wait_s = attempts.wait_s(address, now)
        if (not wait_s or attempts.is_known(address, now)) and _is(given, token):
            attempts.passed(address, now)
        elif wait_s:
            raise TooManyRequestsException("too many wrong tokens", headers={"retry-after": f"{math.ceil(wait_s)}"})
        else:
            attempts.failed(address, now)
            audit.tell("token", outcome="failed", address=address)

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


def metrics_handler(registry: CollectorRegistry) -> Any:
    """Return the handler of `/metrics`; it renders in a thread, in the format the scraper asks for."""

    @get("/metrics", sync_to_thread=True)
    def metrics(request: Request[Any, Any, Any]) -> Response[bytes]:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"content-type": content_type, **_NO_GUESSING})

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
