"""Errors the gateway itself answers with, in OpenAI's shape."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Rejection(Exception):
    """The gateway answers this request itself. `param` names the field at fault, if one is; `headers` go along."""

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
    """The answer to a body of more than `limit` bytes."""
    return Rejection(413, "request_too_large", f"The request body is larger than {limit} bytes.")


def empty_body() -> Rejection:
    """The answer to a request for an answer that asks nothing."""
    return Rejection(400, "empty_body", "The request has no body: expected a JSON object.")


def unclear_request() -> Rejection:
    """The answer to a request that somebody behind us could take for another one."""
    return Rejection(400, "invalid_request", "The request's framing (Transfer-Encoding, Upgrade) is not unambiguous.")


def body_of(rejection: Rejection) -> bytes:
    """The JSON body of an error, as OpenAI's clients read it."""
    error = {"message": rejection.message, "type": rejection.type, "param": rejection.param, "code": rejection.code}
    return msgspec.json.encode({"error": error})
