"""Loops: every gateway adds its id to `gaugeway-via` and refuses a request that has passed through it already.

Its name does not start with `x-gaugeway-`: an older release behind this one would refuse such a header as unknown.
"""

from __future__ import annotations

import re
import socket
from hashlib import blake2b
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TypeAlias

from gateway.errors import Rejection

Address: TypeAlias = IPv4Address | IPv6Address

HEADER = b"gaugeway-via"
MAX_HOPS = 8
"""Gateways that a request may pass through, one behind another."""
_ID_BYTES = 8
_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound
_MAX_BYTES = MAX_HOPS * (2 * _ID_BYTES + 2)
_CHAIN = re.compile(rb"[0-9a-f]{16}(?:, ?[0-9a-f]{16})*")


def deployment_id(host: str, port: int, upstreams: list[str]) -> bytes:
    """Return the id of a deployment: the same in all of its workers, another for a gateway before or behind it."""
    hashed = blake2b(digest_size=_ID_BYTES, person=b"gaugeway-via")
    for part in (socket.gethostname(), host, str(port), *upstreams):
        hashed.update(len(part).to_bytes(8, "big") + part.encode("utf-8", "surrogatepass"))
    return hashed.hexdigest().encode()


def chain(via: bytes | None, own: bytes) -> bytes:
    """Return the header to send for the one received. Raises Rejection (508) in a loop and after too many gateways.

    >>> chain(None, b"00000000000000aa")
    b'00000000000000aa'
    >>> chain(b"00000000000000aa", b"00000000000000bb")
    b'00000000000000aa, 00000000000000bb'
    """
    if via is None:
        return own
    if own in via:
        raise _loop("the request has passed through this gateway already: an upstream leads back to it")
    if len(via) > _MAX_BYTES or via.count(b",") + 1 >= MAX_HOPS:
        raise _loop(f"the request has passed through {MAX_HOPS} gateways: the upstreams probably form a circle")
    return via + b", " + own if _CHAIN.fullmatch(via) else own


def is_own_address(upstream_host: str, upstream_port: int, host: str, port: int) -> bool:
    """Whether an upstream is the gateway's own traffic port, as far as that shows without resolving names.

    >>> is_own_address("localhost", 8080, "0.0.0.0", 8080)
    True
    >>> is_own_address("127.0.0.1", 8080, "10.0.0.7", 8080)
    False
    """
    if upstream_port != port:
        return False
    if host in _WILDCARDS and upstream_host.lower() == socket.gethostname().lower():
        return True
    return any(_reaches(theirs, ours) for theirs in _addresses(upstream_host) for ours in _addresses(host))


def _addresses(host: str) -> tuple[Address, ...]:
    host = host.rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return ip_address("127.0.0.1"), ip_address("::1")
    try:
        return (ip_address(host),)
    except ValueError:
        return ()


def _reaches(theirs: Address, ours: Address) -> bool:
    """Whether a connection to `theirs` arrives where `ours` is bound; one to the wildcard address goes to loopback."""
    if theirs.version != ours.version:
        return False
    if ours.is_unspecified:
        return theirs.is_loopback or theirs.is_unspecified
    return theirs == ours or (theirs.is_unspecified and ours.is_loopback)


def _loop(detail: str) -> Rejection:
    return Rejection(508, "loop_detected", f"Gaugeway: {detail}. Check `base_url` under [[upstreams]].")
