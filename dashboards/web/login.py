"""Login and logout: the token is exchanged for a session cookie."""

from __future__ import annotations

import math
import re
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from litestar import Request, Response, get, post
from litestar.connection import ASGIConnection
from litestar.datastructures import Cookie
from litestar.exceptions import HTTPException, NotAuthorizedException, TooManyRequestsException
from litestar.params import FromQuery
from litestar.response import Redirect, Template

from dashboards.web.sessions import SESSION_S
from dashboards.web.site import COOKIE, HTTPS_COOKIE, Page, Site
from monitors.api.alerts import address_of
from monitors.api.errors import accepts_page, as_json
from monitors.runtime import audit
from monitors.runtime.auth import HostNotAllowedError, TooManyGuessesError

_TITLES = {403: "Not allowed", 404: "Not found", 405: "Method not allowed"}
_NO_PAGE = "There is no page at this address."
_HERE = re.compile(r"/(?![/\\])[^\x00-\x20\\]*")
"""A path on this host; excludes anything a browser could read as another host (`//`, backslashes)."""


def login_handlers(site: Site) -> list[Any]:
    """Handlers of `/login` and `/logout`, the only pages open to visitors without a session."""

    @get("/login", sync_to_thread=False)
    def ask(request: Page, next: FromQuery[str] = "/") -> Template | Redirect:  # noqa: A002 - the word in the address
        if site.entered(request):
            return Redirect(_inside(next), status_code=303)
        return _form(site, request, next)

    @post("/login", status_code=303)
    async def enter(request: Page) -> Template | Redirect:
        given = await site.form(request)
        address = request.client.host if request.client else ""
        try:
            right = await site.token_check.passes(given.get("token", ""), address)
        except TooManyGuessesError as error:
            wait_s = math.ceil(error.retry_after_s)
            answer = _form(site, request, given.get("next", "/"), "Wrong token, or too many attempts.", 429)
            answer.headers["retry-after"] = f"{wait_s}"
            return answer
        if not right:
            audit.tell("login", outcome="failed", address=address)
            return _form(site, request, given.get("next", "/"), "Wrong token.", 401)
        audit.tell("login", address=address)
        cookie = _cookie(site, request, site.sessions.issue(site.clock()), round(SESSION_S))
        return Redirect(_inside(given.get("next", "/")), status_code=303, cookies=[cookie])

    @post("/logout", status_code=303)
    async def leave(request: Page) -> Redirect:
        await site.form(request)
        site.sessions.revoke(site.session_of(request), site.clock())
        audit.tell("logout", address=address_of(request))
        return Redirect("/login", status_code=303, cookies=[_cookie(site, request, "", 0)])

    return [ask, enter, leave]


def page_guard(site: Site) -> Any:
    """Return a guard that requires a session or the token."""

    def guard(connection: ASGIConnection[Any, Any, Any, Any], _: Any) -> None:
        if not site.entered(connection):
            raise NotAuthorizedException("log in first", headers={"www-authenticate": "Bearer"})
        if connection.scope.get("method") not in ("GET", "HEAD"):
            site.check_origin(connection)

    return guard


def on_error(site: Site) -> Any:
    """Return the error handler: redirects visitors without a session to the login, shows others the reason."""

    def answer(request: Request[Any, Any, Any], error: HTTPException) -> Response[Any]:
        # The error page's navigation reveals whether the caller is logged in: not shown to someone guessing tokens.
        # Nor is the navigation, which counts alerts, shown under another host name.
        wants_page = accepts_page(request) and not isinstance(error, (TooManyRequestsException, HostNotAllowedError))
        if isinstance(error, NotAuthorizedException) and wants_page:
            path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return Redirect(f"/login?next={quote(path, safe='')}" if request.method == "GET" else "/login")
        if wants_page:
            title = _TITLES.get(error.status_code, "Request failed")
            detail = _NO_PAGE if error.detail == HTTPStatus.NOT_FOUND.phrase else error.detail
            page = site.render(request, "error.html", title=title, status=error.status_code, detail=detail)
            page.headers.update(error.headers or {})
            return page
        return as_json(error)

    return answer


def _form(site: Site, request: Page, to: str, problem: str = "", status: int = 200) -> Template:
    return site.render(request, "login.html", title="Log in", status=status, next=_inside(to), problem=problem)


def _cookie(site: Site, request: Page, value: str, seconds: int) -> Cookie:
    secure = site.secure(request)
    return Cookie(
        key=HTTPS_COOKIE if secure else COOKIE,
        value=value,
        max_age=seconds,
        path="/",
        httponly=True,
        samesite="strict",
        secure=secure,
    )


def _inside(path: str) -> str:
    return path if _HERE.fullmatch(path) else "/"
