"""The bounds of what a client may send and how slowly, and the answers to one that exceeds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from gaugeway.runtime.http_protocol import ServerProtocol

MAX_HEAD_BYTES = 512 * 1024
"""Of a request line with its headers: room for contexts in a header. Neither parser nor server have a limit."""
HEAD_S = 20.0
"""How long a request's head may take, and a new connection to begin one."""
BODY_S, BODY_RATE = 60.0, 1000.0
"""How far a request's body may fall behind this rate (bytes/s), in seconds. What came faster before earns nothing."""
BODY_TOTAL_S = 1200.0
"""How long a body that is held in memory may take in all."""
MAX_PENDING_BYTES = 1024 * 1024 * 1024
"""Of bodies that are still arriving and are held in memory, in all connections of a process."""
WRITE_S, WRITE_RATE = 60.0, 1000.0
"""Grace period in seconds, and required bytes per second, of a client that reads slowly."""
MOST_AHEAD, MOST_BYTES_AHEAD = 64, 65_536
"""Requests that wait on one connection for their turn, and bytes of these, beyond which it is not read any more."""
LINGER_S = 2.0
"""How long what follows malformed bytes is read and ignored: closing on unread bytes resets the connection, and the
client may never see the answer.
"""
BodyEnd: TypeAlias = Literal["stalled", "too_long", "no_room"]


def _answer(status: bytes) -> bytes:
    return b"HTTP/1.1 %b\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % status


TOO_LATE, TOO_LONG = _answer(b"408 Request Timeout"), _answer(b"431 Request Header Fields Too Large")
BAD_REQUEST = _answer(b"400 Bad Request")
NO_ROOM = _answer(b"503 Service Unavailable\r\nretry-after: 1")


class PendingBodies:
    """The bodies that are still arriving and are held in memory. Beyond `max_bytes` the slowest are given up."""

    def __init__(self, max_bytes: int = MAX_PENDING_BYTES) -> None:
        self.max_bytes = max_bytes
        self.size = 0
        self._sizes: dict[ServerProtocol, int] = {}

    def add(self, connection: ServerProtocol, count: int) -> None:
        """Note bytes that arrived."""
        self._sizes[connection] = self._sizes.get(connection, 0) + count
        self.size += count
        while self.size > self.max_bytes:
            slowest = min(self._sizes, key=lambda known: known.pace)
            self.remove(slowest)
            slowest.give_up_body("no_room", NO_ROOM)

    def remove(self, connection: ServerProtocol) -> None:
        """Forget a body: it is whole, gone, or not held."""
        self.size -= self._sizes.pop(connection, 0)


def patient(
    protocol: type[ServerProtocol],
    *,
    body_s: float = BODY_S,
    body_total_s: float = BODY_TOTAL_S,
    max_pending_bytes: int = MAX_PENDING_BYTES,
    on_body_given_up: Callable[[BodyEnd], None] = lambda _: None,
    write_s: float = WRITE_S,
    on_stall: Callable[[], None] = lambda: None,
) -> type[ServerProtocol]:
    """Return the protocol with other limits on bodies; those given up are reported with the reason.

    `on_stall` is called for each client given up because it did not read its answer.
    """
    members = {
        "body_s": body_s,
        "body_total_s": body_total_s,
        "pending": PendingBodies(max_pending_bytes),
        "on_body_given_up": staticmethod(on_body_given_up),
        "write_s": write_s,
        "on_stall": staticmethod(on_stall),
    }
    return type(protocol.__name__, (protocol,), members)


def roomy(protocol: type[ServerProtocol], most: int, closed: Callable[[str], None]) -> type[ServerProtocol]:
    """Return the protocol for at most `most` connections; `closed` gets the reason for each closed one."""
    members = {"most_connections": most, "connection_closed": staticmethod(closed)}
    return type(protocol.__name__, (protocol,), members)
