"""The upstream client over an httpx transport, without `httpx.AsyncClient`: no cookie jar, no merged headers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import httpx

from gateway.upstreams import HIGHEST_STATUS, UpstreamError, UpstreamRequest, bad_status
from gaugeway.exchange import Headers

MAX_CONNECTIONS = 2000
KEEPALIVE_S = 60.0


class _ExactURL(httpx.URL):
    """A URL whose path and query are sent unchanged; the `target` extension would reach a proxy's CONNECT as well."""

    def __init__(self, target: bytes, url: httpx.URL) -> None:
        super().__init__(url)
        self._target = target

    @property
    def raw_path(self) -> bytes:
        """The target, untouched."""
        return self._target


class _Body(httpx.AsyncByteStream):
    def __init__(self, body: bytes | AsyncIterator[bytes]) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if isinstance(self._body, bytes):
            yield self._body
        else:
            async for chunk in self._body:
                yield chunk


class HttpxUpstream:
    """HTTP/1.1 over httpx, with a pool of up to 2,000 connections.

    Times in seconds: `connect_timeout_s` to open a connection, `read_timeout_s` between two reads.
    `ca_file` replaces the system's certificates; `proxy` is an HTTP proxy's URL, for upstreams that are reached by one.
    """

    def __init__(
        self,
        *,
        connect_timeout_s: float = 5.0,
        read_timeout_s: float = 600.0,
        ca_file: Path | None = None,
        proxy: str | None = None,
    ) -> None:
        limits = httpx.Limits(
            max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_CONNECTIONS, keepalive_expiry=KEEPALIVE_S
        )
        tls = ssl.create_default_context(cafile=ca_file)
        self._transport = httpx.AsyncHTTPTransport(verify=tls, limits=limits, trust_env=False, proxy=proxy)
        timeout = httpx.Timeout(read_timeout_s, connect=connect_timeout_s, pool=connect_timeout_s)
        self._timeout = timeout.as_dict()

    async def send(self, request: UpstreamRequest) -> HttpxResponse:
        scheme, host, port = request.origin
        outgoing = httpx.Request(
            request.method,
            httpx.URL(scheme=scheme, host=host, port=port),
            headers=request.headers,
            stream=_Body(request.body),
            extensions={"timeout": self._timeout},
        )
        outgoing.url = _ExactURL(request.target, outgoing.url)
        with _translated():
            response = await self._handle(outgoing)
        if response.status_code > HIGHEST_STATUS:
            await response.aclose()
            raise UpstreamError("protocol", bad_status(response.status_code))
        return HttpxResponse(response)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.aclose()

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        """Send; when cancelled while a connection is being made, wait for it (at most the connect timeout) first.

        httpcore loses the pool's place of a connection whose maker is cancelled before its first use.
        """
        in_use = asyncio.Event()

        async def trace(name: str, _: object) -> None:
            if name.endswith("send_request_headers.started"):
                in_use.set()

        request.extensions["trace"] = trace
        sending = asyncio.ensure_future(self._transport.handle_async_request(request))
        sending.add_done_callback(lambda _: in_use.set())
        try:
            return await asyncio.shield(sending)
        except asyncio.CancelledError:
            await asyncio.shield(in_use.wait())
            sending.cancel()
            raise


class HttpxResponse:
    """A response of the transport, its body undecoded."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._chunks = aiter(cast("httpx.AsyncByteStream", response.stream))
        self.status = response.status_code
        self.headers: Headers = response.headers.raw

    async def read(self) -> tuple[bytes, bool]:
        """Return the next chunk; the end is noticed one read later. Raises UpstreamError."""
        with _translated():
            chunk = await anext(self._chunks, None)
        return (b"", False) if chunk is None else (chunk, True)

    async def aclose(self) -> None:
        """Release the response."""
        await self._response.aclose()


@contextmanager
def _translated() -> Iterator[None]:
    """Turn httpx's errors into the port's. Their texts are built from the error's type: they may not quote content."""
    try:
        yield
    except (httpx.ConnectTimeout, httpx.PoolTimeout) as error:
        raise UpstreamError("connect_timeout", "no connection to the upstream in time") from error
    except httpx.TimeoutException as error:
        raise UpstreamError("timeout", "the upstream did not respond in time") from error
    except httpx.ConnectError as error:
        raise UpstreamError("connect", "the upstream cannot be reached") from error
    except (httpx.TransportError, httpx.InvalidURL) as error:
        raise UpstreamError("protocol", f"the upstream connection broke ({type(error).__name__})") from error
