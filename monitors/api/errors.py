"""Errors of the monitors' port: JSON of one shape, or a page for browsers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from litestar import Request, Response
from litestar.exceptions import HTTPException, PermissionDeniedException
from litestar.params import QueryParameter
from litestar.typing import FieldDefinition

from gaugeway.settings.field_errors import in_words

_CHOICES = re.compile(r"\^\((\w+(?:\|\w+)*)\)\$")
_KINDS = {bool: "true or false", int: "a whole number", float: "a number"}
_NO_PAGE = re.compile(r"/(?:api|v1|metrics|healthz)(?:/|$)")


def as_json(error: HTTPException, request: Request[Any, Any, Any] | None = None) -> Response[Any]:
    """Return `{"status_code": ..., "detail": ...}`; the detail names the parameters that are wrong.

    It says what the handler of `request` expects of them.
    """
    content = {"status_code": error.status_code, "detail": _detail(error, request)}
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
            return as_json(error, request)
        if _NO_PAGE.match(request.url.path):
            return as_json(error, request)
        try:
            for guard in guards:
                guard(request, None)
        except PermissionDeniedException as refused:
            return as_json(refused)
        return page(request, error)

    return answer


def _detail(error: HTTPException, request: Request[Any, Any, Any] | None) -> str:
    if not isinstance(error.extra, list):
        return error.detail
    handler = None if request is None else request.scope.get("route_handler")
    parameters = {} if handler is None else handler.parsed_fn_signature.parameters
    named = [
        f"{problem['key']}: {_expected(parameters.get(problem['key'])) or in_words(problem['message'])}"
        for problem in error.extra
        if "key" in problem and "message" in problem
    ]
    return "; ".join(named) or error.detail


def _expected(parameter: FieldDefinition | None) -> str:
    """Return what a query parameter may be; "" for a parameter of another kind."""
    limits = None if parameter is None else parameter.kwarg_definition
    if parameter is None or not isinstance(limits, QueryParameter):
        return ""
    if limits.pattern is not None:
        choices = _CHOICES.fullmatch(limits.pattern)
        return f"expected {_listed(choices[1].split('|'))}" if choices is not None else ""
    types = (parameter, *parameter.inner_types)  # of "float | None" too
    kind = next((kind for kind in _KINDS if any(field.is_subclass_of(kind) for field in types)), None)
    return "" if kind is None else " ".join(["expected", _KINDS[kind], *_range(limits)])


def _range(limits: QueryParameter) -> list[str]:
    if limits.ge is not None and limits.le is not None:
        return [f"from {limits.ge:g} to {limits.le:g}"]
    bounds = {"above": limits.gt, "of at least": limits.ge, "below": limits.lt, "of at most": limits.le}
    known = [f"{words} {bound:g}" for words, bound in bounds.items() if bound is not None]
    return [" and ".join(known)] if known else []


def _listed(choices: Sequence[str]) -> str:
    return " or ".join([", ".join(choices[:-1]), choices[-1]]) if len(choices) > 1 else choices[0]
