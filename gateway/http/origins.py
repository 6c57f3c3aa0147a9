"""Requests that a web page makes the operator's browser send: refused where they would spend the operator's own key."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gateway.http.errors import Rejection, body_of
from gateway.http.headers import RequestHead
from gaugeway.exchange import Headers

if TYPE_CHECKING:
    from litestar.types import Scope, Send

ANY = "*"
PREFLIGHT_S = 600
_SHOWN_BYTES = 100
_FOREIGN = (b"cross-site", b"same-site")
# DNS rebinding needs a name in the public DNS: addresses, names without a dot and reserved domains cannot be rebound.
_NOT_IN_DNS = r"[^.:\[\]]*|\d{1,3}(?:\.\d{1,3}){3}|\[[0-9a-f:.]+\]|(?:[^:\[\]]*\.)?(?:localhost|internal)"
_FIELD_NAMES = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~, -]{0,4096}")
_METHOD = re.compile(rb"[A-Z]{1,20}")


class OriginPolicy:
    """Which origins and hosts may be named in a request.

    `enforced`: others are refused; if not, the policy only answers for `origins` (CORS). `hosts` are the names the
    gateway is known by, None to accept any. `"*"` in either accepts all; a host may begin with `*.`.
    """

    def __init__(self, *, enforced: bool, origins: Sequence[str], hosts: Sequence[str] | None) -> None:
        self._enforced = enforced
        self._any_origin = ANY in origins
        self._origins = frozenset(origin.rstrip("/").lower().encode() for origin in origins)
        self._hosts = _pattern(hosts) if enforced and hosts is not None and ANY not in hosts else None
        self._host_before = b""  # mostly the same again, and comparing is cheaper than matching

    def is_plain(self, seen: RequestHead) -> bool:
        """Whether a request cannot come from a web page, as far as its headers tell."""
        if seen.browser:
            return False
        if self._hosts is None or seen.host is None or seen.host == self._host_before:
            return True
        if self._hosts.fullmatch(seen.host) is None:
            return False
        self._host_before = seen.host
        return True

    def check(self, headers: Headers) -> None:
        """Refuse a request that another site's page makes a browser send. Raises Rejection."""
        if not self._enforced:
            return
        hosts = _values(headers, b"host")
        for host in hosts:
            if self._hosts is not None and not self._hosts.fullmatch(host):
                raise _refused("host_not_allowed", "Host", host, "allowed_hosts")
        same = {b"%b://%b" % (scheme, host.lower()) for scheme in (b"http", b"https") for host in hosts}
        origins = _values(headers, b"origin")
        for origin in origins:
            if not (self.allows(origin) or origin.lower() in same):
                raise _refused("origin_not_allowed", "Origin", origin, "allowed_origins")
        if origins or self._any_origin:
            return
        for site in _values(headers, b"sec-fetch-site"):
            if site.strip().lower() in _FOREIGN:
                raise _refused("origin_not_allowed", "Sec-Fetch-Site", site, "allowed_origins")

    def _rejection(self, headers: Headers) -> Rejection | None:
        try:
            self.check(headers)
        except Rejection as rejection:
            return rejection
        return None

    def allows(self, origin: bytes) -> bool:
        """Whether the configuration lists an origin."""
        return self._any_origin or origin.lower() in self._origins

    async def screen(self, scope: Scope, send: Send, *, refuse: bool = False) -> Send | None:
        """Return `send`, with CORS headers for an allowed origin; None if the request was answered here.

        That is a preflight of an allowed origin and, with `refuse`, a request that does not pass `check`.
        """
        if str(scope["type"]) != "http" or not (self._origins or refuse):
            return send
        request: Any = scope
        headers: Headers = list(request["headers"])
        if refuse and (rejection := self._rejection(headers)) is not None:
            await _answer(send, rejection.status, [(b"content-type", b"application/json")], body_of(rejection))
            return None
        if (origin := next(iter(_values(headers, b"origin")), None)) is None or not self.allows(origin):
            return send
        if request["method"] == "OPTIONS" and (method := _values(headers, b"access-control-request-method")):
            await _answer_preflight(send, origin, method[0], headers)
            return None
        return _with_cors(send, origin)


async def _answer_preflight(send: Send, origin: bytes, method: bytes, headers: Headers) -> None:
    wanted = b", ".join(_values(headers, b"access-control-request-headers"))
    answer = [
        (b"access-control-allow-origin", origin),
        (b"access-control-allow-methods", method if _METHOD.fullmatch(method) else b"GET, POST"),
        (b"access-control-max-age", b"%d" % PREFLIGHT_S),
        (b"vary", b"origin, access-control-request-method, access-control-request-headers"),
    ]
    if wanted and _FIELD_NAMES.fullmatch(wanted):
        answer.append((b"access-control-allow-headers", wanted))
    if _values(headers, b"access-control-request-private-network"):
        answer.append((b"access-control-allow-private-network", b"true"))
    await _answer(send, 200, answer, b"")


async def _answer(send: Send, status: int, headers: Headers, body: bytes) -> None:
    sized = [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": sized})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _with_cors(send: Send, origin: bytes) -> Send:
    """Let the page read the response, whatever the upstream says about origins of its own."""

    async def sent(message: Any) -> None:
        if message["type"] == "http.response.start":
            kept = [header for header in message["headers"] if not header[0].lower().startswith(b"access-control-")]
            kept += [(b"access-control-allow-origin", origin), (b"access-control-expose-headers", b"*")]
            message = {**message, "headers": [*kept, (b"vary", b"origin")]}
        await send(message)

    return sent


def _values(headers: Headers, wanted: bytes) -> list[bytes]:
    return [value for name, value in headers if name == wanted]


def _pattern(hosts: Sequence[str]) -> re.Pattern[bytes]:
    names = [_NOT_IN_DNS]
    for host in hosts:
        known = host.rstrip(".").lower()
        names.append(r"[^:\[\]]+" + re.escape(known[1:]) if known.startswith("*.") else re.escape(known))
    return re.compile(rf"(?:{'|'.join(names)})\.?(?::\d*)?".encode("ascii", "ignore"), re.IGNORECASE)


def _refused(code: str, name: str, value: bytes, key: str) -> Rejection:
    shown = value[:_SHOWN_BYTES].decode("latin-1")
    detail = f"a request with {name} '{shown}' may come from a web page and would use the gateway's own upstream key"
    return Rejection(403, code, f"Gaugeway: {detail}. If it is meant to, add it to gateway.{key}.")
