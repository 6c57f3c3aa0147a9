"""The fast path: serves ordinary requests from the server protocol, without ASGI.

It does what `Proxy` does for the most common case: a complete body for a generation route, one upstream, no gate, no
cache, and an idle upstream connection. All other requests, and those that fail before a byte was sent upstream, take
the ASGI path. It saves the task, the ASGI scope and the futures of a request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from gateway.exchange import Headers
from gateway.http.errors import Rejection
from gateway.http.headers import RequestHead, for_client, inspect
from gateway.proxy.handler import LARGE_BYTES, begin, refusal
from gateway.upstreams import UpstreamError, UpstreamErrorKind, UpstreamRequest
from gateway.upstreams.pool import NativeUpstream
from gateway.upstreams.response import StaleError
from monitors.runtime.serving import ServerProtocol

if TYPE_CHECKING:
    from gateway.proxy.handler import Proxy
    from gateway.upstreams.connection import Connection
    from gateway.upstreams.router import Link

_BODILESS = (204, 304)
_FAILED = b"content-type: text/plain; charset=utf-8\r\ncontent-length: 21\r\nconnection: close\r\n\r\n"
_FAILED += b"Internal Server Error"
_FINISHED: Any = SimpleNamespace(response_complete=True, message_event=asyncio.Event())
"""To the server, the request cycle of an exchange that is over: the connection keeps nothing of the exchange."""
_ROUTES = {
    b"/v1/chat/completions": "chat_completions",
    b"/v1/completions": "completions",
    b"/v1/responses": "responses",
    b"/v1/messages": "messages",
}


def fast_path_protocol(proxy: Callable[[], Proxy]) -> type[ServerProtocol]:
    """Return the server protocol that serves ordinary requests with the proxy that `proxy` returns for each request."""

    class FastPathProtocol(_FastPathProtocol):
        current_proxy = staticmethod(proxy)

    return FastPathProtocol


class _FastPathProtocol(ServerProtocol):
    """The server protocol: serves eligible requests itself and passes all others to the ASGI app."""

    current_proxy: Callable[[], Proxy]
    exchange: FastPathExchange | None = None

    def on_headers_complete(self) -> None:
        """Serve the request on the fast path if it is eligible."""
        if (exchange := self._ordinary()) is None:
            super().on_headers_complete()
            if self.exchange is not None and len(self.pipeline) == 1:
                self.flow.resume_reading()  # it waits its turn; that the client leaves must be noticed before
        else:
            self.cycle = self.exchange = exchange  # type: ignore[assignment]  # it has all that the base class uses
            self.headers = []

    def _ordinary(self) -> FastPathExchange | None:
        parser = self.parser
        if (
            parser.get_method() != b"POST"
            or self.expect_100_continue
            or (self.cycle is not None and not self.cycle.response_complete)  # type: ignore[redundant-expr]  # None first
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
            or (proxy.origins is not None and not proxy.origins.is_plain(seen))
            or not isinstance(proxy.direct.client, NativeUpstream)
        ):
            return None
        return FastPathExchange(
            self, proxy, proxy.direct, proxy.direct.client, _Asked(seen, self.headers, raw_path, query)
        )

    def serve_asgi(self, cycle: RequestResponseCycle) -> None:
        """Have the ASGI app answer a request that the fast path has read."""
        self._start_asgi_task(cycle, self.app)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the exchange under way that its client has gone."""
        super().connection_lost(exc)
        if self.exchange is not None:
            self.exchange.client_gone()

    def resume_writing(self) -> None:
        """Let the upstream go on as well."""
        super().resume_writing()
        if self.exchange is not None:
            self.exchange.resume()


class _Asked(NamedTuple):
    """A request's head, taken apart."""

    seen: RequestHead
    headers: Headers
    raw_path: bytes
    query: bytes


