"""The upstream port: one request out, one response back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from gaugeway.exchange import Headers

UpstreamErrorKind: TypeAlias = Literal["connect", "connect_timeout", "timeout", "protocol"]

HIGHEST_STATUS = 599


class UpstreamRequest(Struct):
    """A request ready to go out: `target` is the path with query exactly as it stands on the request line.

    `origin` is (scheme, host, port); `headers` include Host and, with a body, its framing. An iterator as body is sent
    as it comes, in the framing that the headers announce, and can be sent only once.
    """

    method: str
    origin: tuple[str, str, int]
    target: bytes
    headers: Headers
    body: bytes | AsyncIterator[bytes]


class UpstreamResponse(Protocol):
    """A response whose head has arrived; its body is read in pieces."""

    status: int
    headers: Headers

    async def read(self) -> tuple[bytes, bool]:
        """Wait for the next bytes of the body, undecoded; return what has arrived, and whether more may follow.

        After the end it returns (b"", False). Raises UpstreamError.
        """

    async def aclose(self) -> None:
        """Release the response; before its end this closes the connection to the upstream."""


class UpstreamError(Exception):
    """The upstream could not be reached, did not answer in time, or broke off."""

    def __init__(self, kind: UpstreamErrorKind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


def bad_status(status: int) -> str:
    """Return what a response with a status above `HIGHEST_STATUS` is refused with."""
    return f"the upstream returned the invalid status {status}"


def first_byte_late(limit_s: float) -> UpstreamError:
    """Return the error of an attempt that got no response head within `gateway.first_byte_timeout_s`."""
    return UpstreamError("timeout", f"no response within {limit_s:g} s (gateway.first_byte_timeout_s)")


class Upstream(Protocol):
    """Sends requests. Cancelling `send` or closing the response early closes the upstream connection."""

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """Return as soon as the response's head is there. Raises UpstreamError."""

    async def aclose(self) -> None:
        """Close all connections."""
