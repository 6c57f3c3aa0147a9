"""Errors of the page: what went wrong in words, with a way back; JSON for clients that are no browsers."""

from __future__ import annotations

import logging
import re
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from litestar import Request, Response
from litestar.exceptions import HTTPException, NotAuthorizedException, TooManyRequestsException
from litestar.response import Redirect

from dashboards.web.site import TEXTS, Site
from gaugeway.runtime.auth import HostNotAllowedError
from monitors.api.errors import accepts_page, as_json

_log = logging.getLogger("gaugeway")
_NO_PAGE = "There is no page at this address."
_FORM_VIEW = re.compile(r"(/(?:alerts|exchanges|trials)/[^/]+|/settings|/prompts|/review)/\w+")
_FORM_VIEWS = {
    "silences": "/alerts",
    "dead-letters": "/alerts",
    "trials": "/trials/new",
    "login": "/login",
    "logout": "/login",
}
HOME = ("/", "Back to the overview")


class TooSoonException(HTTPException):
    """A visitor repeats something too early; unlike wrong tokens, that is answered with a page."""

    status_code = HTTPStatus.TOO_MANY_REQUESTS


def way_back(method: str, path: str, query: str = "") -> tuple[str, str]:
    """Where an error leads back to: the view with the form, or the view without its parameters; address and words.

    >>> way_back("POST", "/settings/test"), way_back("GET", "/explore", "since=never")
    (('/settings', 'Back to the form'), ('/explore', 'This view with its defaults'))
    """
    if method not in ("GET", "HEAD"):
        found = _FORM_VIEW.fullmatch(path)
        return (found[1] if found else _FORM_VIEWS.get(path.split("/")[1], "/")), "Back to the form"
    return (path, "This view with its defaults") if query and not path.startswith("//") else HOME


def on_error(site: Site) -> Any:
    """Return the error handler: redirects visitors without a session to the login, shows others the reason."""

    def answer(request: Request[Any, Any, Any], error: HTTPException) -> Response[Any]:
        # The error page's navigation reveals whether the caller is logged in: not shown to someone guessing tokens.
        # Nor is the navigation, which counts alerts, shown under another host name.
        wants_page = accepts_page(request) and not isinstance(error, (TooManyRequestsException, HostNotAllowedError))
        if isinstance(error, NotAuthorizedException) and wants_page:
            path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return Redirect(f"/login?next={quote(path, safe='')}" if request.method == "GET" else "/login")
        if not wants_page:
            return as_json(error)
        title = TEXTS["errors"].get(str(error.status_code), "Request failed")
        detail = _NO_PAGE if error.detail == HTTPStatus.NOT_FOUND.phrase else error.detail
        query = request.url.query if error.status_code == HTTPStatus.BAD_REQUEST else ""
        back = dict.fromkeys((way_back(request.method, request.url.path, query), HOME))
        page = site.render(request, "error.html", title=title, status=error.status_code, detail=detail, back=list(back))
        page.headers.update(error.headers or {})
        return page

    return answer


def on_failure(site: Site) -> Any:
    """Return the handler of every other exception: it is logged, and the visitor learns that it was."""
    answer = on_error(site)

    def failed(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
        _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        internal = HTTPException(status_code=500, detail="An internal error; the log has the details.")
        shown: Response[Any] = answer(request, internal)
        return shown

    return failed