class FastPathExchange:
    """One exchange: to the server a request cycle and a task to wait for, to the upstream's connection a receiver."""

    def __init__(
        self, protocol: _FastPathProtocol, proxy: Proxy, link: Link, client: NativeUpstream, asked: _Asked
    ) -> None:
        # What the server's protocol uses of a cycle.
        self.body = bytearray()
        self.more_body = True
        self.disconnected = False
        self.response_complete = False
        self.keep_alive = True
        self._start = time.perf_counter()
        self._recording = begin("POST", asked.raw_path.decode("ascii"), asked.headers, _ROUTES[asked.raw_path])
        self._protocol = protocol
        self._proxy = proxy
        self._link = link
        self._client = client
        self._asked = asked
        self._scope = protocol.scope
        self._request: UpstreamRequest | None = None
        self._connection: Connection | None = None
        self._resending: asyncio.Task[None] | None = None
        self._out: list[bytes] = []
        self._chunked = False
        self._paused = False
        self._begun = False
        self._over = False
        self._timers: list[Any] = []
        self._heard_at = 0.0
        protocol.tasks.add(self)  # type: ignore[arg-type]  # see cancel

    # The server's side.

    @property
    def message_event(self) -> FastPathExchange:
        """What the server sets when something happened. As an attribute it would make garbage in circles."""
        return self

    def set(self) -> None:
        """Something of the request arrived (or its client left, which `client_gone` is told as well)."""
        if self.more_body:
            self._protocol.flow.resume_reading()
        elif self._request is None and not self._over:
            self._go()

    def client_gone(self) -> None:
        """The client hung up: so do we. What never went out is counted all the same."""
        self._recording.ending = "client_cancelled"
        self._finish()

    def cancel(self, msg: object = None) -> None:  # noqa: ARG002 - as a task has it
        """The server's patience is over. Not at once: it is looping over what it waits for."""
        self._protocol.loop.call_soon(self._give_up)

    def resume(self) -> None:
        """The client takes bytes again."""
        if self._paused and self._connection is not None:
            self._paused = False
            self._heard_at = time.perf_counter()  # the upstream's time begins anew
            self._connection.resume()

    def _go(self) -> None:
        body_complete = time.perf_counter()
        asked, recording = self._asked, self._recording
        try:
            outgoing = self._proxy.ready(bytes(self.body), asked.seen, recording, asked.raw_path, asked.query)
            request = self._request = self._link.request(outgoing, None)
            connection = self._connection = self._client.reused(request.origin, self._protocol.loop.time())
            if connection is None:
                raise StaleError  # noqa: TRY301 - as when it is found closed
            connection.start(request, self)
        except Exception:  # noqa: BLE001 - nothing was sent yet: what is wrong, the ordinary way meets again, and says
            self._fall_back()
            return
        self._heard_at = time.perf_counter()
        recording.request_overhead_s = self._heard_at - body_complete
        self._limit_time()

    def _fall_back(self) -> None:
        """Serve the request as the server would have done without us."""
        protocol, asked, scope = self._protocol, self._asked, self._scope
        self._let_go()
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
        if protocol.cycle is _FINISHED:
            protocol.cycle = cycle
        protocol.serve_asgi(cycle)

    # The upstream's side.

    def begin(self, status: int, headers: Headers) -> None:
        """The head is there: it goes out with the first bytes of the body."""
        if self._over:
            return
        self._begun = True
        self._heard_at = time.perf_counter()
        recording = self._recording
        recording.upstream = self._link.name
        recording.status = status
        recording.response_headers = headers
        shown = for_client(headers, recording.id.encode(), status=status)
        lines, sized = [STATUS_LINE[status]], status in _BODILESS
        for name, value in shown:
            lowered = name.lower()
            sized = sized or lowered == b"content-length"
            lines += (lowered, b": ", value, b"\r\n")
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        self._chunked = not sized
        lines.append(b"\r\n" if sized else b"transfer-encoding: chunked\r\n\r\n")
        self._out = lines

    def feed(self, data: bytes) -> bool:
        """Pass bytes on with the next `arrived`; True when the client does not keep up."""
        if self._over:
            return False
        self._heard_at = time.perf_counter()
        recording = self._recording
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
        self._connection = None  # it is not ours any more
        if self._chunked:
            self._out.append(b"0\r\n\r\n")
        self._delivered()

    def fail(self, error: UpstreamError | StaleError) -> None:
        """The upstream broke off, or never answered."""
        if self._over:
            return
        self._connection = None
        if isinstance(error, UpstreamError):
            self._broken(error.kind, error.detail)
        elif self._resending is not None:
            self._broken("protocol", "the upstream closed without an answer")
        elif self._request is None or not self._client.may_resend(
            self._request, error, time.perf_counter() - self._heard_at
        ):
            self._broken("protocol", "the upstream closed a reused connection")
        else:
            self._resending = self._protocol.loop.create_task(self._resend(self._request))

    async def _resend(self, request: UpstreamRequest) -> None:
        """Send the request once more, on a new connection: the other one was closed while it lay idle."""
        try:
            connection = await self._client.connect(request.origin)
            connection.start(request, self)
        except (UpstreamError, StaleError) as error:
            self.fail(error)
        except Exception:  # noqa: BLE001 - as in _go
            self._fall_back()
        else:
            self._connection = connection
            self._heard_at = time.perf_counter()

    # Ends.

    def _limit_time(self) -> None:
        loop, limits = self._protocol.loop, self._proxy.limits
        if limits.total_s is not None:
            self._timers.append(loop.call_later(limits.total_s, self._late, "finish", "total"))
        if limits.first_byte_s is not None:
            self._timers.append(loop.call_later(limits.first_byte_s, self._first_byte_late))
        self._timers.append(loop.call_later(limits.read_s, self._look_for_life))

    def _first_byte_late(self) -> None:
        if not self._begun:
            self._late("begin to answer", "first_byte")

    def _look_for_life(self) -> None:
        """End it if the upstream has been quiet for too long; if not, look again when it could have been."""
        limit_s = self._proxy.limits.read_s
        # While we do not read, because the client is slow, or connect anew, the upstream cannot be blamed.
        quiet_s = 0.0 if self._paused or self._connection is None else time.perf_counter() - self._heard_at
        if quiet_s < limit_s:
            self._timers[-1] = self._protocol.loop.call_later(limit_s - quiet_s, self._look_for_life)
        else:
            self._broken("timeout", "the upstream did not answer in time")

    def _late(self, what: str, limit: str) -> None:
        detail = f"the upstream did not {what} in time (gateway.{limit}_timeout_s)"
        self._break_off("timeout", detail, upstream=None)

    def _broken(self, kind: UpstreamErrorKind, detail: str) -> None:
        self._break_off(kind, detail, upstream=self._link.name)

    def _break_off(self, kind: UpstreamErrorKind, detail: str, *, upstream: str | None) -> None:
        """End without the upstream's (whole) response; `upstream` is the one to blame if there is nothing of it."""
        recording = self._recording
        timeout = kind in ("timeout", "connect_timeout")
        recording.error_kind = kind
        if self._begun:
            # The connection ends too: the client must not take half a response for a whole one.
            recording.ending = "timeout" if timeout else "upstream_truncated"
            self.arrived()
            self._finish()
            self._protocol.transport.close()
            return
        recording.ending = "timeout" if timeout else "upstream_error"
        recording.upstream = upstream
        code = "upstream_timeout" if timeout else "upstream_unreachable"
        rejection = Rejection(504 if timeout else 502, code, f"Gaugeway: {detail}.")
        recording.status = rejection.status
        headers, body = refusal(rejection, recording.id)
        if not self.keep_alive:
            headers.append((b"connection", b"close"))
        self._out = [STATUS_LINE[rejection.status], *(b"%b: %b\r\n" % header for header in headers), b"\r\n", body]
        self._delivered()

    def _give_up(self) -> None:
        """End as an ASGI task does that is cancelled."""
        if self._over:
            return
        self._recording.ending = "client_cancelled"
        if not self._begun:
            self._out = [STATUS_LINE[500], _FAILED]
        self.arrived()
        self._finish()
        self._protocol.transport.close()

    def _delivered(self) -> None:
        self.arrived()
        self._finish()
        if not self.keep_alive:
            self._protocol.transport.close()
        self._protocol.on_response_complete()

    def _finish(self) -> None:
        self._let_go()
        self._recording.duration_s = time.perf_counter() - self._start
        self._proxy.record(self._recording)

    def _let_go(self) -> None:
        """Leave nothing behind: no timer, no upstream connection, no trace on the client's."""
        self._over = True
        protocol = self._protocol
        protocol.exchange = None
        protocol.tasks.discard(self)
        if protocol.cycle is self:  # type: ignore[comparison-overlap]  # see on_headers_complete
            protocol.cycle = _FINISHED
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        resending, self._resending = self._resending, None
        if resending is not None:
            resending.cancel()
        if self._connection is not None:
            self._connection.abort()
