"""A request parser that ignores offers of other protocols, as RFC 9110, 7.8 allows.

Java's HttpClient offers HTTP/2 (`Upgrade: h2c`) with every first request to an http:// URL, body included. The parser
of httptools takes whatever follows such a head for the new protocol, and has no option for it; so a second one takes
over behind the head, and reads the body in HTTP/1.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httptools

_LENGTH, _CHUNKED = b"content-length: %d\r\n", b"transfer-encoding: chunked\r\n"


class RequestParser(httptools.HttpRequestParser):
    """The parser of the connection of `protocol`, which has the callbacks unless another object has."""

    def __init__(self, protocol: Any, callbacks: Any = None) -> None:
        super().__init__(protocol if callbacks is None else callbacks)
        self._protocol = protocol
        self.set_dangerous_leniencies(lenient_data_after_close=True)

    def feed_data(self, data: bytes) -> None:  # type: ignore[override]  # sockets give bytes
        """Parse `data`. Raises HttpParserUpgrade for WebSockets and CONNECT, HttpParserError for malformed bytes."""
        try:
            super().feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            if not self._protocol.ignores_upgrade():
                raise
            parser = self._protocol.parser = RequestParser(self._protocol, _BehindHead(self._protocol))
            parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % framing(self._protocol.receiving.headers))
            if rest := data[offer.args[0] :]:
                parser.feed_data(rest)


def framing(headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return the header line that frames the body of a request with these headers, as the parser allows only one."""
    fields = dict(headers)
    return _CHUNKED if b"transfer-encoding" in fields else _LENGTH % int(fields.get(b"content-length", b"0"))


def offers_websocket(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether a head asks for a WebSocket."""
    offers = [value.lower() for name, value in headers if name == b"upgrade"]
    tokens = [value for name, value in headers if name == b"connection"][-1:]
    return offers[-1:] == [b"websocket"] and any(
        token.strip().lower() == b"upgrade" for token in b"".join(tokens).split(b",")
    )


class Discarding:
    """A parser for what follows malformed bytes."""

    @staticmethod
    def feed_data(data: bytes) -> None:
        """Ignore `data`: where the next request would begin is not known."""


class _BehindHead:
    """The callbacks of a parser whose first head is a stand-in for one that was parsed before."""

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self._in_stand_in = True

    def on_message_begin(self) -> None:
        if not self._in_stand_in:
            self._protocol.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._in_stand_in:
            self._protocol.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_stand_in:
            self._protocol.on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._in_stand_in:
            self._in_stand_in = False
        else:
            self._protocol.on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._protocol.on_body(body)

    def on_message_complete(self) -> None:
        self._protocol.on_message_complete()
