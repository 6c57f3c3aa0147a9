"""The operator's name, remembered in a cookie of the browser, so that an acknowledgement takes one click."""

from __future__ import annotations

from urllib.parse import quote, unquote

from litestar.datastructures import Cookie

from dashboards.web.site import Page, Site

OPERATOR_COOKIE = "gaugeway_operator"
KEPT_S = 365 * 86_400
MAX_NAME = 200
"""Characters of a name."""


def operator_of(request: Page) -> str:
    """The name that the visitor gave last; "" without one. It identifies nobody: anybody can write any name."""
    given = unquote(request.cookies.get(OPERATOR_COOKIE, "")[: 12 * MAX_NAME], errors="replace")
    return "".join(character for character in given if character.isprintable()).strip()[:MAX_NAME]


def operator_cookie(site: Site, request: Page, name: str) -> Cookie:
    """The cookie that remembers a name for a year."""
    return site.cookie(request, OPERATOR_COOKIE, quote(name, safe=""), KEPT_S)
