"""Joins an upstream's base URL and the client's path, and refuses paths that could leave the base URL."""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes, urlsplit

from msgspec import Struct

from gateway.http.errors import Rejection

MAX_ESCAPED_PATH_BYTES = 8192
"""The longest path with escapes, backslashes or semicolons, which is decoded; a plain path is only searched."""
MOST_DECODINGS = 6
"""How often a path is decoded. Proxies in front of an upstream may remove several layers of percent-encoding.

The last time must find nothing to decode: a path may have five layers."""
_REFUSED_METHODS = frozenset({"TRACE", "TRACK", "CONNECT"})
_ALLOWED = ((b"allow", b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),)
_UNUSUAL = re.compile(rb"[%\\;\x00-\x20\x7f]|/\.\.?(?:/|\Z)")
_SEPARATORS = re.compile(rb"[/\\]")
_UNICODE_ESCAPE = re.compile(rb"%u00([0-9a-f]{2})", re.IGNORECASE)
_OVERLONG = re.compile(rb"[\xc0\xc1][\x80-\xbf]|\xe0[\x80-\x9f][\x80-\xbf]")
_IGNORED = bytes(range(0x21)) + b"\x7f"


class Target(Struct, frozen=True, kw_only=True):
    """An upstream's address, parsed once. `authorization`, if set, replaces the client's."""

    name: str
    scheme: str
    host: str
    port: int
    path: str
    authorization: bytes | None = None

    @classmethod
    def parse(cls, base_url: str, *, name: str = "default", api_key: str | None = None) -> Target:
        """Parse a base URL as OpenAI clients use it, such as https://api.openai.com/v1. Raises ValueError."""
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"expected an http(s) URL such as https://api.openai.com/v1, got {base_url!r}")
        if parts.query or parts.fragment or parts.username or parts.password:
            raise ValueError("a base URL has no query, fragment, user or password")
        return cls(
            name=name,
            scheme=parts.scheme,
            host=parts.hostname,
            port=parts.port or (443 if parts.scheme == "https" else 80),
            path=parts.path.rstrip("/"),
            authorization=f"Bearer {api_key}".encode() if api_key else None,
        )

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port."""
        return self.scheme, self.host, self.port

    @property
    def host_header(self) -> bytes:
        """The Host header's value: with the port unless it is the scheme's own, IPv6 in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        default = 443 if self.scheme == "https" else 80
        return (host if self.port == default else f"{host}:{self.port}").encode("idna" if host.isascii() else "utf-8")

    def join(self, raw_path: bytes, query: bytes) -> bytes:
        """Return the request target for a client's path (`/v1/...` or `/openai/...`) and query, both as received.

        The base URL stands for the client's `/v1`: with base https://host/api/v3 the path /v1/models becomes
        /api/v3/models. A base without a path keeps the client's path whole, and `/openai/...` is only shortened when
        the base ends with /openai itself.

        >>> Target.parse("https://api.openai.com/v1").join(b"/v1/models", b"a=1")
        b'/v1/models?a=1'
        >>> Target.parse("https://gw.example/api/v3").join(b"/v1/models", b"")
        b'/api/v3/models'
        >>> Target.parse("http://localhost:11434").join(b"/v1/models", b"")
        b'/v1/models'
        """
        if (base := self.path.encode()) and raw_path.startswith(b"/v1/"):
            path = base + raw_path[3:]
        elif base.endswith(b"/openai") and raw_path.startswith(b"/openai/"):
            path = base + raw_path[7:]
        else:
            path = base + raw_path
        return path + b"?" + query if query else path


def check_target(method: str, raw_path: bytes) -> None:
    """Refuse a request whose path could leave the base URL. Raises Rejection.

    TRACE would send the provider's key back to the client. Dot segments are searched in every reading that a server
    behind the gateway may choose: percent-encoded (repeatedly, overlong, as %u00XX), with backslashes, with path
    parameters (`..;x`), with ignored control characters.

    >>> check_target("GET", b"/v1/models/org%2Fname..v2")
    >>> check_target("GET", b"/v1/..%2ftenant-b")
    Traceback (most recent call last):
    gateway.http.errors.Rejection: The path contains a dot segment ('..') or is percent-encoded too often.
    """
    if method in _REFUSED_METHODS:
        raise Rejection(405, "method_not_allowed", f"{method} is not supported.", headers=_ALLOWED)
    if _UNUSUAL.search(raw_path) is not None:
        _check_unusual(raw_path)


def _check_unusual(path: bytes) -> None:
    if len(path) > MAX_ESCAPED_PATH_BYTES:
        raise Rejection(414, "uri_too_long", f"A path with escapes may have {MAX_ESCAPED_PATH_BYTES} bytes.")
    for _ in range(MOST_DECODINGS):
        if _OVERLONG.search(path) or any(map(_is_dots, _SEPARATORS.split(path))):
            break
        if (decoded := unquote_to_bytes(_UNICODE_ESCAPE.sub(rb"%\1", path))) == path:
            return
        path = decoded
    raise Rejection(400, "invalid_path", "The path contains a dot segment ('..') or is percent-encoded too often.")


def _is_dots(segment: bytes) -> bool:
    return segment.split(b";", 1)[0].translate(None, _IGNORED) in (b".", b"..")
