"""Responses of the gateway's own: errors in OpenAI's format, with the exchange id."""

from __future__ import annotations

from gateway.http.errors import Rejection, body_of
from gateway.upstreams import UpstreamError
from gaugeway.exchange import Headers


def too_slow() -> Rejection:
    """Return the 504 for a response that was not complete within `gateway.total_timeout_s`."""
    return Rejection(
        504, "upstream_timeout", "Gaugeway: the upstream did not finish in time (gateway.total_timeout_s)."
    )


def shutting_down() -> Rejection:
    """Return the 503 for a request that was not answered by the end of the drain period."""
    message = "Gaugeway: shutting down; the request was not completed in time. Send it again."
    return Rejection(503, "shutting_down", message, headers=((b"retry-after", b"1"),))


def unreachable(error: UpstreamError) -> Rejection:
    """Return the 504 or 502 for a request that no upstream answered."""
    if error.kind in ("timeout", "connect_timeout"):
        return Rejection(504, "upstream_timeout", f"Gaugeway: {error.detail}.")
    return Rejection(502, "upstream_unreachable", f"Gaugeway: {error.detail}.")


def internal(defect: str) -> Rejection:
    """Return the 500 for a defect of the gateway's."""
    return Rejection(500, "internal_error", f"Gaugeway: the request could not be passed on ({defect}).")


def response_of(rejection: Rejection, exchange_id: str) -> tuple[Headers, bytes]:
    """Return the headers and the body of the response to a refused request."""
    body = body_of(rejection)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"x-gaugeway-exchange-id", exchange_id.encode()),
        *rejection.headers,
    ]
    return headers, body
