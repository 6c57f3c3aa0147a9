"""Which headers go through: everything end to end, nothing hop by hop, nothing of our own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from gateway.exchange import Headers

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_NOT_FORWARDED = HOP_BY_HOP | {b"host", b"expect"}
OURS = b"x-gaugeway-"


@dataclass(slots=True)
class Seen:
    """What the proxy needs to know of a request's headers, found in one pass."""

    content_length: int | None = None
    json: bool = False
    chunked: bool = False
    traceparent: bytes | None = None
    upstream: str | None = None
    ours: Headers = field(default_factory=list)


def inspect(headers: Headers) -> Seen:
    """Look through the headers (names in lower case, as ASGI gives them) once."""
    seen = Seen()
    for name, value in headers:
        if name == b"content-length":
            seen.content_length = int(value) if value.isdigit() else None
        elif name == b"content-type":
            seen.json = value.startswith(b"application/json")
        elif name == b"transfer-encoding":
            seen.chunked = True
        elif name == b"traceparent":
            seen.traceparent = value
        elif name.startswith(OURS):
            seen.ours.append((name, value))
            if name == b"x-gaugeway-upstream":
                seen.upstream = value.decode("latin-1")
    return seen


def for_upstream(
    headers: Iterable[tuple[bytes, bytes]],
    *,
    host: bytes,
    content_length: int | None = None,
    authorization: bytes | None = None,
    traceparent: bytes | None = None,
) -> Headers:
    """Return the request headers to send: the client's in their order, with those named here put in their place.

    `content_length` replaces the client's when its body was changed; None leaves it.
    """
    replaced: dict[bytes, bytes] = {}
    if content_length is not None:
        replaced[b"content-length"] = str(content_length).encode()
    if authorization is not None:
        replaced[b"authorization"] = authorization
    if traceparent is not None:
        replaced[b"traceparent"] = traceparent
    headers = list(headers)
    dropped = _NOT_FORWARDED | connection_tokens(headers) | replaced.keys()
    kept = [(b"host", host)]
    kept += [(name, value) for name, value in headers if name not in dropped and not name.startswith(OURS)]
    if any(name == b"transfer-encoding" for name, _ in headers) and content_length is None:
        kept.append((b"transfer-encoding", b"chunked"))
    return kept + list(replaced.items())


def for_client(headers: Headers, exchange_id: bytes) -> Headers:
    """Return the response headers to send: the upstream's, and ours with the exchange's id."""
    dropped = HOP_BY_HOP | connection_tokens(headers)
    kept = [(name, value) for name, value in headers if name.lower() not in dropped]
    return [*kept, (b"x-gaugeway-exchange-id", exchange_id)]


def connection_tokens(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Return the header names that `Connection` declares hop by hop."""
    return frozenset(
        token.strip().lower() for name, value in headers if name.lower() == b"connection" for token in value.split(b",")
    )
