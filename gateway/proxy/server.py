"""The server protocol of the traffic port: serves generation routes itself, and everything else by the ASGI app."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from gateway.http.errors import body_of, malformed_request
from gateway.http.headers import inspect
from gateway.proxy.direct_exchange import DirectExchange
from gateway.proxy.exchange import LARGE_BYTES
from gateway.proxy.request import Head, begin
from gaugeway.exchange import Headers
from gaugeway.runtime.http_protocol import ServerProtocol
from gaugeway.runtime.http_request import Request

if TYPE_CHECKING:
    from gateway.proxy.handler import Proxy

_BODY = body_of(malformed_request())
_MALFORMED = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
_MALFORMED += b"content-length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
_ROUTES = {
    b"/v1/chat/completions": "chat_completions",
    b"/v1/completions": "completions",
    b"/v1/responses": "responses",
    b"/v1/messages": "messages",
}


class TrafficProtocol(ServerProtocol):
    """The server protocol of the traffic port. With `proxy`, called for each request, it serves some itself."""

    malformed = _MALFORMED
    proxy: Callable[[], Proxy] | None = None

    def on_headers_complete(self) -> None:
        """Raise ValueError for HTTP/1.1 without exactly one Host (RFC 9112, 3.2): the parser calls it malformed."""
        if [name for name, _ in self.headers].count(b"host") != 1 and self.parser.get_http_version() == "1.1":
            raise ValueError("expected one Host")
        super().on_headers_complete()

    def accept(self, method: bytes, headers: Headers) -> Request:
        """Make a request that is served here if its route generates and no web page can have sent it."""
        raw_path, _, query = self.url.partition(b"?")
        if self.proxy is not None and method == b"POST" and raw_path in _ROUTES and b"#" not in query:
            head = Head(raw_path, query, headers, inspect(headers))
            if self.proxy().is_plain(head.seen):
                return GenerationRequest(self, head)
        return super().accept(method, headers)


class GenerationRequest(Request):
    """A request to a generation route, and the client's side of its exchange."""

    high_water = LARGE_BYTES

    def __init__(self, connection: TrafficProtocol, head: Head) -> None:
        super().__init__(connection, b"POST", head.headers)
        self._head = head
        self._exchange: DirectExchange | None = None

    def start(self) -> None:
        """Begin the exchange."""
        head, proxy = self._head, cast("TrafficProtocol", self.connection).proxy
        assert proxy is not None  # noqa: S101 - for the type checker: see `accept`
        recording = begin("POST", head.raw_path.decode("ascii"), head.headers, _ROUTES[head.raw_path])
        exchange = self._exchange = DirectExchange(proxy(), self, head, recording)
        exchange.start()

    def body_complete(self) -> None:
        """The body is whole."""
        super().body_complete()
        if self._exchange is not None:
            self._exchange.body_complete()

    def gone(self) -> None:
        """The client has left."""
        super().gone()
        if self._exchange is not None:
            self._exchange.leave()

    def resume(self) -> None:
        """The client takes bytes again."""
        if self._exchange is not None:
            self._exchange.resume()

    def cut_off(self) -> None:
        """The server's time to drain is over."""
        if self._exchange is not None:
            self._exchange.cut_off()

    def pass_on(self) -> None:
        """Let the body be passed on as it comes."""
        self.is_held = False

    def watch(self, gone: Callable[[], None]) -> None:
        """Do nothing: the connection calls `gone` anyway."""

    def done(self) -> None:
        """Let go of the exchange, and let the connection go on."""
        self._exchange = None
        super().done()


def traffic_protocol(
    proxy: Callable[[], Proxy] | None, on_invalid: Callable[[str], None] = lambda _: None
) -> type[TrafficProtocol]:
    """Return the protocol for a proxy; None leaves all to the ASGI app. `on_invalid` counts malformed connections."""
    members: dict[str, object] = {
        "proxy": None if proxy is None else staticmethod(proxy),
        "on_invalid": staticmethod(on_invalid),
    }
    return type("TrafficProtocol", (TrafficProtocol,), members)
