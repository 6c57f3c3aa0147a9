"""Errors the gateway itself answers with, in OpenAI's shape."""

from __future__ import annotations

import msgspec


class Rejection(Exception):
    """The gateway answers this request itself. `param` names the field at fault, if one is."""

    def __init__(self, status: int, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param


def body_of(rejection: Rejection) -> bytes:
    """The JSON body of an error, as OpenAI's clients read it."""
    kind = "invalid_request_error" if rejection.status < 500 else "api_error"  # noqa: PLR2004 - HTTP's border
    error = {"message": rejection.message, "type": kind, "param": rejection.param, "code": rejection.code}
    return msgspec.json.encode({"error": error})
