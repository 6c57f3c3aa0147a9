"""The gateway's own error responses, in OpenAI's format."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Rejection(Exception):
    """An error response of the gateway's own. `param` names the invalid field, if any; `headers` are sent with it."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        param: str | None = None,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        super().__init__(message)
        self.type = "invalid_request_error" if status < 500 else "api_error"  # noqa: PLR2004 - HTTP's border
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.headers = headers


def too_large(limit: int) -> Rejection:
    """Return the 413 for a body of more than `limit` bytes."""
    return Rejection(413, "request_too_large", f"The request body is larger than {limit} bytes.")


def empty_body() -> Rejection:
    """Return the 400 for a generation request without a body."""
    return Rejection(400, "empty_body", "The request has no body: expected a JSON object.")


def unclear_request() -> Rejection:
    """Return the 400 for a request whose framing a server behind the gateway could read differently."""
    message = (
        "The request's framing is ambiguous: 'Transfer-Encoding' may only be 'chunked', and no header may look like it."
    )
    return Rejection(400, "invalid_request", message)


def malformed_request() -> Rejection:
    """Return the 400 for bytes that are not an HTTP request."""
    return Rejection(400, "invalid_request", "This is not a valid HTTP request: the connection is closed.")


def body_of(rejection: Rejection) -> bytes:
    """Return the JSON body of an error in OpenAI's format."""
    error = {"message": rejection.message, "type": rejection.type, "param": rejection.param, "code": rejection.code}
    return msgspec.json.encode({"error": error})
