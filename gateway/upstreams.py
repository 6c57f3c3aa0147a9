"""Which upstream a request goes to (for now: the only one)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.exchange import Headers
from gateway.headers import for_upstream
from gateway.target import Target
from gateway.upstream import Upstream, UpstreamRequest, UpstreamResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A client's request, ready to be sent to whichever upstream is chosen."""

    method: str
    raw_path: bytes
    query: bytes
    headers: Headers
    body: bytes | AsyncIterator[bytes]
    content_length: int | None
    traceparent: bytes | None
    model: str | None
    session: str | None
    canary: str | None


@dataclass(frozen=True, slots=True)
class Routed:
    """A response and where it came from."""

    response: UpstreamResponse
    upstream: str
    attempts: int
    model: str | None
    tags: dict[str, str]


class Router:
    """Sends everything to the one upstream."""

    needs_model = False

    def __init__(self, upstreams: Sequence[Any], client: Upstream, *, observer: Any = None) -> None:
        del observer
        self._client = client
        self._target = Target.parse(upstreams[0].base_url, name=upstreams[0].name, api_key=upstreams[0].api_key)

    async def send(self, outgoing: Outgoing) -> Routed:
        """Send. Raises UpstreamError."""
        target = self._target
        headers = for_upstream(
            outgoing.headers,
            host=target.host_header,
            content_length=outgoing.content_length,
            authorization=target.authorization,
            traceparent=outgoing.traceparent,
        )
        path = target.join(outgoing.raw_path, outgoing.query)
        request = UpstreamRequest(outgoing.method, target.origin, path, headers, outgoing.body)
        return Routed(await self._client.send(request), target.name, 1, None, {})
