"""Ordinary requests without ASGI: from the server's protocol straight to an idle upstream connection and back.

A second way for what `Proxy` does, for the one case that makes up the traffic: a whole body for a generation route, one
upstream, no gate, no cache, and a connection at hand. Everything else, and whatever goes wrong before a byte of the
response is there, is handed to the ASGI path as if nothing had happened. No task, no ASGI scope, no futures.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from gateway.errors import Rejection
from gateway.exchange import Headers, Recording
from gateway.headers import Seen, for_client, inspect
from gateway.proxy import LARGE_BYTES, begin, refusal
from gateway.upstream import UpstreamError, UpstreamErrorKind, UpstreamRequest
from gateway.upstream.native import STALE_WITHIN_S, NativeUpstream
from gateway.upstream.response import StaleError
from monitors.serving import ServerProtocol

if TYPE_CHECKING:
    from gateway.proxy import Proxy
    from gateway.upstream.connection import Connection
    from gateway.upstreams import Link

_BODILESS = (204, 304)
_ROUTES = {
    b"/v1/chat/completions": "chat_completions",
    b"/v1/completions": "completions",
    b"/v1/responses": "responses",
    b"/v1/messages": "messages",
}


def express_protocol(proxy: Callable[[], Proxy]) -> type[ServerProtocol]:
    """Return the server protocol that takes the short way with the proxy that `proxy` returns for each request."""

    class ExpressProtocol(_ExpressProtocol):
        current_proxy = staticmethod(proxy)

    return ExpressProtocol


class _ExpressProtocol(ServerProtocol):
    """The server's protocol, which gives eligible requests a cycle of our own in place of an ASGI task."""

    current_proxy: Callable[[], Proxy]
    express: Express | None = None

    def on_headers_complete(self) -> None:
        """Take the request the short way if it is an ordinary one."""
        if (express := self._ordinary()) is None:
            super().on_headers_complete()
        else:
            self.cycle = self.express = express  # type: ignore[assignment]  # it has all that the base class uses
            self.headers = []

    def _ordinary(self) -> Express | None:
        parser = self.parser
        if (
            parser.get_method() != b"POST"
            or self.expect_100_continue
            or (self.cycle is not None and not self.cycle.response_complete)  # type: ignore[redundant-expr]  # None first
            or self.express is not None
            or parser.get_http_version() != "1.1"
            or not parser.should_keep_alive()
            or parser.should_upgrade()
        ):
            return None
        raw_path, _, query = self.url.partition(b"?")
        if raw_path not in _ROUTES or b"#" in query:
            return None
        seen = inspect(self.headers)
        proxy = self.current_proxy()
        if (
            seen.content_length is None
            or seen.content_length > min(LARGE_BYTES, proxy.limits.body_bytes)
            or seen.chunked
            or seen.ambiguous
            or seen.upgrade
            or proxy.direct is None
        ):
            return None
        return Express(self, proxy, proxy.direct, _Asked(seen, self.headers, raw_path, query))

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the exchange under way that its client has gone."""
        super().connection_lost(exc)
        if self.express is not None:
            self.express.client_gone()

    def resume_writing(self) -> None:
        """Let the upstream go on as well."""
        super().resume_writing()
        if self.express is not None:
            self.express.resume()


class _Asked(NamedTuple):
    """A request's head, taken apart."""

    seen: Seen
    headers: Headers
    raw_path: bytes
    query: bytes

    def recording(self) -> Recording:
        """Start the record of the exchange."""
        path = self.raw_path.decode("ascii")
        return begin("POST", path, self.headers, _ROUTES[self.raw_path])


