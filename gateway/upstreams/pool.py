"""The native HTTP/1.1 client: keep-alive pools, last in first out, one per origin."""

from __future__ import annotations

import asyncio
import ssl
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from gateway.upstreams import UpstreamError, UpstreamRequest
from gateway.upstreams.connection import Connection
from gateway.upstreams.response import NativeResponse, StaleError

Origin: TypeAlias = tuple[str, str, int]

MAX_IDLE = 1000
IDLE_S = 55.0
MAX_AGE_S = 600.0
STALE_WITHIN_S = 1.0
IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
IDEMPOTENCY_KEYS = frozenset({b"idempotency-key", b"x-idempotency-key"})


class NativeUpstream:
    """The native HTTP/1.1 client. `connect_timeout_s` covers TCP and TLS, `read_timeout_s` each wait for the upstream.

    TLS is verified against the system's certificates, or those of `ca_file`. Idle connections are kept for 55 s, at
    most 1,000 for an origin, and none longer than 10 minutes, so that a changed DNS record is noticed.

    A request whose reused connection ends without a byte of a response is sent once more, on a new connection, if the
    upstream cannot have received it, or if it may be repeated (`repeatable`) and that took no more than a second. A
    stream that has begun is never sent twice. `on_resend` gets the reason.
    """

    def __init__(
        self, *, connect_timeout_s: float = 5.0, read_timeout_s: float = 600.0, ca_file: Path | None = None
    ) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._read_timeout_s = read_timeout_s
        self._ca_file = ca_file
        self.on_resend: Callable[[str], None] = lambda _: None
        self._tls: ssl.SSLContext | None = None
        self._idle: dict[Origin, list[Connection]] = defaultdict(list)
        self._open: dict[Connection, Origin] = {}
        self._closed = False

    async def send(self, request: UpstreamRequest) -> NativeResponse:
        clock = asyncio.get_running_loop().time
        sent_at = clock()
        if (connection := self.reused(request.origin, sent_at)) is not None:
            begun = _Once(request)
            try:
                return await connection.exchange(begun.request, self._read_timeout_s, self._read_timeout_s)
            except StaleError as error:
                if begun.consumed or not self.may_resend(request, error, clock() - sent_at):
                    raise UpstreamError("protocol", "the upstream closed a reused connection") from error
        connection = await self.connect(request.origin)
        try:
            return await connection.exchange(request, self._read_timeout_s, self._read_timeout_s)
        except StaleError as error:
            raise UpstreamError("protocol", "the upstream closed the connection before responding") from error

    def may_resend(self, request: UpstreamRequest, error: StaleError, waited_s: float) -> bool:
        """Whether a request whose reused connection ended after `waited_s` is sent once more; counts it if so."""
        reason = "unread" if error.unread else repeatable(request) if waited_s <= STALE_WITHIN_S else None
        if reason is not None:
            self.on_resend(reason)
        return reason is not None

    async def aclose(self) -> None:
        """Close every connection, those in use too."""
        self._closed = True
        for connection in list(self._open):
            connection.abort()
        self._idle.clear()

    def reused(self, origin: Origin, now: float) -> Connection | None:
        """Take an idle connection from the pool; None when there is none. `now` is the event loop's time."""
        idle = self._idle[origin]
        while idle:
            connection = idle.pop()
            young = now - connection.idle_since < IDLE_S and now - connection.opened_at < MAX_AGE_S
            if young and connection.usable and connection.quiet:
                return connection
            connection.abort()
        return None

    def give_back(self, connection: Connection) -> None:
        """Return a connection that was taken with `reused` and not used."""
        self._idle[self._open[connection]].append(connection)

    async def connect(self, origin: Origin) -> Connection:
        """Open a new connection; raises UpstreamError."""
        scheme, host, port = origin
        loop = asyncio.get_running_loop()
        try:
            tls = self._tls_context() if scheme == "https" else None
            async with asyncio.timeout(self._connect_timeout_s):
                transport, connection = await loop.create_connection(
                    lambda: Connection(self._released, self._lost), host, port, ssl=tls
                )
        except TimeoutError as error:
            raise UpstreamError("connect_timeout", "no connection to the upstream in time") from error
        except ssl.SSLCertVerificationError as error:
            raise UpstreamError("connect", "the upstream's certificate is not trusted") from error
        except (OSError, UnicodeError) as error:
            raise UpstreamError("connect", "the upstream cannot be reached") from error
        if self._closed:
            transport.abort()
            raise UpstreamError("connect", "the upstream client was closed")
        if connection.usable:
            self._open[connection] = origin
        return connection

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context(cafile=self._ca_file)
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls

    def _released(self, connection: Connection) -> None:
        origin = self._open.get(connection)
        if origin is None or self._closed or len(self._idle[origin]) >= MAX_IDLE:
            connection.abort()
            return
        idle = self._idle[origin]
        now = connection.idle_since
        while idle and now - idle[0].idle_since > IDLE_S:  # the first of the list has been idle longest
            idle.pop(0).abort()
        idle.append(connection)

    def _lost(self, connection: Connection) -> None:
        if (origin := self._open.pop(connection, None)) is not None and connection in self._idle[origin]:
            self._idle[origin].remove(connection)


def repeatable(request: UpstreamRequest) -> str | None:
    """Return why a request may be processed twice: its method (RFC 9110, 9.2.2) or a key; None if it may not."""
    if request.method in IDEMPOTENT:
        return "idempotent"
    return "idempotency_key" if any(name in IDEMPOTENCY_KEYS and value for name, value in request.headers) else None


class _Once:
    """A request that records whether its streamed body was read from."""

    def __init__(self, request: UpstreamRequest) -> None:
        self.consumed = False
        self.request = request
        if not isinstance(request.body, bytes):
            self._body = request.body
            self.request = UpstreamRequest(request.method, request.origin, request.target, request.headers, self)

    def __aiter__(self) -> _Once:
        return self

    async def __anext__(self) -> bytes:
        self.consumed = True
        return await anext(self._body)
