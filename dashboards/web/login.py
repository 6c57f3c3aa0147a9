"""Login and logout: the token is exchanged for a session cookie."""

from __future__ import annotations

import asyncio
import math
import re
from typing import Any

from litestar import get, post
from litestar.connection import ASGIConnection
from litestar.exceptions import NotAuthorizedException
from litestar.params import FromQuery
from litestar.response import Redirect, Template

from dashboards.web.sessions import SESSION_S
from dashboards.web.site import Page, Site
from gaugeway.runtime import audit
from gaugeway.runtime.auth import TooManyGuessesError
from gaugeway.settings.endpoints import ATTEMPTS_S
from monitors.api.alerts import address_of

_GUESSED = (
    f"Wrong token. Too many attempts from this address; wait {ATTEMPTS_S / 60:g} minutes, or enter the right one."
)
PASSED = "gaugeway_passed"
"""The event in a request's scope that is set when all guards have passed."""
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
            answer = _form(site, request, given.get("next", "/"), _GUESSED, 429)
            answer.headers["retry-after"] = f"{wait_s}"
            return answer
        if not right:
            audit.tell("login", outcome="failed", address=address)
            return _form(site, request, given.get("next", "/"), "Wrong token.", 401)
        audit.tell("login", address=address)
        cookie = site.session_cookie(request, site.sessions.issue(site.clock()), round(SESSION_S))
        return Redirect(_inside(given.get("next", "/")), status_code=303, cookies=[cookie])

    @post("/logout", status_code=303)
    async def leave(request: Page) -> Redirect:
        await site.form(request)
        site.sessions.revoke(site.session_of(request), site.clock())
        audit.tell("logout", address=address_of(request))
        return Redirect("/login", status_code=303, cookies=[site.session_cookie(request, "", 0)])

    return [ask, enter, leave]


def page_guard(site: Site) -> Any:
    """Return the last guard of a view, which requires a session or the token."""

    async def guard(connection: ASGIConnection[Any, Any, Any, Any], _: Any) -> None:
        if not site.entered(connection):
            raise NotAuthorizedException("log in first", headers={"www-authenticate": "Bearer"})
        if connection.scope.get("method") not in ("GET", "HEAD"):
            site.check_origin(connection)
        if isinstance(passed := connection.scope.get(PASSED), asyncio.Event):
            passed.set()

    return guard


def _form(site: Site, request: Page, to: str, problem: str = "", status: int = 200) -> Template:
    return site.render(request, "login.html", title="Log in", status=status, next=_inside(to), problem=problem)


def _inside(path: str) -> str:
    return path if _HERE.fullmatch(path) else "/"