class Express:
    """One exchange. To the server it is a request cycle, to the upstream's connection the receiver of the response."""

    def __init__(self, protocol: _ExpressProtocol, proxy: Proxy, link: Link, asked: _Asked) -> None:
        # What the server's protocol uses of a cycle.
        self.body = bytearray()
        self.more_body = True
        self.disconnected = False
        self.response_complete = False
        self.keep_alive = True
        self._protocol = protocol
        self._proxy = proxy
        self._link = link
        self._asked = asked
        self._scope = protocol.scope
        self._connection: Connection | None = None
        self._recording: Recording | None = None
        self._out: list[bytes] = []
        self._chunked = False
        self._paused = False
        self._begun = False
        self._over = False
        self._timers: list[Any] = []
        self._heard_at = 0.0
        self._start = time.perf_counter()

    # The server's side.

    @property
    def message_event(self) -> Express:
        """What the server sets when something happened. As an attribute it would make garbage in circles."""
        return self

    def set(self) -> None:
        """Something of the request arrived (or its client left, which `client_gone` is told as well)."""
        if self.more_body:
            self._protocol.flow.resume_reading()
        elif self._recording is None and not self._over:
            self._go()

    def client_gone(self) -> None:
        """The client hung up: so do we."""
        recording = self._recording
        if recording is None:
            # The body never came whole. Nothing went out; the request is counted all the same.
            recording = self._recording = self._asked.recording()
        if not self._over:
            recording.ending = "client_cancelled"
            self._finish()
            if self._connection is not None:
                self._connection.abort()

    def resume(self) -> None:
        """The client takes bytes again."""
        if self._paused and self._connection is not None and not self._over:
            self._paused = False
            self._connection.resume()

    def _go(self) -> None:
        body_complete = time.perf_counter()
        try:
            request, recording = self._prepare(bytes(self.body))
            connection = _reused(self._link, request, self._protocol.loop.time())
            self._connection, self._recording = connection, recording
            connection.start(request, self)
        except Exception:  # noqa: BLE001 - nothing was sent yet: what is wrong, the ordinary way meets again, and says
            self._connection = self._recording = None
            self._fall_back()
            return
        self._heard_at = time.perf_counter()
        recording.request_overhead_s = self._heard_at - body_complete
        loop, limits = self._protocol.loop, self._proxy.limits
        first_s = min(limits.read_s, limits.first_byte_s or limits.read_s)
        self._timers.append(loop.call_later(first_s, self._first_byte_late, first_s))
        if limits.total_s is not None:
            self._timers.append(loop.call_later(limits.total_s, self._total_late))

    def _prepare(self, body: bytes) -> tuple[UpstreamRequest, Recording]:
        asked, link = self._asked, self._link
        recording = asked.recording()
        recording.upstream = link.name
        outgoing = self._proxy.ready(body, asked.seen, recording, asked.raw_path, asked.query)
        return link.request(outgoing, None), recording

    def _fall_back(self) -> None:
        """Serve the request as the server would have done without us."""
        protocol = self._protocol
        self._over = True
        protocol.express = None
        scope = self._scope
        asked = self._asked
        scope["method"], scope["path"], scope["raw_path"] = "POST", asked.raw_path.decode("ascii"), asked.raw_path
        scope["query_string"], scope["headers"] = asked.query, asked.headers
        event = asyncio.Event()
        event.set()  # the body is there
        cycle = RequestResponseCycle(
            scope=scope,
            transport=protocol.transport,
            flow=protocol.flow,
            logger=protocol.logger,
            access_logger=protocol.access_logger,
            access_log=protocol.access_log,
            default_headers=protocol.server_state.default_headers,
            message_event=event,
            expect_100_continue=False,
            keep_alive=self.keep_alive,
            on_response=protocol.on_response_complete,
        )
        cycle.body, cycle.more_body = self.body, False
        cycle.disconnected = protocol.transport.is_closing()
        if protocol.cycle is self:  # type: ignore[comparison-overlap]  # see on_headers_complete
            protocol.cycle = cycle
        protocol._start_asgi_task(cycle, protocol.app)  # noqa: SLF001 - the base class's own way to begin

    # The upstream's side.

    def begin(self, status: int, headers: Headers) -> None:
        """The head is there: it goes out with the first bytes of the body."""
        recording = self._recording
        if recording is None or self._over:
            return
        self._begun = True
        self._heard_at = time.perf_counter()
        recording.status = status
        recording.response_headers = headers
        shown = for_client(headers, recording.id.encode(), status=status)
        lines, sized = [STATUS_LINE[status]], status in _BODILESS
        for name, value in shown:
            lowered = name.lower()
            sized = sized or lowered == b"content-length"
            lines += (lowered, b": ", value, b"\r\n")
        self._chunked = not sized
        if not sized:
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        self._out = lines

    def feed(self, data: bytes) -> bool:
        """Pass bytes on with the next `arrived`; True when the client does not keep up."""
        recording = self._recording
        if recording is None or self._over:
            return False
        self._heard_at = time.perf_counter()
        if recording.first_chunk_s is None:
            recording.first_chunk_s = self._heard_at - self._start
        self._out += (b"%x\r\n" % len(data), data, b"\r\n") if self._chunked else (data,)
        recording.keep(data, self._proxy.limits.content_bytes)
        self._paused = self._protocol.flow.write_paused
        return self._paused

    def arrived(self) -> None:
        """Send on what came together as one."""
        if self._out and not self._over:
            out, self._out = self._out, []
            self._protocol.transport.write(b"".join(out))

    def complete(self) -> None:
        """The response is whole."""
        if self._over:
            return
        if self._chunked:
            self._out.append(b"0\r\n\r\n")
        self.arrived()
        self._delivered()

    def fail(self, error: UpstreamError | StaleError) -> None:
        """The upstream broke off, or never answered."""
        recording = self._recording
        if self._over or recording is None:
            return
        if self._begun:
            assert isinstance(error, UpstreamError)  # noqa: S101 - for the type checker: stale means nothing came
            self._cut(recording, error.kind)
        elif isinstance(error, StaleError) and time.perf_counter() - self._heard_at <= STALE_WITHIN_S:
            self._stop_timers()
            self._connection = self._recording = None
            self._fall_back()
        elif isinstance(error, StaleError):
            self._refuse(recording, "protocol", "the upstream closed a reused connection")
        else:
            self._refuse(recording, error.kind, error.detail)

    # Ends.

    def _first_byte_late(self, limit_s: float) -> None:
        if self._begun:
            self._idle_late()
        elif limit_s == self._proxy.limits.first_byte_s:
            self._late("the upstream did not begin to answer in time (gateway.first_byte_timeout_s)")
        else:
            self._late("the upstream did not answer in time")

    def _idle_late(self) -> None:
        """Look whether the upstream has been quiet for too long; if not, look again when it could have been."""
        limit_s = self._proxy.limits.read_s
        # While we do not read, because the client is slow, the upstream cannot be blamed.
        quiet_s = 0.0 if self._paused else time.perf_counter() - self._heard_at
        if quiet_s < limit_s:
            self._timers[0] = self._protocol.loop.call_later(limit_s - quiet_s, self._idle_late)
        else:
            self._late("")

    def _total_late(self) -> None:
        self._late("the upstream did not finish in time (gateway.total_timeout_s)")

    def _late(self, detail: str) -> None:
        if self._over or self._recording is None:
            return
        if self._begun:
            self._cut(self._recording, "timeout")
        else:
            self._refuse(self._recording, "timeout", detail)
        if self._connection is not None:
            self._connection.abort()

    def _cut(self, recording: Recording, kind: UpstreamErrorKind) -> None:
        """End the connection, so that the client does not take half a response for a whole one."""
        recording.error_kind = kind
        recording.ending = "timeout" if kind == "timeout" else "upstream_truncated"
        self.arrived()
        self._finish()
        self._protocol.transport.close()

    def _refuse(self, recording: Recording, kind: UpstreamErrorKind, detail: str) -> None:
        late = kind == "timeout"
        recording.error_kind = kind
        recording.ending = "timeout" if late else "upstream_error"
        code = "upstream_timeout" if late else "upstream_unreachable"
        rejection = Rejection(504 if late else 502, code, f"Gaugeway: {detail}.")
        recording.status = rejection.status
        headers, body = refusal(rejection, recording.id)
        self._out = [STATUS_LINE[rejection.status], *(b"%b: %b\r\n" % header for header in headers), b"\r\n", body]
        self.arrived()
        self._delivered()

    def _delivered(self) -> None:
        self.response_complete = True
        self._finish()
        if not self.keep_alive:
            self._protocol.transport.close()
        self._protocol.on_response_complete()

    def _stop_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _finish(self) -> None:
        self._over = True
        self._protocol.express = None
        self._stop_timers()
        if self._recording is not None:
            self._recording.duration_s = time.perf_counter() - self._start
            self._proxy.record(self._recording)


def _reused(link: Link, request: UpstreamRequest, now: float) -> Connection:
    connection = link.client.reused(request.origin, now) if isinstance(link.client, NativeUpstream) else None
    if connection is None:
        raise StaleError
    return connection
