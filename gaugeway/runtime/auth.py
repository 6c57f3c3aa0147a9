"""The web application of our own routes, and access to the admin ports: the token, limits on guessing it, the Host
check without a token, and `/metrics`.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import math
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv6Address, ip_address
from typing import Any

from cachetools import LRUCache
from litestar import Litestar, Request, Response, get
from litestar.connection import ASGIConnection
from litestar.exceptions import (
    NotAuthorizedException,
    PermissionDeniedException,
    ServiceUnavailableException,
    TooManyRequestsException,
)
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from gaugeway.runtime import audit
from gaugeway.settings.endpoints import ATTEMPTS, ATTEMPTS_S, CHECK_S, MAX_CHECK_WAIT_S, is_long, short_warning

MAX_ADDRESSES = 10_000
MAX_HELD = 64
"""Requests of one process that wait for the check of a short token."""
_log = logging.getLogger("gaugeway")
_NO_GUESSING = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(?::\d*)?")


class WebApp(Litestar):
    """Litestar without its plug-ins for pydantic and attrs, which our routes do not use: 8 MB and 0.1 s less."""

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]


class TooManyGuessesError(Exception):
    """The network has sent too many wrong tokens; the next check is in `retry_after_s` seconds."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__("too many wrong tokens")
        self.retry_after_s = retry_after_s


class HostNotAllowedError(PermissionDeniedException):
    """Without a token the port is not served under this Host."""


class Attempts:
    """Counts wrong tokens by network: an IPv4 address, or an IPv6 /64, whose owner has all its addresses.

    `paced` is for a short token: after five wrong tokens a network gets one check every 2 s.
    """

    def __init__(self, *, paced: bool) -> None:
        self._paced = paced
        self._failed: LRUCache[str, list[float]] = LRUCache(MAX_ADDRESSES)
        self._next: LRUCache[str, float] = LRUCache(MAX_ADDRESSES)

    def reserve(self, address: str, now: float) -> float:
        """Reserve the network's next check; return how long to wait for it. Raises TooManyGuessesError."""
        key = network(address)
        if not self._paced or len(self._recent(key, now)) < ATTEMPTS:
            return 0.0
        if (at := max(now, self._next.get(key, now))) - now > MAX_CHECK_WAIT_S:
            raise TooManyGuessesError(at - now)
        self._next[key] = at + CHECK_S
        return at - now

    def failed(self, address: str, now: float) -> None:
        """Count a wrong token. Raises TooManyGuessesError when there were too many before it."""
        key = network(address)
        if len(recent := self._recent(key, now)) >= ATTEMPTS:
            raise TooManyGuessesError(CHECK_S if self._paced else recent[0] + ATTEMPTS_S - now)
        self._failed[key] = [*recent, now]

    def _recent(self, key: str, now: float) -> list[float]:
        return [at for at in self._failed.get(key, ()) if now - at < ATTEMPTS_S]


def network(address: str) -> str:
    """The address, or the /64 network of an IPv6 one.

    >>> network("192.0.2.1"), network("2001:db8::1:2"), network("")
    ('192.0.2.1', '2001:db8::', '')
    """
    try:
        known = ip_address(address)
    except ValueError:
        return address
    if isinstance(known, IPv6Address) and known.ipv4_mapped is None:
        return str(IPv6Address(int(known) >> 64 << 64))
    return str(known)


class TokenCheck:
    """Compares tokens with the right one in constant time.

    Clients behind one NAT or proxy share an address, so the correct token must pass even if others send wrong ones:

    * A long token is always compared. Its length protects it: 16 random characters withstand guessing at any rate the
      port can answer. Wrong tokens after the first five in five minutes are answered with 429 and not audited.
    * A short token could be found that way. After five wrong tokens the network gets one check every 2 s, for right and
      wrong tokens alike: a request waits up to 4 s for its check, or is refused unchecked.
    """

    def __init__(
        self,
        token: str | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._digest = _digest(token) if token is not None else None
        self._attempts = Attempts(paced=token is not None and not is_long(token))
        self._clock = clock
        self._sleep = sleep
        self._held = 0

    async def passes(self, given: str, address: str) -> bool:
        """Whether `given`, sent from `address`, is the token. Raises TooManyGuessesError."""
        if (wait_s := self._attempts.reserve(address, self._clock())) > 0:
            await self._wait(wait_s)
        if self._digest is not None and hmac.compare_digest(_digest(given), self._digest):
            return True
        self._attempts.failed(address, self._clock())
        return False

    async def _wait(self, wait_s: float) -> None:
        if self._held >= MAX_HELD:
            raise TooManyGuessesError(wait_s)
        self._held += 1
        try:
            await self._sleep(wait_s)
        finally:
            self._held -= 1


def warn_if_short(key: str, token: str | None) -> None:
    """Log a warning when the token of the configuration key `key` is short."""
    if (warning := short_warning(key, token)) is not None:
        _log.warning("%s", warning)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


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
            raise HostNotAllowedError(
                "Host not allowed: without a token only localhost, 127.0.0.1, [::1] and the configured host are served."
            )

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
    """Return a guard that asks for `Authorization: Bearer <token>`; without a token every request passes.

    A page session that is `entered` may read, because a browser cannot send the token; every change needs the token.
    """

    def guard(connection: ASGIConnection[Any, Any, Any, Any], _: Any) -> None:
        if token is None:
            return
        if entered is not None and connection.scope.get("method") in ("GET", "HEAD") and entered(connection):
            return
        if not has_token(connection, token):
            raise NotAuthorizedException("this address needs a token", headers={"www-authenticate": "Bearer"})

    return guard


def has_token(connection: ASGIConnection[Any, Any, Any, Any], token: str) -> bool:
    """Whether a request carries `Authorization: Bearer <token>`."""
    given = _bearer(connection)
    return given is not None and hmac.compare_digest(given.encode(), token.encode())  # in constant time


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
    """Return the app wrapped to trust the client address and scheme forwarded by these proxies (addresses or networks),
    and by no other peer.
    """
    return ProxyHeadersMiddleware(app, trusted_hosts=list(proxies)) if proxies else app


def _bearer(connection: ASGIConnection[Any, Any, Any, Any]) -> str | None:
    scheme, _, given = connection.headers.get("authorization", "").partition(" ")
    return given if scheme.lower() == "bearer" else None
