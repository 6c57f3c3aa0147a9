"""Header filtering: end-to-end headers pass, hop-by-hop headers and the gateway's own do not."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gaugeway.exchange import Headers

HOP_BY_HOP = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection"),
        *(b"te", b"trailer", b"transfer-encoding", b"upgrade"),
    }
)
_VIA = b"gaugeway-via"
_BODILESS = (204, 304)
_NOT_FORWARDED = HOP_BY_HOP | {b"host", b"expect", _VIA}
_EXCHANGE_ID, _UPSTREAM_EXCHANGE_ID = b"x-gaugeway-exchange-id", b"x-gaugeway-upstream-exchange-id"
_NOT_RETURNED = HOP_BY_HOP | {_EXCHANGE_ID, _UPSTREAM_EXCHANGE_ID}
_NOR_BAGGAGE = _NOT_FORWARDED | {b"baggage"}
OURS = b"x-gaugeway-"
_HARMLESS = frozenset({b"keep-alive", b"close", b"", b"content-length", b"transfer-encoding", b"host", _VIA})
"""Names in `Connection` without effect: they frame or address the request itself."""
_LOOKALIKES = frozenset({b"transfer_encoding", b"content_length"})
_BROWSERS = frozenset({b"origin", b"sec-fetch-site"})
_TELLING = _LOOKALIKES | _BROWSERS
_TELLING |= {b"content-length", b"content-type", b"transfer-encoding", b"upgrade", b"traceparent", b"host", _VIA}
_LENGTH = len(b"connection")


class RequestHead(msgspec.Struct):
    """What the proxy needs of a request's headers, found in one pass.

    `ambiguous`: a server behind the gateway could read the framing differently. `browser`: a web page may have sent it.
    """

    content_length: int | None = None
    json: bool = False
    chunked: bool = False
    upgrade: bool = False
    ambiguous: bool = False
    traceparent: bytes | None = None
    upstream: str | None = None
    via: bytes | None = None
    host: bytes | None = None
    browser: bool = False
    ours: Headers = msgspec.field(default_factory=list)


def inspect(headers: Headers) -> RequestHead:
    """Read the headers (names in lower case, as ASGI gives them) in one pass."""
    seen = RequestHead()
    for name, value in headers:
        if name.startswith(OURS):
            seen.ours.append((name, value))
            if name == b"x-gaugeway-upstream":
                seen.upstream = value.decode("latin-1")
        elif name in _TELLING:
            _note(seen, name, value)
    return seen


def _note(seen: RequestHead, name: bytes, value: bytes) -> None:
    if name == b"content-length":
        seen.content_length = int(value) if value.isdigit() else None
    elif name == b"content-type":
        seen.json = value.startswith(b"application/json") or value[:16].lower() == b"application/json"
    elif name == b"transfer-encoding":
        seen.chunked = True
        seen.ambiguous = seen.ambiguous or value.strip().lower() != b"chunked"
    elif name == b"upgrade":
        seen.upgrade = True
    elif name == b"traceparent":
        seen.traceparent = value
    elif name == b"host":
        seen.browser = seen.browser or seen.host is not None  # two of them: both are looked at
        seen.host = value
    elif name in _BROWSERS:
        seen.browser = True
    elif name == _VIA:
        seen.via = value if seen.via is None else seen.via + b", " + value
    else:
        seen.ambiguous = True


def for_upstream(
    headers: Iterable[tuple[bytes, bytes]],
    *,
    host: bytes,
    content_length: int | None = None,
    authorization: bytes | None = None,
    traceparent: bytes | None = None,
    baggage: bool = False,
    via: bytes | None = None,
) -> Headers:
    """Return the request headers to send: the client's in their order, with those named here put in their place.

    `content_length` replaces the client's when its body was changed; None leaves it. W3C `baggage` is what an app tells
    its own services, users' ids too; it goes to a provider only where that is asked for.
    """
    length = None if content_length is None else b"%d" % content_length
    kept: Headers = [(b"host", host)] if via is None else [(b"host", host), (_VIA, via)]
    chunked = False
    hop: list[bytes] = []
    dropped = _NOT_FORWARDED if baggage else _NOR_BAGGAGE
    replaced = (
        length is not None and b"content-length",
        authorization is not None and b"authorization",
        traceparent is not None and b"traceparent",
    )
    for header in headers:
        if (name := header[0]) in dropped:
            if name == b"connection" and header[1] != b"keep-alive":
                hop.append(header[1])
            chunked = chunked or name == b"transfer-encoding"
        elif name not in replaced and not name.startswith(OURS):
            kept.append(header)
    if hop and (tokens := _tokens(b",".join(hop))):
        kept = [header for header in kept if header[0] not in tokens]
    if length is not None:
        kept.append((b"content-length", length))
    elif chunked:
        kept.append((b"transfer-encoding", b"chunked"))
    if authorization is not None:
        kept.append((b"authorization", authorization))
    if traceparent is not None:
        kept.append((b"traceparent", traceparent))
    return kept


def for_client(headers: Headers, exchange_id: bytes, *, status: int = 200) -> Headers:
    """Return the response headers to send: the upstream's, and ours with the exchange's id.

    Where the upstream is a gateway as well, its exchange id and those of gateways behind it become one
    `x-gaugeway-upstream-exchange-id`, the nearest first: `x-gaugeway-exchange-id` is always this gateway's. A 204 or
    304 goes without the length of the body that it does not have, which the server would wait for.
    """
    dropped = _NOT_RETURNED | connection_tokens(headers)
    if status in _BODILESS:
        dropped |= {b"content-length"}
    kept = [(name, value) for name, value in headers if name.lower() not in dropped]
    if len(kept) < len(headers) and (ids := upstream_exchange_ids(headers)):
        kept.append((_UPSTREAM_EXCHANGE_ID, ids))
    return [*kept, (_EXCHANGE_ID, exchange_id)]


def upstream_exchange_ids(headers: Headers) -> bytes:
    """Return the exchange ids that the gateways behind this one gave, the nearest first; b"" without any."""
    named = [(name.lower(), value) for name, value in headers]
    ids = [value for wanted in (_EXCHANGE_ID, _UPSTREAM_EXCHANGE_ID) for name, value in named if name == wanted]
    return b", ".join(ids)


def connection_tokens(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Return the header names that `Connection` declares hop by hop."""
    values = [value for name, value in headers if len(name) == _LENGTH and name.lower() == b"connection"]
    return _tokens(b",".join(values)) if values else frozenset()


def _tokens(value: bytes) -> frozenset[bytes]:
    return frozenset(token.strip().lower() for token in value.split(b",")) - _HARMLESS
