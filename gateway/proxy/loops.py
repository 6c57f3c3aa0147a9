"""Loop detection: each gateway adds its id to `gaugeway-via` and refuses a request that already has it.

Its name does not start with `x-gaugeway-`: an older release behind this one would refuse such a header as unknown.
"""

from __future__ import annotations

import re
import socket
from hashlib import blake2b

from gateway.http.errors import Rejection

HEADER = b"gaugeway-via"
MAX_HOPS = 8
"""How many gateways a request may pass through."""
_ID_BYTES = 8
_MAX_BYTES = MAX_HOPS * (2 * _ID_BYTES + 2)  # internal bound: follows from MAX_HOPS
_CHAIN = re.compile(rb"[0-9a-f]{16}(?:, ?[0-9a-f]{16})*")


def deployment_id(host: str, port: int, upstreams: list[str]) -> bytes:
    """Return the id of a deployment: the same in all of its workers, different from that of any other gateway."""
    hashed = blake2b(digest_size=_ID_BYTES, person=b"gaugeway-via")
    for part in (socket.gethostname(), host, str(port), *upstreams):
        hashed.update(len(part).to_bytes(8, "big") + part.encode("utf-8", "surrogatepass"))
    return hashed.hexdigest().encode()


def chain(via: bytes | None, own: bytes) -> bytes:
    """Return the `gaugeway-via` to send for the one received. Raises Rejection (508) in a loop or after too many hops.

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


def _loop(detail: str) -> Rejection:
    return Rejection(508, "loop_detected", f"Gaugeway: {detail}. Check `base_url` under [[upstreams]].")
