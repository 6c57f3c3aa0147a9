"""Errors of the monitors' port: JSON of one shape, or a page for browsers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from litestar import Request, Response
from litestar.exceptions import HTTPException, PermissionDeniedException

_NO_PAGE = re.compile(r"/(?:api|v1|metrics|healthz)(?:/|$)")


def as_json(error: HTTPException) -> Response[Any]:
    """Return `{"status_code": ..., "detail": ...}`; the detail names the parameters that are wrong."""
    content = {"status_code": error.status_code, "detail": _detail(error)}
    return Response(content, status_code=error.status_code, headers=error.headers)


def accepts_page(request: Request[Any, Any, Any]) -> bool:
    """Whether the client is a browser that shows the response."""
    return "text/html" in request.headers.get("accept", "")


def on_error(page: Callable[..., Response[Any]] | None, guards: Sequence[Any]) -> Any:
    """Return the handler of errors outside the operator's page, such as an unknown URL.

    `page` renders them for browsers that pass the `guards`. A request with a token gets JSON: the page's navigation
    would tell whether the token is right, however often somebody guesses.
    """

    def answer(request: Request[Any, Any, Any], error: HTTPException) -> Response[Any]:
        if page is None or not accepts_page(request) or "authorization" in request.headers:
            return as_json(error)
        if _NO_PAGE.match(request.url.path):
            return as_json(error)
        try:
            for guard in guards:
                guard(request, None)
        except PermissionDeniedException as refused:
            return as_json(refused)
        return page(request, error)

    return answer


def _detail(error: HTTPException) -> str:
    if not isinstance(error.extra, list):
        return error.detail
    named = [f"{one['key']}: {one['message']}" for one in error.extra if "key" in one and "message" in one]
    return "; ".join(named) or error.detail
