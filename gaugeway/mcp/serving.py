"""The MCP server on standard input and output, or as streamable HTTP behind a token."""

from __future__ import annotations

import json
import math
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings

from gaugeway.mcp.server import Server
from gaugeway.runtime.auth import TokenCheck, TooManyGuessesError
from gaugeway.runtime.http_bounds import roomy
from gaugeway.runtime.http_protocol import ServerProtocol
from gaugeway.settings.shared import LOOPBACK

PATH = "/mcp"
MAX_BODY = 1_000_000
"""Bytes of a request over HTTP."""
MAX_CONNECTIONS = 100
"""Connections over HTTP. For a further one those without a running request are closed; if all run, it gets 503."""


class Guarded:
    """An ASGI app behind a bearer token, which refuses what a web page of another site sends.

    Without a token the app checks the Host header, so that no name server can turn its name into this machine's
    (DNS rebinding).
    """

    def __init__(self, app: Any, token: str | None) -> None:
        self._app = app
        self._token = token
        self._check = TokenCheck(token)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if (refusal := await self._refusal(scope)) is None:
            try:
                body = await _whole(receive)
            except ConnectionError:  # the SDK would log a traceback
                return
            if body is not None:
                await self._app(scope, _replayed(body, receive), send)
                return
            refusal = 413, f"a request has at most {MAX_BODY:,} bytes", []
        status, message, extra = refusal
        body = json.dumps({"error": message}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *extra]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _refusal(self, scope: Any) -> tuple[int, str, list[tuple[bytes, bytes]]] | None:
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if (origin := headers.get(b"origin")) is not None and _netloc(origin) != headers.get(b"host", ""):
            return 403, "requests from web pages of other sites are not allowed", []
        if self._token is None:
            return None
        scheme, _, given = headers.get(b"authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return 401, "this address needs a token", [(b"www-authenticate", b"Bearer")]
        try:
            passes = await self._check.passes(given, (scope.get("client") or ("",))[0])
        except TooManyGuessesError as error:
            return 429, "too many wrong tokens", [(b"retry-after", b"%d" % math.ceil(error.retry_after_s))]
        return None if passes else (401, "the token is wrong", [(b"www-authenticate", b"Bearer")])


async def _whole(receive: Any) -> bytes | None:
    """Return a request's body, None for one that is too large. Raises ConnectionError where the client hung up."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError("the client hung up")
        body += message.get("body", b"")
        if len(body) > MAX_BODY:
            return None
        if not message.get("more_body", False):
            return bytes(body)


def _replayed(body: bytes, receive: Any) -> Any:
    """Return a `receive` that gives the body, and then what comes after it."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Any:
        return messages.pop() if messages else await receive()

    return receive_again


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def http_app(server: Server, *, host: str, token: str | None) -> Guarded:
    """Return the app to serve at `host`. Raises ValueError without a token for an address that others reach."""
    if not token and host not in LOOPBACK:
        raise ValueError("--host: without GAUGEWAY_MONITORS_TOKEN only 127.0.0.1, ::1 and localhost are served")
    names = ("127.0.0.1", "localhost", "[::1]")
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=not token,
        allowed_hosts=[pattern for name in names for pattern in (name, f"{name}:*")],
        allowed_origins=[f"http://{name}:*" for name in names],
    )
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,
        max_request_body_size=MAX_BODY,
        transport_security=security,
        host=host,
    )
    return Guarded(app, token or None)


def http_config(app: Guarded, *, host: str, port: int) -> uvicorn.Config:
    """Return how the app is served: with the deadlines of the gateway, and a bound of connections."""
    protocol = roomy(ServerProtocol, MAX_CONNECTIONS, lambda _: None)
    return uvicorn.Config(
        app, host=host, port=port, log_level="warning", access_log=False, http=protocol, ws="none", server_header=False
    )


def run_http(app: Guarded, *, host: str, port: int) -> None:
    """Serve streamable HTTP until stopped."""
    uvicorn.Server(http_config(app, host=host, port=port)).run()


def run_stdio(server: Server) -> None:
    """Serve one client on standard input and output until it closes them."""
    server.run("stdio")
